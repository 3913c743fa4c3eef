// Set-up for cursor tests: producers whose transactions overlap, and a subscription that keeps what it received.

import type pg from 'pg';
import { onTestFinished } from 'vitest';

import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import { subscribe } from '../../src/consumer/subscribe.js';
import type {
  StreamHandler,
  SubscribeOptions,
  Subscription,
} from '../../src/consumer/subscribe.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { only } from './only.js';
import { enqueueMany } from './outbox.js';
import type { Connection, MessageFields } from './outbox.js';
import { urlAs } from './logins.js';
import type { TestDatabase } from './postgres.js';

export type Collected = {
  readonly ids: string[];
  readonly messages: ClaimedMessage[];
  readonly batches: string[][];
  readonly events: RelayEvent[];
  readonly subscription: Subscription;
};

/**
 * Waits for a snapshot without open transactions, neither of this test nor of other tests' databases. A reader looks
 * for the messages of open transactions first, and reads nothing ahead meanwhile.
 */
export async function snapshotWithoutOpenTransactions(db: TestDatabase): Promise<string> {
  const { rows } = await db.query<{ snapshot: string }>(
    `SELECT format('%1$s:%1$s:', pg_snapshot_xmax(pg_current_snapshot())) AS snapshot`,
  );
  return only(rows).snapshot;
}

let names = 0;

export function cursorName(): string {
  names += 1;
  return `cursor-${names}`;
}

/** Subscribes until the test ends; messages are collected after the handler has returned. */
export async function collect(
  db: TestDatabase,
  options: Partial<SubscribeOptions> = {},
  handle: StreamHandler = async () => {},
): Promise<Collected> {
  const messages: ClaimedMessage[] = [];
  const batches: string[][] = [];
  const events: RelayEvent[] = [];
  const subscription = await subscribe(
    {
      name: cursorName(),
      database: { url: urlAs(db.url, 'test_relay'), schema: db.schema },
      from: 'beginning',
      pollMs: 5,
      leaseMs: 1000,
      retry: { maxAttempts: 3, baseMs: 1, maxMs: 5 },
      onEvent: (event) => events.push(event),
      ...options,
    },
    async (batch, context) => {
      await handle(batch, context);
      messages.push(...batch);
      batches.push(batch.map(({ id }) => id));
    },
  );
  onTestFinished(() => subscription.stop());
  return {
    messages,
    batches,
    events,
    subscription,
    get ids() {
      return messages.map(({ id }) => id);
    },
  };
}

export async function enqueue(
  db: TestDatabase,
  on: Connection,
  ...messages: MessageFields[]
): Promise<string[]> {
  const rows = await enqueueMany(
    db,
    on,
    messages.map((message) => ({ topic: 'user.registered', payload: {}, ...message })),
  );
  return rows.map(({ id }) => id);
}

/** Creates a message with the next sequence of its key; the key's row is locked until the transaction ends. */
export async function enqueueKeyed(
  db: TestDatabase,
  client: pg.Client,
  key: string,
): Promise<string> {
  const { rows } = await client.query<{ id: string }>(
    `WITH next AS (
       INSERT INTO public.test_streams AS s (key, sequence) VALUES ($1, 1)
       ON CONFLICT (key) DO UPDATE SET sequence = s.sequence + 1 RETURNING sequence)
     INSERT INTO ${db.quoted}.messages (bytes, id, created_at, transaction_id, sequence, namespace, topic, key, payload)
     SELECT 2, ${db.quoted}.new_id(), clock_timestamp(), pg_current_xact_id(), next.sequence, 'default', 'user.changed', $1, '{}'
       FROM next RETURNING id`,
    [key],
  );
  return only(rows).id;
}

export async function makeStreams(db: TestDatabase): Promise<void> {
  await db.query(
    'CREATE TABLE public.test_streams (key text PRIMARY KEY, sequence bigint NOT NULL)',
  );
}

/** Numbers from 0 to 1, repeatable for a seed. */
export function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
