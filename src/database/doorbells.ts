// The doorbell protocol of sql/functions/wake_up.sql, as a relay calls it.

import type { Database } from './connection.js';

export async function registerDoorbell(
  database: Database,
  relayId: string,
  destinationIds: readonly number[],
  validity: { awakeMs: number; listeningMs: number },
): Promise<void> {
  await database.query(
    'register doorbell',
    `SELECT ${database.schema}.stay_awake($1, $2, $3, $4)`,
    [relayId, destinationIds, validity.awakeMs, validity.listeningMs],
  );
}

/** The id that the next transaction will get: everything that runs now has a smaller one. */
export async function nextTransaction(database: Database): Promise<string> {
  const [row] = await database.query<{ id: string }>(
    'note transaction',
    `SELECT ${database.schema}.next_transaction()::text AS id`,
  );
  return row?.id ?? '0';
}

/** True once no transaction runs that may have seen this relay awake. */
export async function sleepIsSafe(database: Database, asleepSince: string): Promise<boolean> {
  const [row] = await database.query<{ safe: boolean }>(
    'check sleep',
    `SELECT ${database.schema}.sleep_is_safe($1::text::xid8) AS safe`,
    [asleepSince],
  );
  return row?.safe ?? false;
}

/** Milliseconds until the next waiting delivery is due, for each destination at which one waits. */
export async function nextDueMs(database: Database): Promise<Map<number, number>> {
  const rows = await database.query<{ id: number; ms: number }>(
    'look for work',
    `SELECT destination_id AS id, (extract(epoch FROM due_at - clock_timestamp()) * 1000)::float8 AS ms
       FROM ${database.schema}.next_due()`,
  );
  return new Map(rows.map(({ id, ms }) => [id, ms]));
}

/** Destinations that a relay left unwatched by dying. */
export async function clearDoorbells(database: Database): Promise<number[]> {
  const [row] = await database.query<{ ids: number[] }>(
    'clear doorbells',
    `SELECT ${database.schema}.clear_doorbells() AS ids`,
  );
  return row?.ids ?? [];
}

export async function doorbellChannel(database: Database): Promise<string> {
  const [row] = await database.query<{ channel: string }>(
    'find channel',
    `SELECT ${database.schema}.doorbell_channel() AS channel`,
  );
  return row?.channel ?? '';
}

export async function ringDoorbell(
  database: Database,
  channel: string,
  payload: string,
): Promise<void> {
  await database.query('ring doorbell', 'SELECT pg_notify($1, $2)', [channel, payload]);
}
