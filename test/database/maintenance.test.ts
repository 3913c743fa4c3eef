// Housekeeping in short transactions: each call does one batch and says how many rows that was; nothing goes
// before its time.

import { beforeAll, describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
let queue: Queue;

beforeAll(async () => {
  queue = await makeQueue(db);
});

describe('pruning', () => {
  const call = async (sql: string): Promise<number> => {
    const { rows } = await db.query<{ count: number }>(`SELECT ${db.quoted}.${sql} AS count`);
    return only(rows).count;
  };

  it('C9 N7 dedupe keys go after 30 days at the earliest, in batches', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.dedupe_keys SELECT ${db.quoted}.id_at(now() - age), 'default', 'old', age::text
         FROM unnest(ARRAY[interval '29 days', '31 days', '32 days', '33 days']) age`,
    );
    const prune = () => call(`prune_dedupe_keys('30 days', 2)`);
    expect([await prune(), await prune(), await prune()]).toEqual([2, 1, 0]);
    const { rows } = await db.query(
      `SELECT dedupe_key FROM ${db.quoted}.dedupe_keys WHERE topic = 'old'`,
    );
    expect(rows).toEqual([{ dedupe_key: '29 days' }]);
    await expect(call(`prune_dedupe_keys('29 days')`)).rejects.toThrow(/30 days at least/);
  });

  it('C9 N7 dead letters go only when a retention is set for them, and are recorded', async () => {
    const ids = await queue.enqueue(3);
    for (const id of ids) await queue.kill(id);
    await db.query(
      `UPDATE ${db.quoted}.dead_letters SET dead_at = now() - interval '91 days' WHERE message_id = ANY ($1)`,
      [ids.slice(0, 2)],
    );
    const prune = () => call(`prune_dead_letters('90 days', 1)`);
    expect([await prune(), await prune(), await prune()]).toEqual([1, 1, 0]);
    expect((await queue.deadLetters()).map((row) => row['message_id'] as string)).toEqual(
      ids.slice(2),
    );
    expect((await queue.attempts(ids[0] ?? '')).at(-1)).toMatchObject({ state: 'discarded' });
    const { rows } = await db.query(
      `SELECT actor, count::int FROM ${db.quoted}.operator_actions WHERE actor = 'retention'`,
    );
    expect(rows).toEqual([
      { actor: 'retention', count: 1 },
      { actor: 'retention', count: 1 },
    ]);
  });

  it('C9 unrouted messages are forgotten with their day, and not before', async () => {
    const { id } = only(await enqueueMany(db, db.pool, [{ topic: 'nobody.wants.it' }]));
    await db.query(
      `INSERT INTO ${db.quoted}.unrouted_messages SELECT ${db.quoted}.id_at(now() - interval '100 days' * n)
         FROM generate_series(1, 3) n`,
    );
    const prune = () => call('prune_unrouted(2)');
    expect([await prune(), await prune(), await prune()]).toEqual([2, 1, 0]);
    const { rows } = await db.query(`SELECT message_id FROM ${db.quoted}.unrouted_messages`);
    expect(rows).toEqual([{ message_id: id }]);
  });

  it('C9 each daily task is begun by exactly one of many, once per due time', async () => {
    const begin = async (due: string): Promise<number> => {
      const begun = await Promise.all(
        Array.from({ length: 6 }, () =>
          db.query<{ begun: boolean }>(
            `SELECT ${db.quoted}.begin_maintenance('prune', ${due}) AS begun`,
          ),
        ),
      );
      return begun.filter(({ rows }) => only(rows).begun).length;
    };
    expect(await begin(`now() - interval '1 hour'`)).toBe(1);
    expect(await begin(`now() - interval '1 hour'`)).toBe(0);
    await db.query(`UPDATE ${db.quoted}.maintenance_runs SET ran_at = now() - interval '1 day'`);
    expect(await begin(`now() - interval '1 hour'`), 'the next day').toBe(1);
  });
});
