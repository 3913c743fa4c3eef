// The proofs of the plan, each with a connection of its role. The ninth, that notifications and polling each drive
// processing alone, is in relay-wake-up.test.ts.

import { describe, expect, it } from 'vitest';

import { as, logins, rolePrefix } from '../support/logins.js';
import type { Login } from '../support/logins.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle, settleDelivered } from '../support/settling.js';

const db = testDatabase();
const denied = { code: '42501' };
const refused = { code: 'P0001' };
const everyLogin = Object.keys(logins) as Login[];

async function tables(like = '%'): Promise<string[]> {
  const { rows } = await db.query<{ name: string }>(
    `SELECT c.oid::regclass::text AS name FROM pg_class c
      WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p') AND c.relname LIKE $2 ORDER BY 1`,
    [db.quoted, like],
  );
  return rows.map((row) => row.name);
}

describe('the producer', () => {
  it('P13 P15 enqueues with a key, and neither writes nor reads any table, including the sequence allocator', async () => {
    const queue = await makeQueue(db);
    await as(db, 'test_producer', async (client) => {
      const sent = await client.query<{ id: string; sequence: string }>(
        `SELECT id, sequence FROM ${db.quoted}.enqueue($1, key => 'a')`,
        [queue.topic],
      );
      expect(only(sent.rows).sequence).toBe('1');
      for (const name of await tables()) {
        for (const statement of [
          `INSERT INTO ${name} DEFAULT VALUES`,
          `DELETE FROM ${name}`,
          `TRUNCATE ${name}`,
          `SELECT FROM ${name}`,
        ])
          await expect(client.query(statement), statement).rejects.toMatchObject(denied);
      }
      await expect(
        client.query(`SELECT ${db.quoted}.number_messages('{}')`),
        'the allocator',
      ).rejects.toMatchObject(denied);
    });
  });
});

describe('attempts', () => {
  const changes = ['UPDATE % SET tries = 9', 'DELETE FROM %', 'TRUNCATE %'];

  it.each(everyLogin)('P5 P15 %s cannot change them, nor any partition of them', async (login) => {
    await as(db, login, async (client) => {
      for (const name of await tables('attempts%'))
        for (const change of changes)
          await expect(client.query(change.replace('%', name)), name).rejects.toMatchObject(denied);
    });
  });

  it('P5 P15 the owner and a superuser are refused too, in every mode of triggers', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    await settleDelivered(db, await queue.claim());
    const client = await db.connect();
    for (const before of [
      `SET ROLE ${rolePrefix}owner`,
      'RESET ROLE',
      'SET session_replication_role = replica',
    ]) {
      await client.query(before);
      for (const name of await tables('attempts%'))
        for (const change of changes)
          await expect(client.query(change.replace('%', name)), before).rejects.toMatchObject(
            refused,
          );
    }
    expect(await queue.attempts(id)).toMatchObject([{ state: 'dispatched', tries: 1 }]);
  });

  it('P5 P15 a recorded ending is not recorded again: claim numbers are unique', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    await settleDelivered(db, await queue.claim());
    const again = db.query(
      `INSERT INTO ${db.quoted}.attempts SELECT * FROM ${db.quoted}.attempts WHERE message_id = $1`,
      [id],
    );
    await expect(again).rejects.toMatchObject({ code: '23505' });
  });
});

describe('TRUNCATE', () => {
  const guarded = ['deliveries', 'attempts', 'messages', 'leases', 'dead_letters'];

  it('P5 P15 of pending deliveries and of history fails for every role', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(3);
    for (const login of everyLogin)
      await as(db, login, async (client) => {
        for (const table of guarded)
          await expect(
            client.query(`TRUNCATE ${db.quoted}.${table}`),
            `${table} by ${login}`,
          ).rejects.toMatchObject(denied);
      });
    const client = await db.connect();
    for (const role of ['none', `${rolePrefix}owner`]) {
      await client.query(`SET ROLE ${role}`);
      for (const table of [...guarded, 'operator_actions'])
        await expect(
          client.query(`TRUNCATE ${db.quoted}.${table} CASCADE`),
          `${table} by ${role}`,
        ).rejects.toMatchObject(refused);
    }
    expect(await queue.waiting()).toHaveLength(3);
  });
});

describe('the sequence allocator', () => {
  it('P13 P15 is read by control, and by no other role, not even the auditor', async () => {
    const codes: Partial<Record<Login, string>> = {};
    for (const login of everyLogin) {
      const code = await as(db, login, (client) =>
        client.query(`SELECT FROM ${db.quoted}.keys`),
      ).then(
        () => 'read',
        (error: { code: string }) => error.code,
      );
      codes[login] = code;
    }
    const may: Login[] = ['test_control', 'test_server'];
    expect(codes).toEqual(
      Object.fromEntries(
        everyLogin.map((login) => [login, may.includes(login) ? 'read' : denied.code]),
      ),
    );
  });

  it('P13 P15 the auditor reads every other table, and every view', async () => {
    const { rows } = await db.query<{ name: string }>(
      `SELECT c.oid::regclass::text AS name FROM pg_class c
        WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
          AND c.relname NOT IN ('keys', 'tokens', 'sessions')`,
      [db.quoted],
    );
    expect(rows.length).toBeGreaterThan(25);
    await as(db, 'test_auditor', async (client) => {
      for (const { name } of rows) await client.query(`SELECT * FROM ${name}`);
      // of tokens and logins everything but their hashes
      for (const [table, column] of [
        ['tokens', 'name'],
        ['sessions', 'token'],
      ]) {
        await client.query(`SELECT ${column} FROM ${db.quoted}.${table}`);
        await expect(client.query(`SELECT hash FROM ${db.quoted}.${table}`)).rejects.toMatchObject(
          denied,
        );
      }
    });
  });
});

describe('the relay', () => {
  it('P6 P15 claims in one set-based call: its scans of the queue do not grow with the messages', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(400);
    const claimed = async (limit: number) =>
      as(db, 'test_relay', async (client) => {
        await client.query('BEGIN');
        const claim = await queue.claim({ limit, on: client });
        const { rows } = await client.query<{ table: string; scans: number; changes: number }>(
          `SELECT relname AS table, coalesce(seq_scan + idx_scan, 0)::int AS scans, (n_tup_ins + n_tup_del)::int AS changes
             FROM pg_stat_xact_user_tables WHERE schemaname = $1 AND relname IN ('deliveries', 'leases') ORDER BY 1`,
          [db.schema],
        );
        await client.query('COMMIT');
        expect(claim.rows).toHaveLength(limit);
        return rows;
      });
    const [oneRow, one] = await claimed(1);
    const [manyRows, many] = await claimed(300);
    expect(manyRows?.scans).toBe(oneRow?.scans);
    expect([oneRow?.changes, manyRows?.changes]).toEqual([1, 300]);
    expect([one?.changes, many?.changes]).toEqual([1, 1]);
  });

  it('P15 retries increase both counters, and a replay increases the claim numbers', async () => {
    const queue = await makeQueue(db, { maxAttempts: 3 });
    const [id = ''] = await queue.enqueue(1);
    for (let tries = 1; tries <= 3; tries += 1)
      await settle(db, await queue.claim(), [{ id, outcome: 'retry', retryAfterMs: 0 }]);
    await as(db, 'test_operator', (client) =>
      client.query(`SELECT ${db.quoted}.retry_dead_letters(ids => ARRAY[$1::uuid])`, [id]),
    );
    await settleDelivered(db, await queue.claim());
    const counts = (await queue.attempts(id)).map(({ claim_no, tries }) => [claim_no, tries]);
    expect(counts).toEqual([
      [1, 1],
      [2, 2],
      [3, 3],
      [4, 1],
    ]);
  });

  it('P12 P15 requeues what a dead holder left once, however often and by however many processes', async () => {
    const queue = await makeQueue(db);
    const [id = ''] = await queue.enqueue(1);
    const claim = await queue.claim();
    await db.query(
      `UPDATE ${db.quoted}.leases SET expires_at = now() - interval '1 second' WHERE id = $1`,
      [claim.leaseId],
    );
    const reap = () =>
      as(db, 'test_relay', async (client) => {
        const { rows } = await client.query<{ n: number }>(`SELECT ${db.quoted}.reap() AS n`);
        return only(rows).n;
      });
    const reaped = [...(await Promise.all([reap(), reap(), reap()])), await reap()];
    expect(reaped.toSorted((a, b) => a - b)).toEqual([0, 0, 0, 1]);
    expect(await queue.waiting()).toMatchObject([{ message_id: id, claim_no: 1 }]);
    expect(await queue.attempts(id)).toMatchObject([{ claim_no: 1, state: 'zombie_requeue' }]);
  });
});
