// Cursors and the rest of the system: retention waits for them, a relay's destination may have one, operators list and
// change them, and a standby is refused.

import {
  chmodSync,
  chownSync,
  cpSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';

import pg from 'pg';
import { describe, expect, inject, onTestFinished, test } from 'vitest';

import { createRelay } from '../../src/config.js';
import { deleteCursor, handOverCursors } from '../../src/database/cursors.js';
import { migrateUp } from '../../src/database/migrate.js';
import { batchHandler, handler } from '../../src/destinations/handler.js';
import { startPostgres } from '../../src/dev/embedded-postgres.js';
import { reject } from '../../src/core/outcome.js';
import { subscribe } from '../../src/consumer/subscribe.js';
import { cli, environmentOf } from '../support/cli.js';
import type { Finished } from '../support/cli.js';
import { backendId, waitUntilBlocked } from '../support/locks.js';
import { only } from '../support/only.js';
import type { Connection } from '../support/outbox.js';
import { programsOf } from '../support/postgres-versions.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { collect, cursorName, enqueue } from '../support/streams.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();

describe('N4 C9 retention', () => {
  async function oldMessage(daysAgo: number, on: Connection = db.pool): Promise<string> {
    await on.query(`SELECT ${db.quoted}.make_partitions(p_from => current_date - 40)`);
    const { rows } = await on.query<{ id: string }>(
      `INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, payload)
       SELECT 2, overlay(${db.quoted}.id_at(now() - $1 * interval '1 day')::text PLACING substr(${db.quoted}.new_id()::text, 15) FROM 15)::uuid,
              now(), pg_current_xact_id(), 'default', 'user.old', '{}' RETURNING id`,
      [daysAgo],
    );
    return only(rows).id;
  }

  /** The attempts of a day wait for its messages, which nothing keeps. */
  const removable = ['the messages of that day are removed first', null];

  /** Why the partitions of a day stay: first that of attempts, then that of messages. */
  async function inUse(daysAgo: number): Promise<(string | null)[]> {
    const { rows } = await db.query<{ in_use: string | null }>(
      `SELECT in_use FROM ${db.quoted}.expired_partitions('7 days', '7 days')
        WHERE day = (now() AT TIME ZONE 'UTC')::date - $1::int ORDER BY partition`,
      [daysAgo],
    );
    return rows.map((row) => row.in_use);
  }

  test('keeps a day that a cursor has yet to read, names the cursor, and drops the day when it was read, or the cursor deleted and the message discarded', async () => {
    const name = cursorName();
    const id = await oldMessage(20);
    await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
    await db.query(`SELECT ${db.quoted}.define_cursor($1, 'beginning')`, [name]);
    const reason = `the cursor ${name} has not read it yet`;
    const unrouted = 'messages without a route wait for one';
    expect(await inUse(20)).toEqual([reason, reason]);
    expect(await inUse(19)).toEqual(removable);
    const reader = await collect(db, { name, from: 'beginning' });
    await waitFor(() => reader.ids.includes(id), { what: 'the old message' });
    await reader.subscription.stop();
    expect(await inUse(20)).toEqual(removable);

    await db.query(`SELECT ${db.quoted}.reset_cursor($1, 'beginning')`, [name]);
    expect(await inUse(20)).toEqual([reason, reason]);
    await deleteCursor(openDatabase(db), name, { actor: 'ann', force: true });
    expect(await inUse(20), 'it is unrouted now').toEqual([unrouted, unrouted]);
    await db.query(`SELECT ${db.quoted}.discard_unrouted()`);
    await waitFor(
      async () => {
        await handOverCursors(openDatabase(db));
        const { rows } = await db.query(
          `SELECT FROM ${db.quoted}.cursors WHERE closing_since IS NOT NULL`,
        );
        return rows.length === 0;
      },
      { what: 'transactions that may have relied on the cursor', timeoutMs: 20_000 },
    );
    expect(await inUse(20)).toEqual(removable);
  });

  test('keeps messages of a transaction that was open when the cursor was last moved', async () => {
    const name = cursorName();
    await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
    const writer = await db.connect();
    await writer.query('BEGIN');
    await writer.query('SELECT pg_current_xact_id()');
    // a younger transaction has ended, so that the writer is in the snapshot's list of running ones
    await oldMessage(25);
    await db.query(`SELECT ${db.quoted}.define_cursor($1, 'now')`, [name]);
    await oldMessage(24, writer);
    await writer.query('COMMIT');
    expect(await inUse(24)).toContain(`the cursor ${name} has not read it yet`);
    expect(await inUse(25)).toEqual(removable);
    await db.query(`DELETE FROM ${db.quoted}.cursors WHERE name = $1`, [name]);
  });

  test('drops the days behind the position in a window that is being read', async () => {
    const name = cursorName();
    await oldMessage(30);
    await oldMessage(29);
    await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
    await db.query(`SELECT ${db.quoted}.define_cursor($1, 'beginning')`, [name]);
    await db.query(
      `UPDATE ${db.quoted}.cursors
          SET target = pg_current_snapshot(),
              position = ${db.quoted}.id_at((((now() AT TIME ZONE 'UTC')::date - 29)::timestamp) AT TIME ZONE 'UTC')
        WHERE name = $1`,
      [name],
    );
    expect(await inUse(30)).toEqual(removable);
    expect(await inUse(29)).toContain(`the cursor ${name} has not read it yet`);
    await db.query(`DELETE FROM ${db.quoted}.cursors WHERE name = $1`, [name]);
  });
});

test('N4 a cursor with unread messages is deleted only with force, which is recorded with their number', async () => {
  const name = cursorName();
  await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
  await db.query(`SELECT ${db.quoted}.define_cursor($1, 'now', '{left.*}')`, [name]);
  await enqueue(db, db.pool, { topic: 'left.behind' });
  await enqueue(db, db.pool, { topic: 'left.behind' });
  const remove = (more = '') => db.query(`SELECT ${db.quoted}.delete_cursor($1${more})`, [name]);
  await expect(remove()).rejects.toThrow(
    `the cursor "${name}" is not deleted: it has not read 2 messages, which would become unrouted unless a route or another cursor has them; read them, or give force`,
  );
  await remove(', force => true');
  const { rows } = await db.query(
    `SELECT subject FROM ${db.quoted}.operator_actions WHERE action = 'delete_cursor' AND subject ->> 'name' = $1`,
    [name],
  );
  expect(rows).toEqual([{ subject: { name, unread: 2 } }]);
});

test.each([
  ['delete_cursor($1)', 'deleted'],
  ["reset_cursor($1, 'now')", 'reset'],
])(
  'N4 a cursor that was deleted while %s waited does not exist any more, and nothing is recorded as %s',
  async (call) => {
    const name = cursorName();
    await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
    await db.query(`SELECT ${db.quoted}.define_cursor($1)`, [name]);
    const [first, second] = [await db.connect(), await db.connect()];
    await first.query('BEGIN');
    await first.query(`SELECT ${db.quoted}.delete_cursor($1)`, [name]);
    const backend = await backendId(second);
    const late = second
      .query(`SELECT ${db.quoted}.${call}`, [name])
      .catch((error: unknown) => error);
    await waitUntilBlocked(db, backend);
    await first.query('COMMIT');
    expect(await late).toMatchObject({
      code: 'P0002',
      message: `cursor "${name}" does not exist`,
    });
    const { rows } = await db.query(
      `SELECT action FROM ${db.quoted}.operator_actions WHERE subject ->> 'name' = $1 AND action LIKE '%_cursor'`,
      [name],
    );
    expect(rows).toEqual([{ action: 'delete_cursor' }]);
  },
);

describe('N4 a destination of a relay with mode stream', () => {
  const database = { url: db.url, schema: db.schema };

  test('reads the topics of its routes in order, without deliveries, and has its dead letters', async () => {
    const seen: string[] = [];
    const relay = createRelay({
      database,
      destinations: {
        warehouse: batchHandler(
          async (messages) => {
            await Promise.resolve();
            return messages.map((message) => {
              if (message.topic === 'relayed.bad') return reject({ code: 'bad' });
              seen.push(message.id);
              return { kind: 'delivered' };
            });
          },
          { mode: 'stream', from: 'now', batchSize: 4 },
        ),
        single: handler((message) => void seen.push(`single ${message.id}`), { mode: 'stream' }),
      },
      routes: [
        { topic: 'relayed.*', to: 'warehouse' },
        { topic: 'one.by.one', to: 'single' },
      ],
    });
    onTestFinished(() => relay.stop());
    await relay.start();
    const topics = ['relayed.a', 'relayed.bad', 'relayed.b', 'relayed.c', 'one.by.one'];
    const ids = await enqueue(db, db.pool, ...topics.map((topic) => ({ topic })));
    await waitFor(() => seen.includes(`single ${ids[4]}`) && new Set(seen).size === 4, {
      what: 'the rest',
    });
    const good = [0, 2, 3].map((place) => ids[place] ?? '').toSorted();
    // the messages behind the bad one came with it, and again after it
    expect([...new Set(seen.filter((id) => !id.startsWith('single')))]).toEqual(good);
    const deadLetter = await waitFor(
      async () => {
        const { rows } = await db.query<Record<string, unknown>>(
          `SELECT message_id, reason, error_code FROM ${db.quoted}.find_dead_letters(destination => 'warehouse')`,
        );
        return rows[0];
      },
      { what: 'the dead letter' },
    );
    expect(deadLetter).toEqual({ message_id: ids[1], reason: 'rejected', error_code: 'bad' });
    const { rowCount } = await db.query(
      `SELECT FROM ${db.quoted}.attempts WHERE message_id = ANY ($1)
       UNION ALL SELECT FROM ${db.quoted}.deliveries WHERE message_id = ANY ($1)`,
      [ids],
    );
    expect(rowCount).toBe(0);
  });

  test('is refused in a relay that serves only some tenants', () => {
    const config = {
      database,
      destinations: { warehouse: handler(() => {}, { mode: 'stream' }) },
      routes: [],
      relay: { tenantIds: ['acme'] },
    };
    expect(() => createRelay(config)).toThrow(/destinations\.warehouse\.mode is "stream"/);
  });

  test('cannot share its name with one that routes lead to', async () => {
    const name = cursorName();
    await db.query(`SELECT ${db.quoted}.define_destination($1)`, [name]);
    await db.query(
      `INSERT INTO ${db.quoted}.routes (destination_id, topic) SELECT id, 'x' FROM ${db.quoted}.destinations WHERE name = $1`,
      [name],
    );
    await expect(collect(db, { name })).rejects.toThrow(/is a destination that routes lead to/);
  });
});

describe('N4 the command cursors', () => {
  const run = async (...args: string[]): Promise<Finished> =>
    cli(['cursors', ...args], { environment: environmentOf(db) });

  test('lists, resets and deletes, and asks before it does', async () => {
    const name = cursorName();
    const topic = `cli.${name}`;
    const reader = await collect(db, { name, topics: [topic], from: 'now' });
    const ids = await enqueue(db, db.pool, { topic }, { topic });
    await waitFor(() => reader.ids.length === 2, { what: 'both' });
    await reader.subscription.stop();
    await enqueue(db, db.pool, { topic });
    const list = async () =>
      (JSON.parse((await run('--json')).stdout) as { name: string; behind: number }[]).find(
        (each) => each.name === name,
      );
    expect(await list()).toMatchObject({ name, behind: 1, reader: null, problem: null });
    expect((await run('list')).stdout).toContain(name);

    const refused = await run('reset', name, '--to', 'now');
    expect(refused.code).toBe(4);
    expect(refused.stderr).toContain('1 messages are skipped');
    expect(await list()).toMatchObject({ behind: 1 });
    expect((await run('reset', name, '--to', 'now', '--yes')).code).toBe(0);
    expect(await list()).toMatchObject({ behind: 0 });
    expect((await run('reset', name, '--to', 'beginning', '--yes')).code).toBe(0);
    expect(await list()).toMatchObject({ behind: 3 });
    const again = await collect(db, { name, topics: [topic] });
    await waitFor(() => again.ids.length === 3, { what: 'all three' });
    expect(again.ids.slice(0, 2)).toEqual(ids.toSorted());
    await again.subscription.stop();

    await enqueue(db, db.pool, { topic });
    const unread = await run('delete', name, '--yes');
    expect(unread).toMatchObject({ code: 2 });
    expect(unread.stderr).toContain('has 1 unread messages: read them, or add --force');
    expect((await run('delete', name, '--force')).code).toBe(4);
    expect((await run('delete', name, '--force', '--yes')).code).toBe(0);
    expect(await list()).toBeUndefined();
    const missing = await run('delete', name, '--yes');
    expect(missing.code).toBe(3);
    expect(missing.stderr).toContain(`no cursor is named "${name}"`);
    expect((await run('reset', name, '--to', 'yesterday', '--yes')).code).toBe(2);
  }, 60_000);

  test('a running reader continues from where its cursor was reset to', async () => {
    const name = cursorName();
    const topic = `reset.${name}`;
    const [id] = await enqueue(db, db.pool, { topic });
    const reader = await collect(db, { name, topics: [topic] });
    await waitFor(() => reader.ids.length === 1, { what: 'it' });
    await db.query(`SELECT ${db.quoted}.reset_cursor($1, 'beginning')`, [name]);
    await waitFor(() => reader.ids.length === 2, { what: 'it again' });
    expect(reader.ids).toEqual([id, id]);
  });
});

test('N4 a standby is refused, because its snapshots miss running transactions', async () => {
  const settings = { fsync: 'off', hot_standby: 'on' };
  const server = await startPostgres({ settings, ...programsOf(inject('postgresMajor')) });
  onTestFinished(() => server.remove());
  await migrateUp({ url: server.url, schema: db.schema });
  const options = { name: 'copy', database: { url: server.url, schema: db.schema } };
  const subscription = await subscribe(options, () => {});
  await subscription.stop();
  await server.stop();

  const copy = `${server.dataDirectory}-standby`;
  cpSync(server.dataDirectory, copy, { recursive: true, preserveTimestamps: true });
  onTestFinished(() => rmSync(copy, { recursive: true, force: true }));
  writeFileSync(path.join(copy, 'standby.signal'), '');
  rmSync(path.join(copy, 'postmaster.pid'), { force: true });
  makeOwned(server.dataDirectory, copy);
  const standby = await startPostgres({
    dataDirectory: copy,
    settings,
    ...programsOf(inject('postgresMajor')),
  });
  onTestFinished(() => standby.remove());
  const database = { url: standby.url, schema: db.schema };
  // no startup wait, which is for a standby that is being promoted
  const atOnce = { ...options, database, startupWaitMs: 0 };
  await expect(subscribe(atOnce, () => {})).rejects.toThrow(/this server is a standby/);
  await expect(
    queryOnce(standby.url, `SELECT * FROM ${db.quoted}.open_window('3:3:')`),
  ).rejects.toThrow(/this server is a standby/);
}, 60_000);

/** As root, copied files belong to root; the server runs as another user. */
function makeOwned(original: string, copy: string): void {
  const { uid, gid, mode } = statSync(original);
  chmodSync(copy, mode);
  for (const name of ['', ...readdirSync(copy, { recursive: true, encoding: 'utf8' })])
    chownSync(path.join(copy, name), uid, gid);
}

async function queryOnce(url: string, sql: string): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return await client.query(sql);
  } finally {
    await client.end();
  }
}
