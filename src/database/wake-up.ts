// Wake-up protocol, as a relay calls it; see sql/functions/core/wake_up.sql.

import type { Database } from './connection.js';

export async function registerListener(
  database: Database,
  relayId: string,
  destinationIds: readonly number[],
  validity: { activeMs: number; listeningMs: number },
): Promise<void> {
  await database.query(
    'register listener',
    `SELECT ${database.schema}.register_listener($1, $2, $3, $4)`,
    [relayId, destinationIds, validity.activeMs, validity.listeningMs],
  );
}

/** Takes a transaction id: every transaction that has written something and still runs has a lower one. */
export async function nextTransaction(database: Database): Promise<string> {
  const [row] = await database.query<{ id: string }>(
    'take transaction id',
    `SELECT ${database.schema}.next_transaction()::text AS id`,
  );
  return row?.id ?? '0';
}

/** True when no transaction is left that may have seen this relay active. */
export async function idleIsSafe(database: Database, idleSince: string): Promise<boolean> {
  const [row] = await database.query<{ safe: boolean }>(
    'check idle',
    `SELECT ${database.schema}.idle_is_safe($1::text::xid8) AS safe`,
    [idleSince],
  );
  return row?.safe ?? false;
}

/** When a destination has its next pending delivery due: in `ms` milliseconds. */
export type NextDue = { id: number; ms: number; isEndpoint: boolean };

const untilDue = '(extract(epoch FROM due_at - clock_timestamp()) * 1000)::float8 AS ms';

/** For each destination that has a pending delivery. */
export async function nextDue(database: Database): Promise<NextDue[]> {
  return database.query<NextDue>(
    'look for work',
    `SELECT destination_id AS id, ${untilDue}, is_endpoint AS "isEndpoint" FROM ${database.schema}.next_due()`,
  );
}

/** Milliseconds until the next pending delivery is due, for those of the given destinations that have one. */
export async function nextDueMs(
  database: Database,
  destinationIds: readonly number[],
): Promise<Map<number, number>> {
  const rows = await database.query<{ id: number; ms: number }>(
    'look for work',
    `SELECT destination_id AS id, ${untilDue} FROM ${database.schema}.next_due_of($1)`,
    [destinationIds],
  );
  return new Map(rows.map(({ id, ms }) => [id, ms]));
}

export async function notificationChannel(database: Database): Promise<string> {
  const [row] = await database.query<{ channel: string }>(
    'find channel',
    `SELECT ${database.schema}.notification_channel() AS channel`,
  );
  return row?.channel ?? '';
}

export async function sendNotification(
  database: Database,
  channel: string,
  payload: string,
): Promise<void> {
  await database.query('notify', 'SELECT pg_notify($1, $2)', [channel, payload]);
}
