// What waits, as an operator handles it.

import type { Database } from './connection.js';

/** Takes back what waits of a message: at one destination, or at all. */
export async function cancelDeliveries(
  database: Database,
  messageId: string,
  destination: string | undefined,
  actor: string,
): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'cancel',
    `SELECT ${database.schema}.cancel($1, $2, $3) AS count`,
    [messageId, destination ?? null, actor],
  );
  return row?.count ?? 0;
}

/** Makes due now what waits of a message: at one destination, or at all. */
export async function retryDeliveriesNow(
  database: Database,
  messageId: string,
  destination: string | undefined,
  actor: string,
): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'retry now',
    `SELECT ${database.schema}.retry_now($1, $2, ids => $3) AS count`,
    [destination ?? null, actor, [messageId]],
  );
  return row?.count ?? 0;
}

/** Makes due now all that waits for a retry, in short transactions; returns how many. */
export async function retryAllNow(
  database: Database,
  destination: string | undefined,
  actor: string,
): Promise<number> {
  const batch = 5000;
  for (let total = 0; ;) {
    const [row] = await database.query<{ count: number }>(
      'retry now',
      `SELECT ${database.schema}.retry_now($1, $2, $3) AS count`,
      [destination ?? null, actor, batch],
    );
    total += row?.count ?? 0;
    if ((row?.count ?? 0) < batch) return total;
  }
}
