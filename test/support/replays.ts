// Starts replays and runs their steps through SQL, as an operator in psql does.

import type pg from 'pg';

import { only } from './only.js';
import type { Connection, Queue } from './outbox.js';
import type { TestDatabase } from './postgres.js';
import { settleDelivered } from './settling.js';

export type ReplayFields = {
  ids?: string[];
  topic?: string;
  namespace?: string;
  tenant_id?: string;
  key?: string;
  since?: string;
  until?: string;
  per_second?: number;
  actor?: string;
};

const casts: Partial<Record<keyof ReplayFields, string>> = {
  ids: '::uuid[]',
  since: '::timestamptz',
  until: '::timestamptz',
  per_second: '::int',
};

function call(destination: string, fields: ReplayFields): { sql: string; values: unknown[] } {
  const entries = Object.entries(fields) as [keyof ReplayFields, unknown][];
  return {
    sql: [
      'destination => $1',
      ...entries.map(([n], i) => `${n} => $${i + 2}${casts[n] ?? ''}`),
    ].join(', '),
    values: [destination, ...entries.map(([, value]) => value)],
  };
}

export async function startReplay(
  db: TestDatabase,
  destination: string,
  fields: ReplayFields = {},
): Promise<{ replay_id: string; resumed: boolean }> {
  // fast enough that every step has its largest size
  const { sql, values } = call(destination, { per_second: 1_000_000, ...fields });
  const { rows } = await db.query<{ replay_id: string; resumed: boolean }>(
    `SELECT * FROM ${db.quoted}.start_replay(${sql})`,
    values,
  );
  return only(rows);
}

export async function planReplay(
  db: TestDatabase,
  destination: string,
  fields: ReplayFields = {},
): Promise<pg.QueryResultRow> {
  const { sql, values } = call(destination, fields);
  const { rows } = await db.query(`SELECT * FROM ${db.quoted}.plan_replay(${sql})`, values);
  return only(rows);
}

export type Step = {
  replayed: number;
  waiting: number;
  processing: number;
  wait_ms: number;
  state: string;
};

export async function step(
  db: TestDatabase,
  id: string,
  maxCount = 1000,
  on: Connection = db.pool,
): Promise<Step> {
  const { rows } = await on.query<Step>(`SELECT * FROM ${db.quoted}.replay_step($1, $2)`, [
    id,
    maxCount,
  ]);
  return only(rows);
}

/** Runs steps until the replay has ended, and sums them up. */
export async function finish(db: TestDatabase, id: string, maxCount = 1000): Promise<Step> {
  const total = { replayed: 0, waiting: 0, processing: 0 };
  for (;;) {
    const done = await step(db, id, maxCount);
    total.replayed += done.replayed;
    total.waiting += done.waiting;
    total.processing += done.processing;
    if (done.state !== 'unfinished') return { ...done, ...total };
  }
}

/** Replays everything that matches, at once. */
export async function replay(
  db: TestDatabase,
  destination: string,
  fields: ReplayFields = {},
): Promise<Step> {
  return finish(db, (await startReplay(db, destination, fields)).replay_id);
}

/** Claims and delivers everything that is due, and returns the ids in the order of delivery. */
export async function deliverAll(db: TestDatabase, queue: Queue): Promise<string[]> {
  const sent: string[] = [];
  for (;;) {
    const claim = await queue.claim({ limit: 1000 });
    if (claim.ids.length === 0) return sent;
    sent.push(...claim.ids);
    await settleDelivered(db, claim);
  }
}
