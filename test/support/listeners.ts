// Observes wake-ups: the notifications that are sent, and which relays listen or are active.

import { randomUUID } from 'node:crypto';

import { onTestFinished } from 'vitest';

import { only } from './only.js';
import type { TestDatabase } from './postgres.js';
import { waitLimitMs } from './relay.js';
import { waitFor } from './wait.js';

/** Collects every wake-up notification from now on, in commit order. */
export async function listen(
  db: TestDatabase,
): Promise<{ notifications: string[]; heardAll(): Promise<void> }> {
  const client = await db.connect();
  onTestFinished(() => client.end());
  const notifications: string[] = [];
  const marks = new Set<string>();
  client.on('notification', ({ payload = '' }) => {
    if (payload.startsWith('test ')) marks.add(payload);
    else notifications.push(payload);
  });
  const channel = `waybill:${db.schema}`;
  await client.query(`LISTEN ${client.escapeIdentifier(channel)}`);
  return {
    notifications,
    // notifications arrive in commit order: after the mark, no older one can still arrive
    async heardAll() {
      const mark = `test ${randomUUID()}`;
      await db.query('SELECT pg_notify($1, $2)', [channel, mark]);
      await waitFor(() => marks.has(mark), { what: 'the mark', timeoutMs: waitLimitMs });
    },
  };
}

export type ListenerState = { active: boolean; listening: boolean };

export async function listenerState(db: TestDatabase, destination: string): Promise<ListenerState> {
  const { rows } = await db.query<ListenerState>(
    `SELECT coalesce(bool_or(b.active_until > clock_timestamp()), false) AS active,
            coalesce(bool_or(b.listening_until > clock_timestamp()), false) AS listening
       FROM ${db.quoted}.listeners b JOIN ${db.quoted}.destinations t ON t.id = b.destination_id
      WHERE t.name = $1`,
    [destination],
  );
  return only(rows);
}

export async function untilListener(
  db: TestDatabase,
  destination: string,
  wanted: Partial<ListenerState>,
): Promise<void> {
  await waitFor(
    async () => {
      const seen = await listenerState(db, destination);
      return Object.entries(wanted).every(
        ([key, value]) => seen[key as keyof ListenerState] === value,
      );
    },
    { what: `${destination} to be ${JSON.stringify(wanted)}`, timeoutMs: waitLimitMs },
  );
}

/** Waits until the relay is idle: its last query asked when the next delivery will be due. */
export async function untilIdle(db: TestDatabase): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await db.query<{ idle: boolean }>(
        `SELECT state = 'idle' AND query LIKE '%.next_due%(%' AS idle FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'waybill relay'
          ORDER BY state_change DESC LIMIT 1`,
      );
      return rows[0]?.idle;
    },
    { what: 'the relay to be idle' },
  );
}

export async function destinationId(db: TestDatabase, name: string): Promise<number> {
  const { rows } = await db.query<{ id: number }>(
    `SELECT id FROM ${db.quoted}.destinations WHERE name = $1`,
    [name],
  );
  return only(rows).id;
}
