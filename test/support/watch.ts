// Watched tables for tests: each test creates its own table, so that tests of a file are independent.

import pg from 'pg';

import { only } from './only.js';
import type { Connection } from './outbox.js';
import type { TestDatabase } from './postgres.js';

export type Event = {
  topic: string;
  namespace: string;
  tenant_id: string | null;
  key: string | null;
  aggregate_type: string | null;
  aggregate_id: string | null;
  payload: {
    table: string;
    recordId: string;
    event: string;
    record: Record<string, unknown>;
    old?: Record<string, unknown>;
    partition?: string;
  };
};

/** Options as in SQL: `{ columns: ['status'], when_changed: ['status'] }`; returns the statements that were run. */
export async function watch(
  db: TestDatabase,
  table: string,
  topic: string,
  options: Record<string, unknown> = {},
  on: Connection = db.pool,
): Promise<string[]> {
  const names = Object.keys(options);
  const { rows } = await on.query<{ statement: string }>(
    `SELECT statement FROM ${db.quoted}.watch($1::text::regclass, $2${names
      .map((name, index) => `, ${name} => $${index + 3}`)
      .join('')}) AS statement`,
    [table, topic, ...Object.values(options)],
  );
  return rows.map((row) => row.statement);
}

/** The messages of a watch, in the order of their ids. */
export async function events(
  db: TestDatabase,
  topic: string,
  on: Connection = db.pool,
): Promise<Event[]> {
  const { rows } = await on.query<Event>(
    `SELECT topic, namespace, tenant_id, key, aggregate_type, aggregate_id, payload FROM ${db.quoted}.messages
      WHERE starts_with(topic, $1) ORDER BY id`,
    [`${topic}.`],
  );
  return rows;
}

/** Each message as `event recordId`, sorted: what happened to which record. */
export async function happened(db: TestDatabase, topic: string): Promise<string[]> {
  const found = await events(db, topic);
  return found.map(({ payload }) => `${payload.event} ${payload.recordId}`).toSorted();
}

/** Why the watch is broken, or null. */
export async function problem(db: TestDatabase, topic: string): Promise<string | null> {
  const { rows } = await db.query<{ problem: string | null }>(
    `SELECT problem FROM ${db.quoted}.watch_status WHERE topic = $1`,
    [topic],
  );
  return only(rows).problem;
}

export const quote = (name: string): string => pg.escapeIdentifier(name);

let tables = 0;

/** Creates a table with the columns id, status and note, watched under the topic of the same name. */
export async function watchedTable(
  db: TestDatabase,
  options: Record<string, unknown> = {},
): Promise<string> {
  tables += 1;
  const name = `things_${tables}`;
  await db.query(`CREATE TABLE ${name} (id int PRIMARY KEY, status text, note text)`);
  await watch(db, name, name, options);
  return name;
}
