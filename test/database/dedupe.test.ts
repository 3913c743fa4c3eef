// At most one message per namespace, tenant, topic and dedupe key, decided by the database alone: also in one batch,
// between racing transactions, and whatever happened to the first message.

import type pg from 'pg';
import { beforeAll, describe, expect, it } from 'vitest';

import { backendId, waitUntilBlocked } from '../support/locks.js';
import { as } from '../support/logins.js';
import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import type { EnqueuedRow, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { ageMessage, pruneNow } from '../support/retention.js';
import { settleDelivered } from '../support/settling.js';

const db = testDatabase();
let queue: Queue;

beforeAll(async () => {
  queue = await makeQueue(db);
});

async function enqueueOn(client: pg.Client, dedupeKey: string): Promise<EnqueuedRow> {
  return only(await enqueueMany(db, client, [{ topic: queue.topic, dedupeKey }]));
}

async function idsOf(dedupeKey: string): Promise<string[]> {
  const { rows } = await db.query<{ id: string }>(
    `SELECT id FROM ${db.quoted}.messages WHERE dedupe_key = $1`,
    [dedupeKey],
  );
  return rows.map((row) => row.id);
}

describe('one producer', () => {
  it('M3 a second enqueue returns the first id and inserts nothing', async () => {
    const client = await db.connect();
    const first = await enqueueOn(client, 'twice');
    const second = await enqueueOn(client, 'twice');
    expect(first.duplicate).toBe(false);
    expect(second).toMatchObject({ id: first.id, duplicate: true });
    expect(await idsOf('twice')).toEqual([first.id]);
    const waiting = (await queue.waiting()).filter((row) => row.message_id === first.id);
    expect(waiting).toHaveLength(1);
  });

  it('C4 M3 looks keys up by the primary key, also while the table has no statistics', async () => {
    await db.inTransaction(async (client) => {
      for (const batch of [1, 2, 3])
        await enqueueMany(
          db,
          client,
          Array.from({ length: 100 }, (_, n) => ({
            topic: queue.topic,
            dedupeKey: `many-${batch}-${n}`,
          })),
        );
      const { rows } = await client.query<{ scans: number }>(
        'SELECT pg_stat_get_xact_numscans(to_regclass($1))::int AS scans',
        [`${db.quoted}.dedupe_keys_by_age`],
      );
      expect(only(rows).scans).toBe(0);
    });
  });

  it.each(['one by one', 'in one batch'])(
    'M3 M4 the same key of another tenant, or of none, is another key (%s)',
    async (how) => {
      const dedupeKey = `glob/ex/${how}`;
      const messages = [{ tenantId: 'glob' }, { tenantId: 'glob/ex' }, {}].flatMap((tenant) =>
        [{}, { key: 'a' }].map((key) => ({
          topic: queue.topic,
          dedupeKey: `${dedupeKey}/${Object.keys(key).length}`,
          ...tenant,
          ...key,
        })),
      );
      const enqueue = async () =>
        how === 'in one batch'
          ? enqueueMany(db, db.pool, messages)
          : (await Promise.all(messages.map((one) => enqueueMany(db, db.pool, [one])))).flat();
      const first = await enqueue();
      expect(first.map(({ duplicate }) => duplicate)).toEqual(messages.map(() => false));
      expect(new Set(first.map(({ id }) => id)).size).toBe(6);
      // each gets the id of its own message
      const again = await enqueue();
      expect(again).toEqual(first.map((row) => ({ ...row, duplicate: true })));
    },
  );

  it('M3 duplicates inside one batch have the id of the first of them, in order', async () => {
    const batch = ['b', undefined, 'a', 'b', 'a', undefined, 'b'].map((dedupeKey, n) => ({
      topic: queue.topic,
      payload: n,
      ...(dedupeKey !== undefined && { dedupeKey: `batch-${dedupeKey}` }),
    }));
    const rows = await enqueueMany(db, db.pool, batch);
    expect(rows.map((row) => row.duplicate)).toEqual([
      false,
      false,
      false,
      true,
      true,
      false,
      true,
    ]);
    expect(rows[3]?.id).toBe(rows[0]?.id);
    expect(rows[6]?.id).toBe(rows[0]?.id);
    expect(rows[4]?.id).toBe(rows[2]?.id);
    const { rows: kept } = await db.query<{ payload: number }>(
      `SELECT payload FROM ${db.quoted}.messages WHERE id = ANY ($1) ORDER BY payload`,
      [rows.map((row) => row.id)],
    );
    expect(kept.map((row) => row.payload)).toEqual([0, 1, 2, 5]);
  });

  it('M3 P2 a duplicate returns the sequence of the first, whatever key it has itself', async () => {
    const message = { topic: queue.topic, dedupeKey: 'numbered', namespace: 'numbered' };
    const [first] = await enqueueMany(db, db.pool, [{ ...message, key: 'k' }]);
    expect(first).toMatchObject({ sequence: '1', duplicate: false });
    const repeats = [message, { ...message, key: 'k' }, { ...message, key: 'other' }];
    for (const repeat of repeats)
      expect(await enqueueMany(db, db.pool, [repeat])).toEqual([{ ...first, duplicate: true }]);
    const plain = { ...message, dedupeKey: 'plain' };
    await enqueueMany(db, db.pool, [plain]);
    expect(await enqueueMany(db, db.pool, [{ ...plain, key: 'k' }])).toMatchObject([
      { sequence: null, duplicate: true },
    ]);
  });

  it('M3 the same key under another topic or namespace is another message', async () => {
    const other = await makeQueue(db);
    const rows = await enqueueMany(db, db.pool, [
      { topic: queue.topic, dedupeKey: 'same' },
      { topic: other.topic, dedupeKey: 'same' },
      { topic: queue.topic, dedupeKey: 'same', namespace: 'elsewhere' },
      { topic: queue.topic, dedupeKey: 'Same' },
      { topic: queue.topic, dedupeKey: 'same', namespace: 'default' },
    ]);
    expect(rows.map((row) => row.duplicate)).toEqual([false, false, false, false, true]);
    expect(new Set(rows.map((row) => row.id)).size).toBe(4);
  });

  it('P3 a message is recognised while pending, in flight, delivered, and dead', async () => {
    const own = await makeQueue(db, { maxAttempts: 1 });
    const again = async (): Promise<EnqueuedRow> =>
      only(await enqueueMany(db, db.pool, [{ topic: own.topic, dedupeKey: 'seen' }]));
    const { id } = await again();
    const duplicate = { id, sequence: null, duplicate: true };
    expect(await again(), 'pending').toEqual(duplicate);
    const claim = await own.claimOne();
    expect(await again(), 'in flight').toEqual(duplicate);
    await settleDelivered(db, claim);
    expect(await again(), 'delivered').toEqual(duplicate);
    expect(await own.waiting()).toEqual([]);

    const dead = await own.enqueueOne({ dedupeKey: 'dead' });
    await own.kill(dead);
    const repeat = only(await enqueueMany(db, db.pool, [{ topic: own.topic, dedupeKey: 'dead' }]));
    expect(repeat, 'dead').toEqual({ id: dead, sequence: null, duplicate: true });
  });
});

describe('a repeat after the first message has expired', () => {
  /** The documented look-up, as a reader. */
  async function statusOf(dedupeKey: string, topic: string): Promise<object[]> {
    return as(db, 'test_control', async (client) => {
      const { rows } = await client.query<object>(
        `SELECT k.message_id AS id, k.sequence, s.destination, coalesce(s.status, 'ended') AS status
           FROM ${db.quoted}.dedupe_keys k
           LEFT JOIN ${db.quoted}.message_status s ON s.message_id = k.message_id
          WHERE k.namespace = 'default' AND k.tenant_id = '' AND k.topic = $2 AND k.dedupe_key = $1`,
        [dedupeKey, topic],
      );
      return rows;
    });
  }

  it('P18 P3 M3 gets its id and sequence, and its status can be read for as long as its attempts are kept', async () => {
    const own = await makeQueue(db);
    await db.query(
      `INSERT INTO ${db.quoted}.retention_floors (topic, attempts_days, dedupe_keys_days) VALUES ($1, 400, 'infinity')`,
      [own.topic],
    );
    const enqueue = async (key: object): Promise<EnqueuedRow> =>
      only(await enqueueMany(db, db.pool, [{ topic: own.topic, dedupeKey: 'paid', ...key }]));
    await enqueueMany(db, db.pool, [{ topic: own.topic, key: 'participant' }]);
    const first = await enqueue({ key: 'participant' });
    expect(first.sequence).toBe('2');
    await settleDelivered(db, await own.claimOne());
    await settleDelivered(db, await own.claimOne());
    const id = await ageMessage(db, first.id, 100);
    await pruneNow(db, { messagesDays: 1, attemptsDays: 1 }, 'test_maintenance');
    expect(await idsOf('paid'), 'the message is gone').toEqual([]);

    for (const repeat of [{ key: 'participant' }, { key: 'another' }, {}])
      expect(await enqueue(repeat)).toEqual({ id, sequence: '2', duplicate: true });
    expect(await idsOf('paid')).toEqual([]);
    const found = { id, sequence: '2', destination: own.name, status: 'delivered' };
    expect(await statusOf('paid', own.topic)).toEqual([found]);

    await db.query(`UPDATE ${db.quoted}.retention_floors SET attempts_days = 1`);
    await pruneNow(db, { messagesDays: 1, attemptsDays: 1 }, 'test_maintenance');
    expect(await enqueue({})).toEqual({ id, sequence: '2', duplicate: true });
    expect(await statusOf('paid', own.topic), 'its attempts are gone, too').toEqual([
      { ...found, destination: null, status: 'ended' },
    ]);
  });
});

describe('two producers that race', () => {
  async function race(dedupeKey: string, end: 'COMMIT' | 'ROLLBACK') {
    const [winner, loser] = await Promise.all([db.connect(), db.connect()]);
    await winner.query('BEGIN');
    await loser.query('BEGIN');
    const first = await enqueueOn(winner, dedupeKey);
    const backend = await backendId(loser);
    const pending = enqueueOn(loser, dedupeKey);
    await waitUntilBlocked(db, backend);
    await winner.query(end);
    const second = await pending;
    await loser.query('COMMIT');
    return { first, second };
  }

  it('M3 P3 the loser waits, and gets the first id when the winner commits', async () => {
    const { first, second } = await race('race-commit', 'COMMIT');
    expect(second).toEqual({ id: first.id, sequence: null, duplicate: true });
    expect(await idsOf('race-commit')).toEqual([first.id]);
  });

  it('M3 P3 the second inserts when the first rolls back', async () => {
    const { first, second } = await race('race-rollback', 'ROLLBACK');
    expect(second.duplicate).toBe(false);
    expect(second.id).not.toBe(first.id);
    expect(await idsOf('race-rollback')).toEqual([second.id]);
  });

  it('P3 under REPEATABLE READ the loser fails to serialise instead of inserting twice', async () => {
    const [winner, loser] = await Promise.all([db.connect(), db.connect()]);
    await loser.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await loser.query('SELECT 1 FROM pg_class LIMIT 1');
    const first = await enqueueOn(winner, 'race-snapshot');
    await expect(enqueueOn(loser, 'race-snapshot')).rejects.toMatchObject({ code: '40001' });
    expect(await idsOf('race-snapshot')).toEqual([first.id]);
  });

  it('M3 batches with the same keys in opposite order never deadlock and insert each key once', async () => {
    const keys = Array.from({ length: 50 }, (_, n) => `crossing-${n}`);
    const clients = await Promise.all([1, 2, 3, 4].map(() => db.connect()));
    const rounds = clients.map((client, n) =>
      enqueueMany(
        db,
        client,
        (n % 2 === 0 ? keys : keys.toReversed()).map((dedupeKey) => ({
          topic: queue.topic,
          dedupeKey,
        })),
      ),
    );
    const answers = (await Promise.all(rounds)).flat();
    expect(answers.filter((row) => !row.duplicate)).toHaveLength(keys.length);
    expect(new Set(answers.map((row) => row.id)).size).toBe(keys.length);
  });
});
