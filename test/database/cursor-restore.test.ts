// A dump restored on another server contains transaction ids that mean nothing there. This is noticed before anything
// is read, reported, and repaired by one command, with nothing skipped. The test uses a real dump, which needs the
// programs of PostgreSQL 15; the npm package has no pg_dump.

import { execFileSync } from 'node:child_process';
import path from 'node:path';

import pg from 'pg';
import { describe, expect, inject, onTestFinished, test } from 'vitest';

import { startPostgres } from '../../src/dev/embedded-postgres.js';
import { subscribe } from '../../src/consumer/subscribe.js';
import { cli } from '../support/cli.js';
import { only } from '../support/only.js';
import { findPostgres15 } from '../support/postgres-versions.js';
import { testDatabase } from '../support/postgres.js';
import { collect, cursorName, enqueue } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const programs = findPostgres15();
const canDump = programs !== undefined && inject('postgresMajor') === 15;
if (!canDump) {
  console.warn(
    'A dump is not restored in this project: pg_dump of PostgreSQL 15 serves the project database-15 only.',
  );
}

async function connect(url: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  onTestFinished(() => client.end().catch(() => {}));
  return client;
}

/** Another server, to which the test's database has been restored from a dump. */
async function restoreElsewhere(
  transactionsBefore: number,
): Promise<{ url: string; client: pg.Client }> {
  const bin = (name: string) => path.join(programs ?? '', name);
  const server = await startPostgres({ settings: { fsync: 'off' }, binDirectory: programs ?? '' });
  onTestFinished(() => server.remove());
  const client = await connect(server.url);
  await useTransactions(client, transactionsBefore);
  const dump = execFileSync(bin('pg_dump'), ['--schema', db.quoted, '--dbname', db.url], {
    maxBuffer: 2 ** 30,
  });
  // roles belong to the cluster, and a dump names them
  const roles = execFileSync(bin('pg_dumpall'), ['--roles-only', '--dbname', db.url]);
  const psql = (input: Buffer, ...args: string[]) =>
    execFileSync(bin('psql'), ['-q', ...args, '-d', server.url], {
      input,
      stdio: ['pipe', 'pipe', 'pipe'],
    });
  psql(roles);
  psql(dump, '-v', 'ON_ERROR_STOP=1');
  return { url: server.url, client };
}

async function read(url: string, name: string): Promise<string[]> {
  const ids: string[] = [];
  const subscription = await subscribe(
    { name, database: { url, schema: db.schema }, pollMs: 5, leaseMs: 1000 },
    (messages) => void ids.push(...messages.map(({ id }) => id)),
  );
  onTestFinished(() => subscription.stop());
  return ids;
}

/** Advances the server's transaction counter. */
async function useTransactions(client: pg.Client, count: number): Promise<void> {
  await client.query(
    `DO $$ BEGIN FOR n IN 1..${count} LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$`,
  );
}

describe.skipIf(!canDump)('N4 a dump restored on another server', () => {
  test.each([
    ['that has had fewer transactions', 0],
    ['that has had more transactions', 30_000],
  ])(
    '%s is noticed, reported, and repaired without a loss',
    async (_what, transactionsBefore) => {
      await useTransactions(await db.connect(), 2000);
      const name = cursorName();
      const early = await enqueue(db, db.pool, {}, {});
      const reader = await collect(db, { name, from: 'beginning' });
      await waitFor(() => early.every((id) => reader.ids.includes(id)), { what: 'the first ones' });
      await reader.subscription.stop();
      // the overlap is tested by the second cursor: here it would hide what must be found without it
      await db.query(
        `UPDATE ${db.quoted}.cursors SET seen_at = seen_at + interval '1 hour' WHERE name = $1`,
        [name],
      );
      const unread = await enqueue(db, db.pool, {}, {}, {});
      const caughtUp = cursorName();
      await (await collect(db, { name: caughtUp, from: 'now' })).subscription.stop();

      const { url, client } = await restoreElsewhere(transactionsBefore);
      await expect(read(url, name)).rejects.toThrow(
        new RegExp(`cursor "${name}" cannot be read: .*(another server|only reached)`),
      );
      const { rows: checks } = await client.query<{ ok: boolean }>(
        `SELECT ok FROM ${db.quoted}.health_check() WHERE name = 'transaction ids'`,
      );
      expect(checks).toEqual([{ ok: false }]);
      // producers do not wait for the repair
      const [since = ''] = await enqueue(db, client, {});

      const environment = { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema };
      expect((await cli(['cursors', 'repair'], { environment })).code).toBe(4);
      const repair = await cli(['cursors', 'repair', '--yes', '--json'], { environment });
      expect(repair.stderr).toBe('');
      expect(JSON.parse(repair.stdout)).toMatchObject({
        cursorsRepaired: expect.any(Number) as number,
      });
      const ids = await read(url, name);
      await waitFor(() => ids.includes(since), { what: 'what came since the restore' });
      const later = await enqueue(db, client, {}, {});
      await waitFor(() => later.every((id) => ids.includes(id)), { what: 'what came later' });
      for (const id of unread) expect(ids).toContain(id);
      const others = await read(url, caughtUp);
      await waitFor(() => later.every((id) => others.includes(id)), { what: 'the other cursor' });
      expect(others).toContain(since);
      expect(new Set(ids).size).toBe(ids.length);

      const again = await cli(['cursors', 'repair', '--yes', '--json'], { environment });
      expect(JSON.parse(again.stdout)).toEqual({ cursorsRepaired: 0, messagesRewritten: 0 });
    },
    120_000,
  );
});

describe('N4 transaction ids from elsewhere', () => {
  test('in the log are noticed before anything is read, and everything is read after the repair', async () => {
    const url = db.url;
    const name = cursorName();
    const { rows } = await db.query<{ id: string }>(
      `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
       SELECT 2, ${db.quoted}.new_id(), now(), '99999999999', 'default', 'user.restored', '{}' RETURNING id`,
    );
    const stale = only(rows).id;
    const start = async () => collect(db, { name, topics: ['user.restored'] });
    await expect(start()).rejects.toThrow(
      /carries transaction id 99999999999, and this server has only reached/,
    );
    const environment = { DATABASE_URL: url, WAYBILL_SCHEMA: db.schema };
    const repair = await cli(['cursors', 'repair', '--yes', '--json'], { environment });
    expect(JSON.parse(repair.stdout)).toMatchObject({ messagesRewritten: 1 });
    const reader = await start();
    await waitFor(() => reader.ids.includes(stale), { what: 'it' });
  });

  test('in a cursor are noticed, and no day is removed meanwhile', async () => {
    await db.query(
      `SELECT ${db.quoted}.delete_cursor(name, force => true) FROM ${db.quoted}.cursor_status()`,
    );
    await enqueue(db, db.pool, {});
    const name = cursorName();
    const reader = await collect(db, { name });
    await waitFor(() => reader.ids.length > 0, { what: 'all of it' });
    await reader.subscription.stop();
    await db.query(`UPDATE ${db.quoted}.cursors SET system_id = 1 WHERE name = $1`, [name]);
    await expect(collect(db, { name })).rejects.toThrow(/it comes from another server/);
    const { rows } = await db.query<{ cursor: string | null }>(
      `SELECT ${db.quoted}.cursor_behind(${db.quoted}.id_at(now() - interval '1 hour'), ${db.quoted}.id_at(now() + interval '1 hour')) AS cursor`,
    );
    expect(rows).toEqual([{ cursor: name }]);
    await db.query(
      `UPDATE ${db.quoted}.cursors SET system_id = (SELECT system_identifier FROM pg_control_system()),
              seen = '99999999:99999999:' WHERE name = $1`,
      [name],
    );
    await expect(collect(db, { name })).rejects.toThrow(
      /it has read up to transaction id 99999999/,
    );
    await db.query(`SELECT ${db.quoted}.reset_cursor($1, 'now')`, [name]);
    await collect(db, { name });
  });
});
