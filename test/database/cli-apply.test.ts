// `waybill apply`: defines destinations, routes and watches as a step of a deploy.

import { describe, expect, it } from 'vitest';

import { listUnrouted } from '../../src/features/unrouted/database.js';
import { handler } from '../../src/destinations/handler.js';
import { cli, environmentOf, writeConfig } from '../support/cli.js';
import { letTimePass, routesOf, settingsOf } from '../support/owners.js';
import { testDatabase } from '../support/postgres.js';
import { numbered, openDatabase, send, sendOne, startRelay } from '../support/relay.js';

const db = testDatabase();
const other = testDatabase();
const old = testDatabase();

const config = (application: string, topics: readonly string[], more = '') =>
  writeConfig(`{
    application: '${application}',
    destinations: { '${application}-crm': handler(() => {}), '${application}-log': handler(() => {}) },
    routes: ${JSON.stringify(topics.map((topic) => ({ topic, to: [`${application}-crm`, `${application}-log`] })))},
    ${more}
  }`);

const apply = (file: string, ...flags: string[]) =>
  cli(['apply', '--config', file, ...flags], { environment: environmentOf(db) });

describe('waybill apply', () => {
  it('M2 N3 defines what the configuration has, and a repeat changes nothing', async () => {
    const file = config('one', ['a']);
    const planned = await apply(file, '--dry-run');
    expect(planned).toMatchObject({ code: 9 });
    expect(planned.stdout).toBe(
      '+ destination one-crm\n+ destination one-log\n+ route a -> one-crm\n+ route a -> one-log\n4 would change for the application one\n',
    );
    expect(await routesOf(db, 'one')).toEqual([]);
    expect(await apply(file)).toMatchObject({ code: 0 });
    expect(await routesOf(db, 'one')).toEqual(['one: a -> one-crm', 'one: a -> one-log']);
    expect(await apply(file, '--dry-run')).toMatchObject({
      code: 0,
      stdout: 'nothing would change for the application one\n',
    });
  });

  it('M2 keeps definitions that are no longer in the configuration, unless --prune is given', async () => {
    await apply(config('two', ['a', 'b']));
    const without = config('two', ['b']);
    const kept = await apply(without, '--json');
    expect(kept.code).toBe(0);
    expect(JSON.parse(kept.stdout)).toEqual({
      application: 'two',
      dryRun: false,
      changes: [
        { change: 'leave', route: { topic: 'a', to: 'two-crm' } },
        { change: 'leave', route: { topic: 'a', to: 'two-log' } },
      ],
    });
    expect(await routesOf(db, 'two')).toHaveLength(4);
    expect((await apply(without)).stderr).toContain('no longer declared');
    expect(await apply(without, '--dry-run'), 'nothing would change').toMatchObject({ code: 0 });
    expect(await apply(without, '--prune', '--dry-run')).toMatchObject({ code: 9 });
    expect((await apply(without, '--prune')).stdout).toContain('- route a -> two-crm');
    expect(await routesOf(db, 'two')).toEqual(['two: b -> two-crm', 'two: b -> two-log']);
  });

  it("M2 prunes a relay's definitions as soon as the relay has stopped, and not before", async () => {
    const running = await startRelay(db, {
      application: 'seven',
      destinations: { 'seven-crm': handler(() => {}) },
      routes: ['a', 'b'].map((topic) => ({ topic, to: 'seven-crm' })),
    });
    const without = writeConfig(
      `{ application: 'seven', destinations: { 'seven-crm': handler(() => {}) }, routes: [{ topic: 'b', to: 'seven-crm' }] }`,
    );
    expect(await apply(without, '--prune')).toMatchObject({ code: 0 });
    expect(await routesOf(db, 'seven')).toEqual(['seven: a -> seven-crm', 'seven: b -> seven-crm']);
    await running.stop();
    expect(await apply(without, '--prune')).toMatchObject({ code: 0 });
    expect(await routesOf(db, 'seven')).toEqual(['seven: b -> seven-crm']);
  });

  it('M2 routes earlier messages of a new application, and none in a dry run', async () => {
    await sendOne(db, { topic: 'eight.earlier' });
    const unrouted = async () => (await listUnrouted(openDatabase(db))).count;
    const file = config('eight', ['eight.*']);
    expect(await apply(file, '--dry-run')).toMatchObject({ code: 9 });
    expect(await unrouted()).toBe(1);
    expect(await apply(file)).toMatchObject({ code: 0 });
    expect(await unrouted()).toBe(0);
  });

  it('N10 is refused if the schema is older than the program, and defines nothing', async () => {
    await old.query(
      `DELETE FROM ${old.quoted}.applied_files WHERE file = 'functions/definitions.sql'`,
    );
    const file = config('nine', ['a']);
    const refused = await cli(['apply', '--config', file], { environment: environmentOf(old) });
    expect(refused).toMatchObject({ code: 4 });
    expect(refused.stderr).toContain('it lacks functions/definitions.sql');
    expect(await routesOf(old)).toEqual([]);
  });

  it('M2 N10 is refused if another application defines a destination differently', async () => {
    await apply(config('three', ['a']));
    const file = writeConfig(
      `{ application: 'four', destinations: { 'three-crm': handler(() => {}) }, routes: [] }`,
    );
    const refused = await apply(file, '--dry-run');
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.stderr).toMatch(/"three-crm" is defined by the application "three" and by/);
  });

  it('N1 creates and ends watches too', async () => {
    await db.query('CREATE TABLE jobs (id int PRIMARY KEY)');
    const watched = config('five', [], `watches: [{ table: 'public.jobs', topic: 'jobs' }]`);
    const planned = await apply(watched, '--dry-run');
    expect(planned).toMatchObject({ code: 9 });
    expect(planned.stdout).toContain('+ watch public.jobs jobs');
    let ids = 0;
    /** Inserts a row, and returns the messages of all rows so far. */
    const created = async () => {
      await db.query('INSERT INTO jobs VALUES ($1)', [(ids += 1)]);
      return (await db.query(`SELECT FROM ${db.quoted}.messages WHERE topic = 'jobs.created'`))
        .rowCount;
    };
    expect(await created(), 'not watched in a dry run').toBe(0);
    await apply(watched);
    expect(await apply(watched, '--dry-run')).toMatchObject({ code: 0 });
    expect(await created()).toBe(1);
    const another = await apply(config('ten', [], 'watches: []'), '--prune');
    expect(another.stdout, 'of another application').not.toContain('watch');
    const without = config('five', [], 'watches: []');
    expect(await apply(without, '--prune', '--dry-run')).toMatchObject({ code: 9 });
    expect(await created(), 'not ended in a dry run').toBe(2);
    expect((await apply(without)).stdout).not.toContain('- watch');
    expect(await created(), 'not ended without prune').toBe(3);
    expect((await apply(without, '--prune')).stdout).toContain('- watch public.jobs jobs');
    expect(await created()).toBe(3);
  });

  it('N1 changes nothing if a watch is refused', async () => {
    await db.query('CREATE TABLE parts (id int PRIMARY KEY)');
    await send(db, numbered('refused-app', 2));
    const refused = await apply(
      config(
        'refused-app',
        ['refused-app'],
        `watches: [{ table: 'public.parts', topic: 'parts', key: 'nothing' }]`,
      ),
    );
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.stderr).toContain('column "nothing" of public.parts does not exist');
    expect(await routesOf(db, 'refused-app')).toEqual([]);
    expect(await settingsOf(db, 'refused-app-crm')).toBeUndefined();
    const { rows } = await db.query(
      `SELECT FROM ${db.quoted}.declarations WHERE owner = 'refused-app'
        UNION ALL SELECT FROM ${db.quoted}.deliveries d JOIN ${db.quoted}.destinations t ON t.id = d.destination_id
        WHERE t.name LIKE 'refused-app%'`,
    );
    expect(rows).toEqual([]);
  });

  it('N1 a dry run reports what the run does with a watch of a stopped relay', async () => {
    await db.query('CREATE TABLE tools (id int PRIMARY KEY)');
    const watched = config(
      'stopped-app',
      [],
      `watches: [{ table: 'public.tools', topic: 'tools' }]`,
    );
    const environment = environmentOf(db);
    expect(await cli(['drain', '--config', watched], { environment })).toMatchObject({ code: 0 });
    await letTimePass(db, '11 minutes');
    const planned = await apply(watched, '--dry-run', '--prune');
    const run = await apply(watched, '--prune');
    expect(planned.stdout).not.toContain('watch');
    expect(run.stdout).not.toContain('watch');
  });

  it('M2 lists the destinations that it adds, also if earlier messages wait for them', async () => {
    await send(db, numbered('early-app', 3));
    const applied = await apply(config('early-app', ['early-app']));
    expect(applied.stdout).toBe(
      '+ destination early-app-crm\n+ destination early-app-log\n+ route early-app -> early-app-crm\n+ route early-app -> early-app-log\n4 changed for the application early-app\n',
    );
  });

  it('N9 applies to every shard', async () => {
    const file = writeConfig(`{
      application: 'six', shards: defineShards({ shards: { eu: {}, us: {} } }),
      destinations: { six: handler(() => {}) }, routes: [{ topic: 'six', to: 'six' }],
    }`);
    const environment = {
      WAYBILL_SCHEMA: db.schema,
      WAYBILL_SHARD_EU_URL: db.url,
      WAYBILL_SHARD_US_URL: other.url,
    };
    const run = (...flags: string[]) => cli(['apply', '--config', file, ...flags], { environment });
    expect(await run('--shard', 'us')).toMatchObject({ code: 0 });
    expect(await settingsOf(db, 'six')).toBeUndefined();
    const planned = await run('--dry-run', '--json');
    expect(planned, 'one of the shards would change, and not the last').toMatchObject({ code: 9 });
    expect(JSON.parse(planned.stdout)).toMatchObject({ eu: { dryRun: true }, us: { changes: [] } });
    expect(await run()).toMatchObject({ code: 0 });
    expect(await settingsOf(db, 'six')).toMatchObject({ owners: ['six'] });
  });
});
