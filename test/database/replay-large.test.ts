// The cost of a replay depends on what it sends, not on the size of the outbox: a step reads a bounded part of one
// index, and a plan of very many messages is estimated.

import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { finish, planReplay, startReplay, step } from '../support/replays.js';

const db = testDatabase();
const many = 150_000;
let queue: Queue;
let client: pg.Client;

beforeAll(async () => {
  queue = await makeQueue(db);
  client = await db.connect();
  await client.query('SET max_parallel_workers_per_gather = 0');
  await client.query(`SELECT ${db.quoted}.make_partitions(p_from => current_date - 4)`);
  // evenly over the last three days, one in fifteen thousand of another topic and tenant
  await client.query(
    `WITH past AS (
       INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, tenant_id, payload)
       SELECT 2, encode(substring(int8send((extract(epoch FROM now() - interval '3 days' * (1 - n / $1::float8)) * 1000)::bigint) FROM 3)
                || '\\x7000'::bytea || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid,
              now(), '5', 'default', CASE WHEN n % 15000 = 0 THEN 'rare' ELSE $2 END, CASE WHEN n % 15000 = 0 THEN 'acme' END, '{}'
         FROM generate_series(1, $1::float8::int) n RETURNING id)
     INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
     SELECT id, $3, 1, 1, 'dispatched', now() FROM past`,
    [many, queue.topic, queue.id],
  );
}, 120_000);

/** How many rows of messages and attempts the work reads. */
async function rowsRead(work: () => Promise<unknown>): Promise<number> {
  const count = async () => {
    const { rows } = await client.query<{ count: number }>(
      `SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::int AS count FROM pg_stat_xact_user_tables
        WHERE schemaname = $1 AND relname ~ '^(messages|attempts)_'`,
      [db.schema],
    );
    return only(rows).count;
  };
  await client.query('BEGIN');
  const before = await count();
  await work();
  const after = await count();
  await client.query('COMMIT');
  return after - before;
}

describe('with a long history', () => {
  it('M5 a plan counts up to 100,000 and estimates the rest', async () => {
    const all = await planReplay(db, queue.name, { topic: queue.topic });
    expect(all['is_exact']).toBe(false);
    expect(Number(all['messages'])).toBeGreaterThan(many * 0.98);
    expect(Number(all['messages'])).toBeLessThan(many * 1.02);
    expect(await planReplay(db, queue.name, { topic: 'rare' })).toMatchObject({
      messages: '10',
      is_exact: true,
    });
  });

  it('M5 N6 a step reads about what it sends, by topic, by tenant and from the middle', async () => {
    const middle = new Date(Date.now() - 36 * 3_600_000).toISOString();
    for (const [fields, found] of [
      [{ topic: 'rare' }, 10],
      [{ tenant_id: 'acme', since: middle }, 4],
      [{ topic: queue.topic, since: middle }, 100],
    ] as const) {
      const { replay_id: id } = await startReplay(db, queue.name, fields);
      let done = 0;
      const read = await rowsRead(async () => {
        // some are pending already, from the one before
        const { replayed, waiting } = await step(db, id, 100, client);
        done = replayed + waiting;
      });
      expect(done, JSON.stringify(fields)).toBeGreaterThanOrEqual(found);
      expect(read, JSON.stringify(fields)).toBeLessThan(15_000);
    }
  });

  it('M5 N6 a filter without its own index does not make a step longer', async () => {
    const { replay_id: id } = await startReplay(db, queue.name, { namespace: 'nowhere' });
    const read = await rowsRead(() => step(db, id, 100, client));
    expect(read).toBeLessThan(15_000);
    expect(await step(db, id, 100)).toMatchObject({ replayed: 0, wait_ms: 0, state: 'unfinished' });
  });

  it('M5 N6 a step within a minute of very many messages does not read all of them again', async () => {
    const burst = 30_000;
    await client.query(
      `WITH past AS (
         INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, namespace, topic, tenant_id, payload)
         SELECT 2, overlay(${db.quoted}.id_at(to_timestamp((slot * 65536 + 2 * n) / 1000.0))::text
                  PLACING substr(gen_random_uuid()::text, 20) FROM 20)::uuid,
                now(), '5', 'default', 'burst', 'busy', '{}'
           FROM generate_series(1, $1::int) n,
                (SELECT (extract(epoch FROM current_date - 4 + interval '12 hours') * 1000)::bigint / 65536 AS slot) x
         RETURNING id)
       INSERT INTO ${db.quoted}.attempts (message_id, destination_id, claim_no, tries, state, ended_at)
       SELECT id, $2, 1, 1, 'dispatched', now() FROM past`,
      [burst, queue.id],
    );
    for (const fields of [{ topic: 'burst' }, { tenant_id: 'busy' }]) {
      const { replay_id: id } = await startReplay(db, queue.name, fields);
      const done = await step(db, id, 100, client);
      expect(done.replayed + done.waiting).toBe(100);
      const read = await rowsRead(() => step(db, id, 100, client));
      expect(read, JSON.stringify(fields)).toBeLessThan(15_000);
      const rest = await finish(db, id, 10_000);
      expect(rest.replayed + rest.waiting).toBe(burst - 200);
    }
  });
});
