// Wake-up notifications are sent only when a relay listens and none is active, and a commit that races with a relay
// becoming idle is not missed.

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
let notifications: string[];

beforeEach(async () => {
  queue = await makeQueue(db);
  listener = await db.connect();
  notifications = [];
  listener.on('notification', (notification) => notifications.push(notification.payload ?? ''));
  const { rows } = await db.query<{ channel: string }>(
    `SELECT ${db.quoted}.notification_channel() AS channel`,
  );
  await listener.query(`LISTEN ${listener.escapeIdentifier(only(rows).channel)}`);
});

afterEach(() => listener.end());

/** The notifications since the last call: a notification of a commit arrives before a later response. */
async function heard(): Promise<string[]> {
  await db.query('SELECT 1');
  await listener.query('SELECT 1');
  return notifications.splice(0);
}

async function registerListener(
  relayId: string,
  { activeMs, listeningMs }: { activeMs: number; listeningMs: number },
  client: Connection = db.pool,
): Promise<void> {
  await client.query(`SELECT ${db.quoted}.register_listener($1, $2, $3, $4)`, [
    relayId,
    [queue.id],
    activeMs,
    listeningMs,
  ]);
}

const idle = { activeMs: 0, listeningMs: 60_000 };
const active = { activeMs: 60_000, listeningMs: 60_000 };

async function enqueueOn(client: Connection): Promise<void> {
  await enqueueMany(db, client, [{ topic: queue.topic }, { topic: queue.topic }]);
}

describe('the notification', () => {
  it('P7 is sent once per statement, with the destination, when an idle relay listens', async () => {
    await registerListener(randomUUID(), idle);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 is sent at the commit and not before', async () => {
    await registerListener(randomUUID(), idle);
    const client = await db.connect();
    await client.query('BEGIN');
    await enqueueOn(client);
    expect(await heard()).toEqual([]);
    await client.query('COMMIT');
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 is not sent when no relay listens, or when the listener has not reported for long', async () => {
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
    await registerListener(randomUUID(), { activeMs: 0, listeningMs: 0 });
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
    await registerListener(randomUUID(), idle);
    await db.query(`UPDATE ${db.quoted}.listeners SET listening_until = clock_timestamp()`);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
  });

  it('P7 is not sent while any relay of the destination is active, and is sent when that has gone', async () => {
    await registerListener(randomUUID(), idle);
    const other = randomUUID();
    await registerListener(other, active);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
    await db.query(`SELECT ${db.quoted}.sign_off($1)`, [other]);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 is sent although a relay is active for another destination', async () => {
    const other = await makeQueue(db);
    await registerListener(randomUUID(), idle);
    await db.query(`SELECT ${db.quoted}.register_listener($1, $2, 60000, 60000)`, [
      randomUUID(),
      [other.id],
    ]);
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 is sent under REPEATABLE READ even if a relay seemed active', async () => {
    await registerListener(randomUUID(), active);
    const client = await db.connect();
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await enqueueOn(client);
    await client.query('COMMIT');
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 can be switched off for a producer that prepares its transaction', async () => {
    await registerListener(randomUUID(), idle);
    const client = await db.connect();
    await client.query('BEGIN');
    await client.query(`SET LOCAL waybill.notify = 'off'`);
    await enqueueOn(client);
    await client.query('COMMIT');
    expect(await heard()).toEqual([]);
    await enqueueOn(client);
    expect(await heard(), 'on again after the transaction').toEqual([String(queue.id)]);
  });

  it('P7 W5 is sent for replays, early retries and resumed destinations too', async () => {
    await registerListener(randomUUID(), idle);
    const id = await queue.enqueueOne();
    expect(await heard()).toHaveLength(1);
    const claim = await queue.claim();
    await settle(db, claim, [{ id, outcome: 'retry', retryAfterMs: 60_000 }]);
    expect(await heard(), 'a retry, which another relay may send').toHaveLength(1);
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

  it('P7 is sent after listener rows of relays that died active were removed, and the caller learns where', async () => {
    const died = randomUUID();
    await registerListener(died, active);
    await registerListener(randomUUID(), idle);
    const clear = async (): Promise<number[]> => {
      const { rows } = await db.query<{ ids: number[] }>(
        `SELECT ${db.quoted}.remove_stale_listeners() AS ids`,
      );
      return only(rows).ids;
    };
    await clear();
    await db.query(
      `UPDATE ${db.quoted}.listeners SET active_until = clock_timestamp(), listening_until = clock_timestamp()
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

describe('a relay that cannot listen', () => {
  const listenerRows = async (): Promise<pg.QueryResultRow[]> => {
    const { rows } = await db.query<pg.QueryResultRow>(
      `SELECT relay_id FROM ${db.quoted}.listeners WHERE destination_id = $1`,
      [queue.id],
    );
    return rows;
  };

  it('P7 leaves nothing behind when it dies idle: it has no listener row then', async () => {
    const notListening = randomUUID();
    await registerListener(notListening, { activeMs: 60_000, listeningMs: 0 });
    expect(await listenerRows(), 'while active, it suppresses notifications').toEqual([
      { relay_id: notListening },
    ]);
    await registerListener(notListening, { activeMs: 0, listeningMs: 0 });
    expect(await listenerRows()).toEqual([]);
    await registerListener(notListening, idle);
    expect(await listenerRows(), 'it listens again').toEqual([{ relay_id: notListening }]);
  });

  it('P7 is removed when it dies active', async () => {
    await registerListener(randomUUID(), { activeMs: 60_000, listeningMs: 0 });
    await db.query(
      `UPDATE ${db.quoted}.listeners SET active_until = clock_timestamp() WHERE destination_id = $1`,
      [queue.id],
    );
    await db.query(`SELECT ${db.quoted}.remove_stale_listeners()`);
    expect(await listenerRows()).toEqual([]);
  });

  it('P7 suppresses no notification after it became idle: another listener is notified', async () => {
    const notListening = randomUUID();
    await registerListener(randomUUID(), idle);
    await registerListener(notListening, { activeMs: 60_000, listeningMs: 0 });
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([]);
    await registerListener(notListening, { activeMs: 0, listeningMs: 0 });
    await enqueueOn(db.pool);
    expect(await heard()).toEqual([String(queue.id)]);
  });
});

describe('becoming idle', { timeout: 90_000 }, () => {
  const nextTransaction = async (): Promise<string> => {
    const { rows } = await db.query<{ next: string }>(
      `SELECT ${db.quoted}.next_transaction()::text AS next`,
    );
    return only(rows).next;
  };
  const idleIsSafe = async (since: string): Promise<boolean> => {
    const { rows } = await db.query<{ safe: boolean }>(
      `SELECT ${db.quoted}.idle_is_safe($1::text::xid8) AS safe`,
      [since],
    );
    return only(rows).safe;
  };
  // transactions of the other test files, in other databases of the server, come and go
  const untilSafe = (since: string): Promise<boolean> =>
    waitFor(() => idleIsSafe(since), { what: 'idling to be safe', timeoutMs: 60_000 });

  it.each(['COMMIT', 'ROLLBACK'])(
    'P7 is unsafe until a producer that saw the relay active has ended by %s',
    async (ending) => {
      const relayId = randomUUID();
      await registerListener(relayId, active);
      const producer = await db.connect();
      await producer.query('BEGIN');
      await enqueueOn(producer);
      await registerListener(relayId, idle);
      const since = await nextTransaction();
      expect(await idleIsSafe(since)).toBe(false);
      await producer.query(ending);
      expect(await heard(), 'it saw the relay active').toEqual([]);
      await untilSafe(since);
      expect((await queue.claim()).ids).toHaveLength(ending === 'COMMIT' ? 2 : 0);
    },
  );

  it('P7 is unsafe while a producer runs that has the newest transaction id and saw the relay active', async () => {
    const relayId = randomUUID();
    await registerListener(relayId, active);
    const [relay, producer] = [await db.connect(), await db.connect()];
    await relay.query('BEGIN');
    await registerListener(relayId, idle, relay);
    await producer.query('BEGIN');
    await enqueueOn(producer);
    await relay.query('COMMIT');
    const since = await nextTransaction();
    expect(await idleIsSafe(since)).toBe(false);
    await producer.query('COMMIT');
    expect(await heard(), 'it saw the relay active').toEqual([]);
    await untilSafe(since);
  });

  it('P7 a producer that begins after the relay became idle sends a notification and is not awaited', async () => {
    await registerListener(randomUUID(), idle);
    const since = await nextTransaction();
    const producer = await db.connect();
    await producer.query('BEGIN');
    await enqueueOn(producer);
    await untilSafe(since);
    await producer.query('COMMIT');
    expect(await heard()).toEqual([String(queue.id)]);
  });

  it('P7 is not delayed by an old reader that has written nothing', async () => {
    const reader = await db.connect();
    await reader.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await reader.query('SELECT count(*) FROM pg_class');
    await registerListener(randomUUID(), idle);
    await untilSafe(await nextTransaction());
    await reader.query('COMMIT');
  });

  it('P7 an idle relay can ask when the next delivery becomes due', async () => {
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
