// Definitions and their owners in the database of a test, and ways to let time pass without waiting.

import type { TestDatabase } from './postgres.js';

type Queried = { quoted: string; query(sql: string, values?: unknown[]): Promise<unknown> };

/** The stored routes, as "owner: topic -> destination". */
export async function routesOf(db: TestDatabase, owner?: string): Promise<string[]> {
  const { rows } = await db.query<{ route: string }>(
    `SELECT format('%s: %s -> %s', r.owner, r.topic, d.name) AS route
       FROM ${db.quoted}.routes r JOIN ${db.quoted}.destinations d ON d.id = r.destination_id
      WHERE $1::text IS NULL OR r.owner = $1 ORDER BY 1`,
    [owner ?? null],
  );
  return rows.map((row) => row.route);
}

/** Moves all declarations and heartbeats of relays into the past. */
export async function letTimePass(db: Queried, interval: string): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.declarations SET made_at = made_at - $1::interval, seen_at = seen_at - $1::interval,
            steady_since = steady_since - $1::interval`,
    [interval],
  );
  await db.query(`UPDATE ${db.quoted}.relays SET heartbeat_at = heartbeat_at - $1::interval`, [
    interval,
  ]);
}

/** Lets time pass while a relay keeps running and confirms its declaration. */
export async function letTimePassFor(
  db: Queried,
  interval: string,
  running: readonly string[],
): Promise<void> {
  await letTimePass(db, interval);
  await db.query(
    `UPDATE ${db.quoted}.declarations SET seen_at = clock_timestamp() WHERE relay_id = ANY ($1::uuid[])`,
    [running],
  );
  await db.query(
    `UPDATE ${db.quoted}.relays SET heartbeat_at = clock_timestamp() WHERE id = ANY ($1::uuid[])`,
    [running],
  );
}

export async function settingsOf(db: TestDatabase, name: string) {
  const { rows } = await db.query<{ max_attempts: number; configured: boolean; owners: string[] }>(
    `SELECT d.max_attempts, d.configured, ARRAY (
        SELECT o.owner FROM ${db.quoted}.destination_owners o WHERE o.destination_id = d.id ORDER BY 1) AS owners
       FROM ${db.quoted}.destinations d WHERE d.name = $1`,
    [name],
  );
  return rows[0];
}
