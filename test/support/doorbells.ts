// What can be heard and seen of the doorbells: who rings, who listens, who is awake.

import { randomUUID } from 'node:crypto';

import { onTestFinished } from 'vitest';

import { only } from './only.js';
import type { TestDatabase } from './postgres.js';
import { patienceMs } from './relay.js';
import { waitFor } from './wait.js';

/** Every ring for a destination from now on, in the order of the commits. */
export async function listen(
  db: TestDatabase,
): Promise<{ rings: string[]; heardAll(): Promise<void> }> {
  const client = await db.connect();
  onTestFinished(() => client.end());
  const rings: string[] = [];
  const marks = new Set<string>();
  client.on('notification', ({ payload = '' }) => {
    if (payload.startsWith('test ')) marks.add(payload);
    else rings.push(payload);
  });
  const channel = `waybill:${db.schema}`;
  await client.query(`LISTEN ${client.escapeIdentifier(channel)}`);
  return {
    rings,
    // notifications come in the order of the commits: after the mark nothing older is under way
    async heardAll() {
      const mark = `test ${randomUUID()}`;
      await db.query('SELECT pg_notify($1, $2)', [channel, mark]);
      await waitFor(() => marks.has(mark), { what: 'the mark', timeoutMs: patienceMs });
    },
  };
}

export type Doorbell = { awake: boolean; listening: boolean };

export async function doorbell(db: TestDatabase, destination: string): Promise<Doorbell> {
  const { rows } = await db.query<Doorbell>(
    `SELECT coalesce(bool_or(b.awake_until > clock_timestamp()), false) AS awake,
            coalesce(bool_or(b.listening_until > clock_timestamp()), false) AS listening
       FROM ${db.quoted}.doorbells b JOIN ${db.quoted}.destinations t ON t.id = b.destination_id
      WHERE t.name = $1`,
    [destination],
  );
  return only(rows);
}

export async function untilDoorbell(
  db: TestDatabase,
  destination: string,
  wanted: Partial<Doorbell>,
): Promise<void> {
  await waitFor(
    async () => {
      const seen = await doorbell(db, destination);
      return Object.entries(wanted).every(([key, value]) => seen[key as keyof Doorbell] === value);
    },
    { what: `${destination} to be ${JSON.stringify(wanted)}`, timeoutMs: patienceMs },
  );
}

/** Waits until the relay waits: the last that it asked the database for is when something will be due. */
export async function untilAsleep(db: TestDatabase): Promise<void> {
  await waitFor(
    async () => {
      const { rows } = await db.query<{ asleep: boolean }>(
        `SELECT state = 'idle' AND query LIKE '%.next_due(%' AS asleep FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = 'waybill relay'
          ORDER BY state_change DESC LIMIT 1`,
      );
      return rows[0]?.asleep;
    },
    { what: 'the relay to sleep' },
  );
}

export async function destinationId(db: TestDatabase, name: string): Promise<number> {
  const { rows } = await db.query<{ id: number }>(
    `SELECT id FROM ${db.quoted}.destinations WHERE name = $1`,
    [name],
  );
  return only(rows).id;
}
