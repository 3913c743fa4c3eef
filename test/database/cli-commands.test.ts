// The command line as scripts use it: what it prints, and the exit codes they rely on.

import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { describe, expect, inject, it, onTestFinished } from 'vitest';

import { cli, environmentOf, startCli, temporaryDirectory, writeConfig } from '../support/cli.js';
import type { Finished } from '../support/cli.js';
import { defineDestination } from '../support/destinations.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { databaseUrl, testDatabase } from '../support/postgres.js';
import { places, untilPlaces } from '../support/relay.js';

const db = testDatabase();

/** Runs a command on the test's own database. */
async function run(args: string[], input?: string): Promise<Finished> {
  return cli(args, { environment: environmentOf(db), ...(input !== undefined && { input }) });
}

function json(finished: Finished): unknown {
  try {
    return JSON.parse(finished.stdout);
  } catch {
    throw new Error(`no JSON: ${finished.stdout}\n${finished.stderr}`);
  }
}

type EmptyDatabase = {
  readonly url: string;
  query: (sql: string, values?: unknown[]) => Promise<pg.QueryResultRow[]>;
};

/** A database in which nothing was migrated yet. */
async function emptyDatabase(): Promise<EmptyDatabase> {
  const name = `cli_${process.pid}_${Math.random().toString(36).slice(2, 10)}`;
  const admin = new pg.Client({ connectionString: inject('serverUrl') });
  await admin.connect();
  await admin.query(`CREATE DATABASE ${name}`);
  const url = databaseUrl(inject('serverUrl'), name);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(async () => {
    await client.end();
    await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
    await admin.end();
  });
  return {
    url,
    query: async (sql, values) => (await client.query<pg.QueryResultRow>(sql, values)).rows,
  };
}

describe('migrate', () => {
  it('N12 up makes the schema, verifies it and says so; a second time there is nothing to do', async () => {
    const { url } = await emptyDatabase();
    const environment = { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema };
    const status = async () =>
      json(await cli(['migrate', 'status', '--json'], { environment })) as {
        file: string;
        state: string;
      }[];
    expect(new Set((await status()).map(({ state }) => state))).toEqual(new Set(['pending']));
    const first = await cli(['migrate', 'up'], { environment });
    expect(first.code).toBe(0);
    expect(first.stdout).toMatch(/^ok {3}/m);
    expect(first.stdout).not.toContain('BAD');
    expect(first.stderr).toContain('applying migrations/0001_storage.sql');
    expect(new Set((await status()).map(({ state }) => state))).toEqual(new Set(['applied']));
    const second = await cli(['migrate', 'up', '--json'], { environment });
    expect(second.code).toBe(0);
    expect(second.stderr).not.toContain('0001_storage');
  });

  it('N12 --dry-run prints the SQL that would run, which is enough, and changes nothing', async () => {
    const { url, query } = await emptyDatabase();
    const environment = { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema };
    const { code, stdout } = await cli(['migrate', 'up', '--dry-run'], { environment });
    expect(code).toBe(0);
    const exists = async () =>
      only(await query(`SELECT to_regnamespace($1) IS NOT NULL AS found`, [db.quoted]));
    expect(await exists()).toEqual({ found: false });
    await query(stdout);
    expect(await exists()).toEqual({ found: true });
    const after = await cli(['migrate', 'status', '--json'], { environment });
    expect(new Set((json(after) as { state: string }[]).map(({ state }) => state))).toEqual(
      new Set(['applied']),
    );
  });

  it('N12 sql prints the whole schema without asking any database', async () => {
    const { url, query } = await emptyDatabase();
    const { code, stdout } = await cli(['migrate', 'sql', '--schema', db.schema]);
    expect(code).toBe(0);
    await query(stdout);
    const status = await cli(['migrate', 'status', '--json'], {
      environment: { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema },
    });
    expect(new Set((json(status) as { state: string }[]).map(({ state }) => state))).toEqual(
      new Set(['applied']),
    );
  });

  it('N12 down wants to be meant, refuses while messages wait, and takes the schema with it', async () => {
    const { url, query } = await emptyDatabase();
    const environment = { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema };
    await cli(['migrate', 'up'], { environment });
    await query(`SELECT ${db.quoted}.define_destination('waiting')`);
    await query(
      `INSERT INTO ${db.quoted}.routes (destination_id, topic) SELECT id, '*' FROM ${db.quoted}.destinations`,
    );
    await query(`SELECT ${db.quoted}.enqueue(topic => 'a')`);
    const down = (...flags: string[]) => cli(['migrate', 'down', ...flags], { environment });
    expect(await down()).toMatchObject({
      code: 4,
      stderr: expect.stringContaining('--yes') as unknown,
    });
    expect(await down('--yes')).toMatchObject({
      code: 4,
      stderr: expect.stringContaining('--force') as unknown,
    });
    expect(await down('--yes', '--force')).toMatchObject({
      code: 0,
      stdout: 'took back migrations/0001_storage.sql\n',
    });
    expect(await query(`SELECT to_regclass($1) AS t`, [`${db.quoted}.messages`])).toEqual([
      { t: null },
    ]);
    expect(await down('--yes')).toMatchObject({ code: 0, stdout: 'nothing to take back\n' });
  });

  it('N12 commands on a database without the schema end at once and say what to do', async () => {
    const { url } = await emptyDatabase();
    const environment = { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema };
    const config = writeConfig('{ destinations: { a: handler(() => {}) }, routes: [] }');
    for (const args of [
      ['status'],
      ['enqueue', 'a'],
      ['start', '--config', config],
      ['drain', '--config', config],
      ['dead-letters', 'list'],
    ]) {
      const { code, stderr } = await startCli(args, { environment }).ended(10_000);
      expect({ args, code }).toEqual({ args, code: 1 });
      expect(stderr, args.join(' ')).toContain('waybill migrate up');
    }
  });
});

describe('enqueue and status', () => {
  it('enqueue sends one message and prints its id', async () => {
    const queue = await makeQueue(db);
    const { code, stdout } = await run([
      'enqueue',
      queue.topic,
      '{"userId": 42}',
      '--tenant',
      'acme',
    ]);
    expect(code).toBe(0);
    const { rows } = await db.query(
      `SELECT id, payload, tenant_id FROM ${db.quoted}.messages WHERE topic = $1`,
      [queue.topic],
    );
    expect(rows).toEqual([{ id: stdout.trim(), payload: { userId: 42 }, tenant_id: 'acme' }]);
  });

  it('M2 enqueue reads the payload from standard input and does not round its numbers', async () => {
    const queue = await makeQueue(db);
    const payload = '{"amount": 12345678901234567890.10}';
    expect(await run(['enqueue', queue.topic, '-'], payload)).toMatchObject({ code: 0 });
    const { rows } = await db.query<{ payload: string }>(
      `SELECT payload::text FROM ${db.quoted}.messages WHERE topic = $1`,
      [queue.topic],
    );
    expect(only(rows).payload).toBe(payload);
  });

  it('M3 enqueue says when a message was enqueued before, and gives the first one', async () => {
    const queue = await makeQueue(db);
    const send = () => run(['enqueue', queue.topic, '1', '--dedupe-key', 'order-1', '--json']);
    const first = json(await send());
    expect(first).toMatchObject({ duplicate: false, sequence: null });
    expect(json(await send())).toEqual({ ...(first as object), duplicate: true });
  });

  it('a payload that is not JSON is a mistake in use, and nothing is sent', async () => {
    const queue = await makeQueue(db);
    const { code, stdout, stderr } = await run(['enqueue', queue.topic, '{userId: 42}']);
    expect({ code, stdout }).toEqual({ code: 2, stdout: '' });
    expect(stderr).toMatch(/payload(Text)? is not JSON/);
    expect(await places(db, queue.name)).toMatchObject({ waiting: 0 });
  });

  it('a message that is refused is not sent, and the reason is shown', async () => {
    const { code, stderr } = await run(['enqueue', 'not a topic', '{}']);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(/topic .*"not a topic"/);
  });

  it('N13 M13 status shows health, destinations and relays, as a table and as JSON', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await queue.kill(id);
    await queue.enqueue(2);
    const table = await run(['status']);
    expect(table.code).toBe(0);
    expect(table.stdout).toMatch(/^metric +value +description$/m);
    expect(table.stdout).toMatch(/^dead +\d/m);
    const report = json(await run(['status', '--json'])) as {
      health: { metric: string; value: number; description: string }[];
      destinations: { name: string }[];
      relays: unknown[];
    };
    expect(report.health.find(({ metric }) => metric === 'dead')?.value).toBeGreaterThan(0);
    expect(report.destinations.find(({ name }) => name === queue.name)).toMatchObject({
      waiting: 2,
      dead: 1,
      processing: 0,
      paused: false,
    });
    expect(report.relays).toEqual([]);
  });

  it('status warns of deliveries whose destination left the configuration', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(3);
    await db.query(`UPDATE ${db.quoted}.destinations SET configured = false WHERE name = $1`, [
      queue.name,
    ]);
    const { stderr } = await run(['status']);
    expect(stderr).toContain(`${queue.name} is no longer configured and 3 deliveries wait`);
  });
});

describe('dead letters', () => {
  it('M5 M13 N5 are listed, retried by id, and by filter', async () => {
    const queue = await makeQueue(db);
    const ids = await queue.enqueue(3);
    for (const id of ids.slice(0, 2)) await queue.kill(id, 'refused');
    await queue.kill(ids[2] ?? '', 'other');
    const filter = ['--destination', queue.name];
    const listed = json(await run(['dead-letters', 'list', ...filter, '--json'])) as {
      messageId: string;
      errorCode: string;
    }[];
    expect(listed.map(({ messageId, errorCode }) => [messageId, errorCode])).toEqual([
      [ids[0], 'refused'],
      [ids[1], 'refused'],
      [ids[2], 'other'],
    ]);
    const table = await run(['dead-letters', 'list', ...filter, '--error-code', 'other']);
    expect(table.stdout.trimEnd().split('\n')).toHaveLength(2);
    expect(table.stdout).toContain(ids[2]);

    expect(await run(['dead-letters', 'retry', ids[2] ?? '', '--yes'])).toMatchObject({
      code: 0,
      stdout: 'retry: 1\n',
    });
    expect(await places(db, queue.name)).toMatchObject({ dead: 2, waiting: 1 });
    const dry = await run(['dead-letters', 'retry', ...filter, '--dry-run', '--json']);
    expect(json(dry)).toHaveLength(2);
    expect(await places(db, queue.name)).toMatchObject({ dead: 2, waiting: 1 });
    expect(json(await run(['dead-letters', 'retry', ...filter, '--yes', '--json']))).toEqual({
      retry: 2,
    });
    expect(await places(db, queue.name)).toMatchObject({ dead: 0, waiting: 3 });
    const { rows } = await db.query<{ actor: string; action: string }>(
      `SELECT DISTINCT actor, action FROM ${db.quoted}.operator_actions WHERE subject ->> 'destination' = $1`,
      [queue.name],
    );
    expect(only(rows)).toMatchObject({
      action: 'retry_dead_letters',
      actor: expect.stringMatching(/^cli:/) as unknown,
    });
  });

  it('M5 a discard ends a dead letter for good, and its record stays', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await queue.kill(id);
    expect(await run(['dead-letters', 'discard', id, '--yes'])).toMatchObject({
      code: 0,
      stdout: 'discard: 1\n',
    });
    expect(await places(db, queue.name)).toMatchObject({ dead: 0, waiting: 0 });
    expect((await queue.attempts(id)).map(({ state }) => state)).toEqual(['failed', 'discarded']);
  });

  it('without a terminal a change needs --yes: exit code 4, and nothing is changed', async () => {
    const queue = await makeQueue(db);
    const id = await queue.enqueueOne();
    await queue.kill(id);
    for (const action of ['retry', 'discard']) {
      const { code, stdout, stderr } = await run(['dead-letters', action, id]);
      expect({ code, stdout }).toEqual({ code: 4, stdout: '' });
      expect(stderr).toContain('--yes');
    }
    expect(await places(db, queue.name)).toMatchObject({ dead: 1, waiting: 0 });
  });

  it('what does not exist is not found: exit code 3', async () => {
    const destination = 'quiet-place';
    await defineDestination(db, destination);
    for (const args of [
      ['retry', '01a1de5f-b731-742f-8845-6c60ca5acb12', '--yes'],
      ['discard', '--destination', destination, '--yes'],
    ]) {
      const { code, stderr } = await run(['dead-letters', ...args]);
      expect(code).toBe(3);
      expect(stderr).toContain('no dead letter matches');
    }
  });
});

describe('maintain', () => {
  it('C9 N7 maintain reports what was made and what was removed', async () => {
    const report = json(await run(['maintain', '--json'])) as {
      partitions: { daysAhead: number };
      pruned: { what: string; rows: number; ms: number }[];
    };
    expect(report.partitions.daysAhead).toBeGreaterThanOrEqual(60);
    expect(report.pruned.map(({ what }) => what)).toEqual([
      'dedupe keys',
      'partitions',
      'unrouted messages',
    ]);
  });
});

describe('the database address', () => {
  it('C7 comes from a file that DATABASE_URL_FILE names, so that it stands in no process list', async () => {
    const file = path.join(temporaryDirectory(), 'url');
    writeFileSync(file, `${db.url}\n`);
    const finished = await cli(['status', '--json'], {
      environment: { DATABASE_URL_FILE: file, WAYBILL_SCHEMA: db.schema },
    });
    expect(finished.code).toBe(0);
    expect(json(finished)).toHaveProperty('health');
  });

  it('comes from the configuration file when the environment has none; a flag goes above both', async () => {
    const file = writeConfig(
      `{ database: { url: ${JSON.stringify(db.url)}, schema: 'wrong' }, destinations: {}, routes: [] }`,
    );
    const finished = await cli(['status', '--json', '--config', file, '--schema', db.schema]);
    expect(finished.code).toBe(0);
    const found = await cli(['status', '--json', '--schema', db.schema], {
      cwd: path.dirname(file),
    });
    expect(found.code, 'the file of this directory').toBe(0);
  });

  it('is asked for when there is none', async () => {
    const directory = temporaryDirectory();
    mkdirSync(path.join(directory, 'empty'));
    const { code, stderr } = await cli(['status'], { cwd: path.join(directory, 'empty') });
    expect(code).toBe(2);
    expect(stderr).toMatch(/no database is configured: set DATABASE_URL/);
  });
});

describe('output', () => {
  it('data goes to stdout and everything else to stderr, so that pipes stay clean', async () => {
    const config = writeConfig(
      "{ destinations: { piped: handler(() => {}) }, routes: [{ topic: 'piped', to: 'piped' }] }",
    );
    const drain = () => run(['drain', '--config', config, '--json']);
    await drain();
    await run(['enqueue', 'piped']);
    const finished = await drain();
    expect(json(finished)).toMatchObject({ processed: 1 });
    await untilPlaces(db, 'piped', { delivered: 1 });
  });
});
