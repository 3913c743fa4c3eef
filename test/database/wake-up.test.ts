// The doorbell rings only when a relay listens and none is awake, and the race between falling asleep and a
// late commit is closed.

import { randomUUID } from 'node:crypto';

import type pg from 'pg';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';

import { only } from '../support/only.js';
import { enqueueMany, makeQueue } from '../support/outbox.js';
import type { Connection, Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { settle } from '../support/settling.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
let queue: Queue;
let listener: pg.Client;
let rung: string[];

beforeEach(async () => {
  queue = await makeQueue(db);
  listener = await db.connect();
  rung = [];
  listener.on('notification', (notification) => rung.push(notification.payload ?? ''));
  const { rows } = await db.query<{ channel: string }>(
    `SELECT ${db.quoted}.doorbell_channel() AS channel`,
  );
  await listener.query(`LISTEN ${listener.escapeIdentifier(only(rows).channel)}`);
});

afterEach(() => listener.end());

/** What rang since the last time: a notification of a commit is delivered before a later answer. */
async function heard(): Promise<string[]> {
  await db.query('SELECT 1');
  await listener.query('SELECT 1');
  return rung.splice(0);
}

async function stayAwake(
  relayId: string,
  { awakeMs, listeningMs }: { awakeMs: number; listeningMs: number },
): Promise<void> {
  await db.query(`SELECT ${db.quoted}.stay_awake($1, $2, $3, $4)`, [
    relayId,
    [queue.id],
    awakeMs,
    listeningMs,
  ]);
}

const asleep = { awakeMs: 0, listeningMs: 60_000 };
const awake = { awakeMs: 60_000, listeningMs: 60_000 };

async function enqueueOn(client: Connection): Promise<void> {
  await enqueueMany(db, client, [{ topic: queue.topic }, { topic: queue.topic }]);
}

describe('the bell', () => {
  it('P7 rings once per statement, with the destination, when a relay sleeps and listens', async () => {
    await stayAwake(randomUUID(), asleep);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 rings at the commit and not before', async () => {
    await stayAwake(randomUUID(), asleep);
    const client = await db.connect();
    await client.query('BEGIN');
    await enqueueOn(client);
    expect(await heard()).toEqual([]);
    await client.query('COMMIT');
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 is silent when nobody listens, and when the listener has not been heard of for long', async () => {
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
    await stayAwake(randomUUID(), { awakeMs: 0, listeningMs: 0 });
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
    await stayAwake(randomUUID(), asleep);
    await db.query(`UPDATE ${db.quoted}.doorbells SET listening_until = clock_timestamp()`);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
  });

  it('P7 is silent while any relay of the destination is awake, and rings when it has gone', async () => {
    await stayAwake(randomUUID(), asleep);
    const other = randomUUID();
    await stayAwake(other, awake);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
    await db.query(`SELECT ${db.quoted}.sign_off($1)`, [other]);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 a relay that is awake for another destination silences nothing', async () => {
    const other = await makeQueue(db);
    await stayAwake(randomUUID(), asleep);
    await db.query(`SELECT ${db.quoted}.stay_awake($1, $2, 60000, 60000)`, [
      randomUUID(),
      [other.id],
    ]);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 rings under REPEATABLE READ even if a relay seemed awake', async () => {
    await stayAwake(randomUUID(), awake);
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await enqueueOn(client);
    await client.query('COMMIT');
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 can be switched off for a producer that prepares its transaction', async () => {
    await stayAwake(randomUUID(), asleep);
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SET LOCAL waybill.doorbell = 'off'`);
    await enqueueOn(client);
    await client.query('COMMIT');
    expect(await heard()).toEqual([]);
    await enqueueOn(client);
    expect(await heard(), 'on again after the transaction').toEqual([String(queue.id)]);
  });

  it('P7 W5 rings for replays, hurried retries and resumed destinations too', async () => {
    await stayAwake(randomUUID(), asleep);
    const id = await queue.enqueueOne();
    expect(await heard()).toHaveLength(1);
    const claim = await queue.claim();
    await settle(db, claim, [{ id, outcome: 'retry', retryAfterMs: 60_000 }]);
    expect(await heard(), 'a retry, which another relay may be the one to send').toHaveLength(1);
    await db.query(`SELECT ${db.quoted}.retry_now($1)`, [queue.name]);
    expect(await heard(), 'retry_now').toEqual([String(queue.id)]);
    await queue.kill(id);
    await heard();
    await db.query(`SELECT ${db.quoted}.retry_dead_letters($1)`, [queue.name]);
    expect(await heard(), 'retry_dead_letters').toEqual([String(queue.id)]);
    await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
    expect(await heard(), 'pause').toEqual([]);
    await db.query(`SELECT ${db.quoted}.set_paused($1, false)`, [queue.name]);
    expect(await heard(), 'resume').toEqual([String(queue.id)]);
  });

  it('P7 doorbells of relays that died awake are cleared, whoever clears them learns where, and the others hear a ring', async () => {
    const died = randomUUID();
    await stayAwake(died, awake);
    await stayAwake(randomUUID(), asleep);
    const clear = async (): Promise<number[]> => {
      const { rows } = await db.query<{ ids: number[] }>(
        `SELECT ${db.quoted}.clear_doorbells() AS ids`,
      );
      return only(rows).ids;
    };
    await clear();
    await db.query(
      `UPDATE ${db.quoted}.doorbells SET awake_until = clock_timestamp(), listening_until = clock_timestamp()
        WHERE relay_id = $1`,
      [died],
    );
    expect(await clear()).toEqual([queue.id]);
    expect(await clear()).toEqual([]);
    expect(await heard(), 'for what may have been missed').toEqual([String(queue.id)]);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });
});

describe('a relay that cannot hear', () => {
  const doorbells = async (): Promise<pg.QueryResultRow[]> => {
    const { rows } = await db.query<pg.QueryResultRow>(
      `SELECT relay_id FROM ${db.quoted}.doorbells WHERE destination_id = $1`,
      [queue.id],
    );
    return rows;
  };

  it('P7 leaves nothing behind when it dies asleep: it has no doorbell then', async () => {
    const deaf = randomUUID();
    await stayAwake(deaf, { awakeMs: 60_000, listeningMs: 0 });
    expect(await doorbells(), 'awake, it silences the bell').toEqual([{ relay_id: deaf }]);
    await stayAwake(deaf, { awakeMs: 0, listeningMs: 0 });
    expect(await doorbells()).toEqual([]);
    await stayAwake(deaf, asleep);
    expect(await doorbells(), 'it hears again').toEqual([{ relay_id: deaf }]);
  });

  it('P7 is cleared away when it dies awake', async () => {
    await stayAwake(randomUUID(), { awakeMs: 60_000, listeningMs: 0 });
    await db.query(
      `UPDATE ${db.quoted}.doorbells SET awake_until = clock_timestamp() WHERE destination_id = $1`,
      [queue.id],
    );
    await db.query(`SELECT ${db.quoted}.clear_doorbells()`);
    expect(await doorbells()).toEqual([]);
  });

  it('P7 silences nobody by falling asleep: another that listens is rung', async () => {
    const deaf = randomUUID();
    await stayAwake(randomUUID(), asleep);
    await stayAwake(deaf, { awakeMs: 60_000, listeningMs: 0 });
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
    await stayAwake(deaf, { awakeMs: 0, listeningMs: 0 });
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });
});

describe('falling asleep', { timeout: 90_000 }, () => {
  const nextTransaction = async (): Promise<string> => {
    const { rows } = await db.query<{ next: string }>(
      `SELECT ${db.quoted}.next_transaction()::text AS next`,
    );
    return only(rows).next;
  };
  const sleepIsSafe = async (since: string): Promise<boolean> => {
    const { rows } = await db.query<{ safe: boolean }>(
      `SELECT ${db.quoted}.sleep_is_safe($1::text::xid8) AS safe`,
      [since],
    );
    return only(rows).safe;
  };
  // transactions of the other test files, in other databases of the server, come and go
  const untilSafe = (since: string): Promise<boolean> =>
    waitFor(() => sleepIsSafe(since), { what: 'sleep to be safe', timeoutMs: 60_000 });

  it.each(['COMMIT', 'ROLLBACK'])(
    'P7 sleep is unsafe until a producer that saw the relay awake has ended by %s',
    async (ending) => {
      const relayId = randomUUID();
      await stayAwake(relayId, awake);
      const producer = await db.connect();
      await producer.query('BEGIN');
      await enqueueOn(producer);
      await stayAwake(relayId, asleep);
      const since = await nextTransaction();
      expect(await sleepIsSafe(since)).toBe(false);
      await producer.query(ending);
      expect(await heard(), 'it saw the relay awake').toEqual([]);
      await untilSafe(since);
      expect((await queue.claim()).ids).toHaveLength(ending === 'COMMIT' ? 2 : 0);
    },
  );

  it('P7 a producer that begins after the relay fell asleep rings and is not waited for', async () => {
    await stayAwake(randomUUID(), asleep);
    const since = await nextTransaction();
    const producer = await db.connect();
    await producer.query('BEGIN');
    await enqueueOn(producer);
    await untilSafe(since);
    await producer.query('COMMIT');
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 an old reader that has written nothing does not keep a relay from sleeping', async () => {
    const reader = await db.connect();
    await reader.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await reader.query('SELECT count(*) FROM pg_class');
    await stayAwake(randomUUID(), asleep);
    await untilSafe(await nextTransaction());
    await reader.query('COMMIT');
  });

  it('P7 a relay that sleeps can ask when the next delivery becomes due', async () => {
    const nextDue = async (): Promise<Date | null> => {
      const { rows } = await db.query<{ due_at: Date }>(
        `SELECT due_at FROM ${db.quoted}.next_due() WHERE destination_id = $1`,
        [queue.id],
      );
      return rows[0]?.due_at ?? null;
    };
    expect(await nextDue()).toBeNull();
    const due = ['2031-01-02T00:00:00.000Z', '2031-01-01T00:00:00.000Z'];
    await queue.enqueueAll(due.map((availableAt) => ({ availableAt })));
    expect((await nextDue())?.toISOString()).toBe(due[1]);
  });
});
