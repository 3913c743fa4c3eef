// Housekeeping in short transactions: each call does one batch and returns the number of rows; nothing is removed
// early.

import { randomUUID } from 'node:crypto';

import { beforeAll, beforeEach, describe, expect, it } from 'vitest';

import { expireHold, freeHold } from '../support/holds.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
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
  const pruneKeys = async (
    olderThan: string,
    batch = 1000,
    after: string[] | null = null,
  ): Promise<{ pruned: number; last: string[] | null }> => {
    const { rows } = await db.query<{ pruned: number; last: string[] | null }>(
      `SELECT * FROM ${db.quoted}.prune_dedupe_keys($1, $2, $3)`,
      [olderThan, batch, after],
    );
    return only(rows);
  };

  it('C9 N7 dedupe keys are removed after 30 days at the earliest, in batches', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.dedupe_keys (message_id, namespace, topic, dedupe_key) SELECT ${db.quoted}.id_at(now() - age), 'default', 'old', age::text
         FROM unnest(ARRAY[interval '29 days', '31 days', '32 days', '33 days']) age`,
    );
    const prune = async () => (await pruneKeys('30 days', 2)).pruned;
    expect([await prune(), await prune(), await prune()]).toEqual([2, 1, 0]);
    const { rows } = await db.query(
      `SELECT dedupe_key FROM ${db.quoted}.dedupe_keys WHERE topic = 'old'`,
    );
    expect(rows).toEqual([{ dedupe_key: '29 days' }]);
    await expect(pruneKeys('29 days')).rejects.toThrow(/p_older_than is 29 days: .* from 30 days/);
  });

  it('C9 M3 the dedupe key of a pending, leased, dead or unrouted message stays, however old it is', async () => {
    const own = await makeQueue(db);
    const places = ['deliveries', 'leases', 'dead_letters', 'unrouted_messages', 'ended'] as const;
    const { rows } = await db.query<{ id: string }>(
      `SELECT ${db.quoted}.id_at(now() - interval '60 days' + n * interval '5 minutes') AS id FROM generate_series(1, 11) n`,
    );
    const [{ id: later } = { id: '' }] = rows.splice(10);
    // two of each, alternating, so that kept rows lie between removed ones
    const place = rows.map(({ id }, n) => ({ id, place: places[n % places.length] ?? 'ended' }));
    const lie = (name: string) => place.filter((row) => row.place === name).map(({ id }) => id);
    await db.query(
      `INSERT INTO ${db.quoted}.dedupe_keys (message_id, namespace, topic, dedupe_key) SELECT id, 'default', 'old', id::text FROM unnest($1::uuid[]) id`,
      [rows.map(({ id }) => id)],
    );
    await db.query(
      `INSERT INTO ${db.quoted}.deliveries (message_id, available_at, bytes, destination_id, namespace)
       SELECT id, now() + interval '1 day', 1, $2, 'default' FROM unnest($1::uuid[]) id`,
      [lie('deliveries'), own.id],
    );
    await db.query(
      `INSERT INTO ${db.quoted}.leases (id, relay_id, claimed_at, expires_at, duration, remaining, destination_id,
              quarantined, message_ids, claim_nos, tries)
       VALUES (gen_random_uuid(), gen_random_uuid(), now(), now() + interval '1 hour', '1 hour', 2, $2, false,
               $1, '{1,1}', '{1,1}')`,
      [lie('leases'), own.id],
    );
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason)
       SELECT id, $2, now(), 1, 1, 'rejected' FROM unnest($1::uuid[]) id`,
      [lie('dead_letters'), own.id],
    );
    await db.query(
      `INSERT INTO ${db.quoted}.unrouted_messages SELECT id FROM unnest($1::uuid[]) id`,
      [lie('unrouted_messages')],
    );
    const [first = '', second = ''] = lie('ended');
    const at = (id: string) => ['old', 'default', id];
    expect(await pruneKeys('30 days', 1)).toEqual({ pruned: 1, last: at(first) });
    expect(await pruneKeys('30 days', 1, at(later)), 'after the slot of the last one').toEqual({
      pruned: 0,
      last: at(later),
    });
    expect(await pruneKeys('30 days', 1, at(first))).toEqual({ pruned: 1, last: at(second) });
    expect(await pruneKeys('30 days')).toEqual({ pruned: 0, last: null });
    const kept = await db.query<{ id: string }>(
      `SELECT message_id AS id FROM ${db.quoted}.dedupe_keys WHERE message_id = ANY ($1) ORDER BY 1`,
      [rows.map(({ id }) => id)],
    );
    expect(kept.rows.map(({ id }) => id)).toEqual(
      place.filter((row) => row.place !== 'ended').map(({ id }) => id),
    );
    await db.query(`DELETE FROM ${db.quoted}.unrouted_messages WHERE message_id = ANY ($1)`, [
      lie('unrouted_messages'),
    ]);
    expect((await pruneKeys('30 days')).pruned, 'once they are settled').toBe(2);
  });

  it('M11 N7 the inbox forgets after 30 days at the earliest, in batches', async () => {
    await db.query(
      `INSERT INTO ${db.quoted}.inbox SELECT 'billing', age::text, now() - age
         FROM unnest(ARRAY[interval '29 days', '31 days', '32 days', '33 days']) age`,
    );
    const prune = () => call(`prune_inbox('30 days', 2)`);
    expect([await prune(), await prune(), await prune()]).toEqual([2, 1, 0]);
    const { rows } = await db.query(`SELECT dedupe_key FROM ${db.quoted}.inbox`);
    expect(rows).toEqual([{ dedupe_key: '29 days' }]);
    await expect(call(`prune_inbox('29 days')`)).rejects.toThrow(/at least 30 days/);
  });

  it('C9 N7 dead letters are removed only if a retention is set for them, and this is recorded', async () => {
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

  describe('a daily task', () => {
    beforeEach(async () => {
      await db.query(
        `UPDATE ${db.quoted}.maintenance_runs SET done_at = '-infinity' WHERE task = 'retention'`,
      );
      await freeHold(db, 'retention');
    });
    const begin = async (): Promise<string | null> => {
      const { rows } = await db.query<{ token: string | null }>(
        `SELECT ${db.quoted}.begin_maintenance(now() - interval '1 hour', $1, 60000) AS token`,
        [randomUUID()],
      );
      return only(rows).token;
    };
    const answer = async (sql: string, token: string | null): Promise<unknown> => {
      const { rows } = await db.query<{ answer: boolean }>(`SELECT ${db.quoted}.${sql} AS answer`, [
        token,
      ]);
      return only(rows).answer;
    };
    const renew = (token: string | null) => answer(`renew_hold('retention', $1)`, token);
    const end = (token: string | null) => answer('end_maintenance($1)', token);

    it('C9 is run by one of many processes at a time, which can extend its hold, and is due again the next day', async () => {
      const ask = async () => {
        const begun = await Promise.all(Array.from({ length: 6 }, begin));
        return begun.filter((token) => token !== null);
      };
      const token = only(await ask());
      expect(await ask(), 'the others skip it while one runs it').toEqual([]);
      expect(await renew(token)).toBe(true);
      expect(await end(token)).toBe(true);
      expect(await ask(), 'done for today').toEqual([]);
      await db.query(`UPDATE ${db.quoted}.maintenance_runs SET done_at = now() - interval '1 day'`);
      expect(await ask(), 'the next day').toHaveLength(1);
    });

    it('C9 is taken over when its holder died in the middle, and is done when the successor is done', async () => {
      const died = await begin();
      await expireHold(db, 'retention');
      const heir = await begin();
      expect(heir).not.toBeNull();
      expect(await renew(died)).toBe(false);
      expect(await end(died)).toBe(false);
      expect(await begin(), 'while the successor runs it').toBeNull();
      expect(await renew(heir), 'another process cannot mark it as done').toBe(true);
      expect(await end(heir)).toBe(true);
      expect(await begin()).toBeNull();
    });
  });
});
