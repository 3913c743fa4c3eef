// Watching from the command line and from the configuration file.

import { describe, expect, it } from 'vitest';

import { reconcileWatches } from '../../src/features/watches/database.js';
import { handler } from '../../src/destinations/handler.js';
import type { Watch } from '../../src/features/watches/watch.js';
import { cli, environmentOf } from '../support/cli.js';
import type { Finished } from '../support/cli.js';
import { only } from '../support/only.js';
import { testDatabase } from '../support/postgres.js';
import { letTimePass, letTimePassFor } from '../support/owners.js';
import { makeRelay, openDatabase, startRelay } from '../support/relay.js';
import { waitFor } from '../support/wait.js';
import { events, happened, problem, watch } from '../support/watch.js';

const db = testDatabase();
let tables = 0;

async function newTable(): Promise<string> {
  tables += 1;
  await db.query(
    `CREATE TABLE jobs_${tables} (job_id int PRIMARY KEY, organization_id text, status text)`,
  );
  return `jobs_${tables}`;
}

async function run(...args: string[]): Promise<Finished> {
  return cli(args, { environment: environmentOf(db) });
}

type Listed = { table: string; topic: string; owners: string[]; problem: string | null };

async function listed(): Promise<Listed[]> {
  const { stdout } = await run('watches', '--json');
  return JSON.parse(stdout) as Listed[];
}

describe('the command line', () => {
  it('N1 N3 watches a table, lists it and ends it', async () => {
    const table = await newTable();
    const flags = `--topic ${table} --key job_id --tenant organization_id --columns status,job_id --when status`;
    const made = await run(
      'watch',
      `public.${table}`,
      ...flags.split(' '),
      ...'--old --changed status_changed --no-created'.split(' '),
    );
    expect(made).toMatchObject({ code: 0, stdout: '' });
    await db.query(`INSERT INTO ${table} VALUES (1, 'acme', 'new')`);
    await db.query(`UPDATE ${table} SET status = 'done'`);
    expect(await events(db, table)).toMatchObject([
      {
        topic: `${table}.status_changed`,
        tenant_id: 'acme',
        key: '1',
        payload: { record: { status: 'done', job_id: 1 }, old: { status: 'new' } },
      },
    ]);
    expect(await listed()).toContainEqual({
      table: `public.${table}`,
      topic: table,
      events: ['status_changed', 'deleted'],
      columns: ['status', 'job_id'],
      when: ['status'],
      key: 'job_id',
      tenant: 'organization_id',
      truncate: 'refuse',
      owners: ['sql'],
      problem: null,
    });
    expect((await run('watches', 'list')).stdout).toContain(`public.${table}`);
    expect(await run('unwatch', table, '--json')).toMatchObject({
      code: 0,
      stdout: `{"table":"${table}","ended":1}\n`,
    });
    expect((await listed()).filter((each) => each.topic === table)).toEqual([]);
    expect(await run('unwatch', table)).toMatchObject({
      code: 3,
      stderr: expect.stringContaining(`"public.${table}" is not watched`) as unknown,
    });
  });

  it('N1 prints the SQL of a dry run, which is enough to see what would run', async () => {
    const table = await newTable();
    const { code, stdout } = await run('watch', table, '--topic', table, '--dry-run');
    expect(code).toBe(0);
    expect(stdout.match(/^CREATE OR REPLACE TRIGGER .*;$/gm)).toHaveLength(5);
    expect((await listed()).filter((each) => each.topic === table)).toEqual([]);
    await db.query(stdout);
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    expect(await happened(db, table)).toEqual(['created 1']);
  });

  it('N1 refuses what cannot be watched with the reason, and exits with 2', async () => {
    const table = await newTable();
    const refused = async (...args: string[]): Promise<string> => {
      const { code, stderr } = await run('watch', ...args);
      expect(code).toBe(2);
      return stderr;
    };
    expect(await refused('public.nothing', '--topic', 'x')).toContain(
      'table "public.nothing" does not exist: write it as schema.table',
    );
    for (const name of ['123', '1259', 'a.b.c.d', 'a.b.c', 'public.', 'two words'])
      expect(await refused(name, '--topic', 'x')).toContain(
        `table "${name}" does not exist: write it as schema.table`,
      );
    expect(await refused(table, '--topic', 'x', '--columns', 'state')).toContain(
      'use job_id, organization_id, status',
    );
    expect(await refused(table)).toContain("required option '--topic <topic>'");
    expect(await refused(table, '--topic', 'a b')).toContain('watch.topic is "a b"');
  });

  it('N1 shows a broken watch in the status', async () => {
    const table = await newTable();
    await watch(db, table, table);
    await db.query(`DROP TABLE ${table}`);
    const words = 'the table was dropped: unwatch it, or watch the one in its place';
    const status = await run('status');
    expect(status.stderr).toContain(`the watch ${table} of public.${table} is broken: ${words}`);
    expect((await listed()).find((each) => each.topic === table)?.problem).toBe(words);
    const { watches } = JSON.parse((await run('status', '--json')).stdout) as {
      watches: { topic: string; problem: string | null }[];
    };
    expect(watches.find((each) => each.topic === table)?.problem).toBe(words);
    expect(await run('unwatch', `public.${table}`)).toMatchObject({ code: 0 });
  });

  it('N1 retries while a transaction blocks it', async () => {
    const table = await newTable();
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`LOCK TABLE ${table} IN ROW EXCLUSIVE MODE`);
    const watching = run('watch', table, '--topic', table);
    const waits = async (): Promise<boolean> => {
      const { rows } = await db.query(
        `SELECT FROM pg_stat_activity
          WHERE application_name = 'waybill cli' AND cardinality(pg_blocking_pids(pid)) > 0 AND datname = current_database()`,
      );
      return rows.length > 0;
    };
    await waitFor(waits, { what: 'the first try' });
    await waitFor(async () => !(await waits()), { what: 'the first try to be given up' });
    await client.query('COMMIT');
    expect(await watching).toMatchObject({ code: 0 });
    expect(await problem(db, table)).toBeNull();
  });
});

describe('the configuration file', () => {
  const settingsWith = (watches: Watch[] | undefined, application = 'shop') => ({
    application,
    destinations: { [application]: handler(() => {}) },
    ...(watches && { watches }),
    // only the owner of the table can change or end a watch
    database: { url: db.url },
  });

  async function drain(watches: Watch[] | undefined, application?: string): Promise<void> {
    const { relay } = makeRelay(db, settingsWith(watches, application));
    await relay.drain({ maxMs: 5000, maxMessages: 1000 });
  }

  /** A relay with these watches starts when none has run for more than ten minutes: it ends no watch yet. */
  async function startAfter11Minutes(watches: Watch[]) {
    await letTimePass(db, '11 minutes');
    const { relay } = await startRelay(db, settingsWith(watches));
    await relay.tendDefinitions();
    await relay.stop();
  }

  /** A relay with these watches runs for more than ten minutes, so it ends watches that left the configuration. */
  async function runFor11Minutes(
    watches: Watch[] | undefined,
    application?: string,
  ): Promise<string> {
    const { relay } = await startRelay(db, settingsWith(watches, application));
    await letTimePassFor(db, '11 minutes', [relay.id]);
    await relay.tendDefinitions();
    await relay.stop();
    return relay.id;
  }

  it('N1 creates its watches at the start, changes them, and ends those that left it', async () => {
    const [first, second, byHand] = [await newTable(), await newTable(), await newTable()];
    await watch(db, byHand, byHand);
    const one = { table: `public.${first}`, topic: first };
    const two = { table: `public.${second}`, topic: second };
    await drain([one, { ...two, changed: 'updated' }]);
    await drain([one, two]);
    await db.query(`INSERT INTO ${first} VALUES (1); INSERT INTO ${second} VALUES (1);`);
    await db.query(`UPDATE ${second} SET status = 'x'`);
    await drain(undefined);
    const silent = await runFor11Minutes(undefined);
    await reconcileWatches(openDatabase(db), silent, 'test');
    await db.query(`INSERT INTO ${first} VALUES (2)`);
    await drain([two]);
    await db.query(`INSERT INTO ${first} VALUES (9)`);
    await startAfter11Minutes([two]);
    await db.query(`INSERT INTO ${first} VALUES (10)`);
    await runFor11Minutes([two]);
    await db.query(`INSERT INTO ${first} VALUES (3); INSERT INTO ${second} VALUES (3)`);
    expect(await happened(db, first)).toEqual([
      'created 1',
      'created 10',
      'created 2',
      'created 9',
    ]);
    expect(await happened(db, second)).toEqual(['changed 1', 'created 1', 'created 3']);
    await runFor11Minutes([]);
    await db.query(`INSERT INTO ${second} VALUES (4); INSERT INTO ${byHand} VALUES (4)`);
    expect(await happened(db, second)).toHaveLength(3);
    expect(await happened(db, byHand)).toEqual(['created 4']);
  });

  it('N1 M2 keeps the watches of other applications, and shares an identical one', async () => {
    const table = await newTable();
    const watched = { table: `public.${table}`, topic: table };
    await drain([watched]);
    await runFor11Minutes([], 'billing');
    await drain([watched], 'billing');
    const owners = async () => (await listed()).find((each) => each.topic === table)?.owners;
    expect(await owners()).toEqual(['shop', 'billing']);
    await expect(drain([{ ...watched, changed: 'updated' }], 'billing')).rejects.toThrow(
      `the watch "${table}" of public.${table} is defined by the application "shop" and by the application "billing", with different settings: give it another topic in one of them, or make both the same`,
    );
    await runFor11Minutes([]);
    expect(await owners()).toEqual(['billing']);
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    expect(await happened(db, table)).toEqual(['created 1']);
  });

  it('N1 M2 follows the newest running relay, whatever an older one or a drain does', async () => {
    const table = await newTable();
    const as = (changed: string) => [{ table: `public.${table}`, topic: table, changed }];
    const old = await startRelay(db, settingsWith(as('old')));
    const newest = await startRelay(db, settingsWith(as('newest')));
    await old.relay.tendDefinitions();
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    await db.query(`UPDATE ${table} SET status = 'one'`);
    await drain(as('drained'));
    await newest.relay.tendDefinitions();
    await db.query(`UPDATE ${table} SET status = 'two'`);
    expect(await happened(db, table)).toEqual(['created 1', 'newest 1', 'newest 1']);
  });

  it('N1 M2 a removed application ends its watches, except those that another one has', async () => {
    const [own, shared] = [await newTable(), await newTable()];
    const watchesOf = (...names: string[]) =>
      names.map((name) => ({ table: `public.${name}`, topic: name }));
    await drain(watchesOf(own, shared), 'leaving');
    await drain(watchesOf(shared), 'staying');
    const remove = () => db.query(`SELECT ${db.quoted}.remove_application('leaving')`);
    await expect(remove()).rejects.toMatchObject({
      code: '42501',
      message: `the application "leaving" is not removed: only the owner of public.${own} can end its watch "${own}"; end it as the owner first, with waybill unwatch public.${own} --topic ${own}`,
    });
    const { rows } = await db.query<{ owner: string }>(
      `SELECT nspowner::regrole::text AS owner FROM pg_namespace WHERE nspname = $1`,
      [db.schema],
    );
    await db.query(`ALTER TABLE ${own} OWNER TO ${only(rows).owner}`);
    await remove();
    await db.query(`INSERT INTO ${own} VALUES (1); INSERT INTO ${shared} VALUES (1)`);
    expect(await happened(db, own)).toEqual([]);
    expect(await happened(db, shared)).toEqual(['created 1']);
    const left = (await listed()).filter(({ topic }) => [own, shared].includes(topic));
    expect(left).toMatchObject([{ topic: shared, owners: ['staying'] }]);
  });

  it('N1 watches a rebuilt table again, and forgets the old one', async () => {
    const table = await newTable();
    const watches = [{ table: `public.${table}`, topic: table }];
    await drain(watches);
    await db.query(`CREATE TABLE rebuilt (LIKE ${table} INCLUDING ALL);
      DROP TABLE ${table}; ALTER TABLE rebuilt RENAME TO ${table}`);
    await drain(watches);
    await db.query(`INSERT INTO ${table} VALUES (1)`);
    expect(await happened(db, table)).toEqual(['created 1']);
    expect(await problem(db, table)).toBeNull();
  });

  it('N1 continues with a renamed column, whatever name the file uses', async () => {
    const table = await newTable();
    const watches = [{ table: `public.${table}`, topic: table, columns: ['status'] }];
    await drain(watches);
    await db.query(`ALTER TABLE ${table} RENAME status TO state`);
    await drain(watches);
    await db.query(`INSERT INTO ${table} VALUES (1, 'a', 'new')`);
    expect((await events(db, table))[0]?.payload.record).toEqual({ status: 'new' });
  });

  it('N1 is refused at the start if a table does not exist', async () => {
    await expect(drain([{ table: 'public.nothing', topic: 'x' }])).rejects.toThrow(
      'table "public.nothing" does not exist: write it as schema.table',
    );
  });
});
