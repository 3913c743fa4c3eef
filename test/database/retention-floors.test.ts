// Retention floors: what the owner wants to be kept is kept, whatever a configuration, a relay, a role or a command says.
// Pruning runs as the role maintenance.

import { randomUUID } from 'node:crypto';

import { beforeEach, describe, expect, it } from 'vitest';

import { maintainRetention, retentionTask } from '../../src/relay/upkeep/daily-maintenance.js';
import { resolveRetention } from '../../src/relay/upkeep/retention.js';
import type { Retention } from '../../src/relay/upkeep/retention.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { defineDestination } from '../support/destinations.js';
import { as, logins } from '../support/logins.js';
import type { Login } from '../support/logins.js';
import { only } from '../support/only.js';
import { enqueueMany } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { oldMessage, partitionDays, pruneNow } from '../support/retention.js';

const db = testDatabase({ eachTestFrom: () => Promise.resolve() });

/** The shortest retention that a configuration can have. */
const shortest: Retention = {
  messagesDays: 1,
  attemptsDays: 1,
  deadLettersDays: 1,
  dedupeKeysDays: 30,
  keysDays: 30,
};

async function setFloor(columns: Record<string, string | number>): Promise<void> {
  const names = Object.keys(columns);
  await db.query(
    `INSERT INTO ${db.quoted}.retention_floors (${names.join(', ')}) VALUES (${names.map((_name, n) => `$${n + 1}`).join(', ')})`,
    Object.values(columns),
  );
}

const prune = (retention: Retention = shortest) => pruneNow(db, retention, 'test_maintenance');

async function old(table: 'messages' | 'attempts'): Promise<number[]> {
  return (await partitionDays(db, table)).filter((ago) => ago > 8);
}

async function dedupeKeys(): Promise<string[]> {
  const { rows } = await db.query<{ key: string }>(
    `SELECT topic || ' ' || dedupe_key AS key FROM ${db.quoted}.dedupe_keys ORDER BY 1`,
  );
  return rows.map(({ key }) => key);
}

async function oldKeys(topic: string, namespace: string, ages: number[]): Promise<void> {
  await db.query(
    `INSERT INTO ${db.quoted}.dedupe_keys (message_id, namespace, topic, dedupe_key)
     SELECT ${db.quoted}.id_at(now() - age * interval '1 day'), $2, $1, age::text FROM unnest($3::int[]) age`,
    [topic, namespace, ages],
  );
}

describe('days', () => {
  it('P16 C9 stay while a floor protects one of their messages, and the others go', async () => {
    await setFloor({ topic: 'payment.*', messages_days: 20, attempts_days: 'infinity' });
    await oldMessage(db, 40, 'payment.made');
    await oldMessage(db, 30, 'news.sent');
    await oldMessage(db, 15, 'payment.made');
    await oldMessage(db, 14, 'news.sent');
    await prune();
    expect(await old('messages')).toEqual([15]);
    expect(await old('attempts'), 'of payments, also without their messages').toEqual([15, 40]);
    const { rows } = await db.query(
      `SELECT DISTINCT in_use FROM ${db.quoted}.expired_partitions('1 day', '1 day') WHERE in_use LIKE '%floor%' ORDER BY 1`,
    );
    expect(rows).toEqual([
      { in_use: 'the retention floor of payment.* keeps attempts for ever' },
      { in_use: 'the retention floor of payment.* keeps messages for 20 days' },
    ]);
    await db.query(`DELETE FROM ${db.quoted}.retention_floors WHERE topic = 'payment.*'`);
    await prune();
    expect([await old('messages'), await old('attempts')]).toEqual([[], []]);
  });

  it('P16 M14 a floor of a namespace protects this namespace alone', async () => {
    await setFloor({ namespace: 'billing', messages_days: 'infinity' });
    await oldMessage(db, 40, 'usage.final', 'billing');
    await oldMessage(db, 30, 'usage.final', 'chat');
    await prune();
    expect(await old('messages')).toEqual([40]);
    expect(await old('attempts'), 'attempts stay as long as their messages').toEqual([40]);
  });

  it('P16 a floor set later protects the attempts of messages that are gone already', async () => {
    await oldMessage(db, 40, 'payment.made');
    await prune({ ...shortest, attemptsDays: 90 });
    expect([await old('messages'), await old('attempts')]).toEqual([[], [40]]);
    await setFloor({ topic: 'payment.*', attempts_days: 'infinity' });
    await prune();
    expect(await old('attempts'), 'which topics they had is unknown').toEqual([40]);
  });

  it('P16 that were detached by hand are dropped only when no floor protects them', async () => {
    await setFloor({ topic: 'payment.*', messages_days: 'infinity' });
    const id = await oldMessage(db, 40, 'payment.made');
    const { rows } = await db.query<{ partition: string }>(
      `SELECT tableoid::regclass::text AS partition FROM ${db.quoted}.messages WHERE id = $1`,
      [id],
    );
    const { partition } = only(rows);
    const table = partition.includes('.') ? partition : `${db.quoted}.${partition}`;
    await db.query(`ALTER TABLE ${db.quoted}.messages DETACH PARTITION ${table}`);
    await prune();
    // the owner's own run, too
    await pruneNow(db, shortest);
    const { rows: kept } = await db.query(`SELECT id FROM ${table}`);
    expect(kept).toEqual([{ id }]);
  });

  it.each([
    ['the owner', undefined],
    ['the role maintenance', 'test_maintenance'],
  ] as const)(
    'P16 are recorded before %s removes their messages, so that attempts stay',
    async (_who, login) => {
      await setFloor({ topic: 'payment.*', attempts_days: 60 });
      await oldMessage(db, 70, 'payment.made');
      await oldMessage(db, 50, 'payment.made');
      await oldMessage(db, 49, 'news.sent');
      await pruneNow(db, shortest, login);
      expect([await old('messages'), await old('attempts')]).toEqual([[], [50]]);
      const { rows } = await db.query(
        `SELECT (now() AT TIME ZONE 'UTC')::date - day AS ago, topics, namespaces FROM ${db.quoted}.message_days
          WHERE cardinality(topics) > 0 AND day > (now() AT TIME ZONE 'UTC')::date - 60 ORDER BY day`,
      );
      expect(rows).toContainEqual({ ago: 50, topics: ['payment.made'], namespaces: ['default'] });
    },
  );
});

describe('rows', () => {
  it('P16 M14 P3 dedupe keys stay as long as the floor of their topic and namespace says', async () => {
    await setFloor({ topic: 'payment.*', dedupe_keys_days: 'infinity' });
    await setFloor({ topic: 'usage.final', namespace: 'billing', dedupe_keys_days: 100 });
    await oldKeys('payment.made', 'default', [31, 9000]);
    await oldKeys('usage.final', 'billing', [31, 99, 101]);
    await oldKeys('usage.final', 'chat', [99]);
    await oldKeys('news.sent', 'default', [29, 31]);
    const report = await prune({ ...shortest, batchSize: 1 });
    expect(report['dedupe keys']).toMatchObject({ rows: 3 });
    expect(await dedupeKeys()).toEqual([
      'news.sent 29',
      'payment.made 31',
      'payment.made 9000',
      'usage.final 31',
      'usage.final 99',
    ]);
  });

  it('P16 P2 keys stay as long as the floor of their namespace says', async () => {
    await setFloor({ namespace: 'payments', keys_days: 'infinity' });
    await db.query(
      `INSERT INTO ${db.quoted}.keys (next_sequence, namespace, tenant_id, key, last_used_at)
       SELECT 7, n, '', 'account', now() - interval '1000 days' FROM unnest('{payments,default}'::text[]) n`,
    );
    expect((await prune())['keys']).toMatchObject({ rows: 1 });
    const { rows } = await db.query(`SELECT namespace FROM ${db.quoted}.keys`);
    expect(rows).toEqual([{ namespace: 'payments' }]);
    await expect(setFloor({ topic: 'payment.*', keys_days: 'infinity' })).rejects.toMatchObject({
      code: '23514',
    });
  });

  it('P16 dead letters stay as long as the floor of their topic says', async () => {
    await setFloor({ topic: 'payment.*', dead_letters_days: 100 });
    const destinationId = await defineDestination(db, 'graves');
    await db.query(
      `INSERT INTO ${db.quoted}.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, topic, namespace)
       SELECT ${db.quoted}.new_id(), $1, now() - ago * interval '1 day', 1, 1, 'rejected', topic, 'default'
         FROM (VALUES ('payment.made', 99), ('payment.made', 101), ('news.sent', 6), ('news.sent', 8)) d(topic, ago)`,
      [destinationId],
    );
    expect((await prune())['dead letters']).toMatchObject({ rows: 2 });
    const { rows } = await db.query(
      `SELECT topic, (now()::date - dead_at::date) AS ago FROM ${db.quoted}.dead_letters ORDER BY 2`,
    );
    expect(rows).toEqual([
      { topic: 'news.sent', ago: 6 },
      { topic: 'payment.made', ago: 99 },
    ]);
  });

  it('P16 P3 a repeat is recognised after years, whatever the configuration says', async () => {
    await setFloor({ topic: 'payment.*', dedupe_keys_days: 'infinity' });
    await oldKeys('payment.made', 'default', [3000]);
    await oldKeys('news.sent', 'default', [3000]);
    await prune();
    const repeats = await enqueueMany(db, db.pool, [
      { topic: 'payment.made', dedupeKey: '3000' },
      { topic: 'news.sent', dedupeKey: '3000' },
    ]);
    expect(repeats.map(({ duplicate }) => duplicate)).toEqual([true, false]);
  });
});

describe('a configuration below a floor', () => {
  it('P16 is reported with the floor, once in a run', async () => {
    await setFloor({ topic: 'payment.*', dedupe_keys_days: 'infinity' });
    await setFloor({ namespace: 'billing', attempts_days: 400 });
    const events: RelayEvent[] = [];
    const run = (retention: Retention) =>
      maintainRetention(
        openDatabase(db, 'test_maintenance'),
        resolveRetention({ pauseMs: 0, ...retention }),
        randomUUID(),
        (event) => void events.push(event),
      );
    await run({});
    expect(events.filter((event) => event.name === 'retention_floor')).toEqual([
      {
        name: 'retention_floor',
        floors: [
          'retention.attemptsDays is 30; the floor of * in billing keeps them for 400 days',
          'retention.dedupeKeysDays is 30; the floor of payment.* keeps them for ever',
        ],
      },
    ]);
    events.length = 0;
    await db.query(`UPDATE ${db.quoted}.maintenance_runs SET done_at = '-infinity'`);
    await run({ dedupeKeysDays: null, attemptsDays: 400 });
    expect(events.map(({ name }) => name)).not.toContain('retention_floor');
  });
});

describe('a relay without the role maintenance', () => {
  it('P16 leaves the retention to others and says so once; with the role it does it', async () => {
    await oldMessage(db, 40);
    const events: RelayEvent[] = [];
    const task = (login: Login) =>
      retentionTask(
        openDatabase(db, login),
        resolveRetention({ pauseMs: 0 }),
        randomUUID(),
        (event) => void events.push(event),
      );
    const relay = task('test_relay');
    await relay();
    await relay();
    expect(events).toEqual([{ name: 'maintenance_left' }]);
    expect(await old('messages')).toEqual([40]);
    await task('test_maintenance')();
    expect(await old('messages')).toEqual([]);
  });

  it.each([
    `remove_partition('messages_20200101', '1 day', '1 day')`,
    `prune_dedupe_keys('30 days')`,
    `prune_dead_letters('0')`,
    `forget_keys('30 days')`,
    `seal_expiry('2020-01-01', 1)`,
    `begin_maintenance(now(), gen_random_uuid(), 1)`,
    `record_day('2020-01-01')`,
  ])('P16 P13 may not call %s', async (call) => {
    for (const login of ['test_relay', 'test_operator', 'test_producer', 'test_server'] as const)
      await as(db, login, async (client) => {
        await expect(client.query(`SELECT ${db.quoted}.${call}`)).rejects.toMatchObject({
          code: '42501',
        });
      });
  });
});

describe.each(Object.keys(logins) as Login[])('%s', (login) => {
  beforeEach(() => oldMessage(db, 40));

  it('P16 P5 N8 cannot remove the memory of what was sent by any statement', async () => {
    const { rows } = await db.query<{ name: string; parent: string }>(
      `SELECT format('%I.%I', $1::text, c.relname) AS name, left(c.relname, -9) AS parent FROM pg_class c
        WHERE c.relnamespace = $2::text::regnamespace AND c.relname ~ '_[0-9]{8}$' AND c.relkind = 'r' ORDER BY c.relname LIMIT 1`,
      [db.schema, db.quoted],
    );
    const { name: partition, parent } = only(rows);
    const tables = [
      'messages',
      'attempts',
      'dedupe_keys',
      'keys',
      'retention_floors',
      'message_days',
    ];
    const statements = [
      ...[...tables.map((table) => `${db.quoted}.${table}`), partition].flatMap((table) => [
        `TRUNCATE ${table}`,
        `DELETE FROM ${table}`,
        `DROP TABLE ${table}`,
        `ALTER TABLE ${table} DISABLE TRIGGER ALL`,
      ]),
      `UPDATE ${db.quoted}.retention_floors SET dedupe_keys_days = 30`,
      `INSERT INTO ${db.quoted}.message_days VALUES (current_date - 40, 0, '{}', '{}')`,
      `ALTER TABLE ${db.quoted}.${parent} DETACH PARTITION ${partition}`,
      `ALTER TABLE ${db.quoted}.${parent} DETACH PARTITION ${partition} CONCURRENTLY`,
      `UPDATE ${db.quoted}.keys SET next_sequence = 1`,
      `SET ROLE waybill_owner`,
    ];
    await as(db, login, async (client) => {
      for (const statement of statements)
        await expect(client.query(statement), statement).rejects.toMatchObject({ code: '42501' });
    });
  });
});

it('P16 P5 nor can the owner truncate dedupe keys or sequences without removing a guard first', async () => {
  for (const table of ['dedupe_keys', 'keys'])
    await expect(db.query(`TRUNCATE ${db.quoted}.${table}`)).rejects.toMatchObject({
      code: 'P0001',
    });
});
