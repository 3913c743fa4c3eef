// Pending deliveries, as an operator changes them: cancel, retry now, correct misdated ones.

import type { Database } from '../database/connection.js';
import { listMessages } from './message-list.js';
import type { MessageFilter } from './message-ranges.js';

/** Releases misdated deliveries; returns how many. */
export async function releaseMisdated(database: Database, actor: string): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'release misdated',
    `SELECT ${database.schema}.release_misdated($1) AS count`,
    [actor],
  );
  return row?.count ?? 0;
}

/** Cancels the pending deliveries of a message, at one destination or at all. */
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

/** Makes the pending deliveries of a message due now, at one destination or at all. */
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

/** Makes all deliveries that wait for a retry due now, in short transactions; returns how many. */
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

/** The same for deliveries that match a filter. They are found page by page, and each page is a short transaction. */
export async function retryMatchingNow(
  database: Database,
  filter: Omit<MessageFilter, 'status'>,
  actor: string,
): Promise<number> {
  const { destination, ...others } = filter;
  if (Object.values(others).every((value) => value === undefined))
    return retryAllNow(database, destination, actor);
  let total = 0;
  for (let next: string | null | undefined; next !== null;) {
    const page = await listMessages(
      database,
      { ...filter, status: 'retrying' },
      { limit: 500, ...(next !== undefined && { next }) },
    );
    for (const name of new Set(page.messages.map(({ destination: at }) => at))) {
      const messages = page.messages.filter(({ destination: at }) => at === name);
      const [row] = await database.query<{ count: number }>(
        'retry now',
        `SELECT ${database.schema}.retry_now($1, $2, ids => $3) AS count`,
        [name, actor, messages.map(({ messageId }) => messageId)],
      );
      total += row?.count ?? 0;
    }
    next = page.next;
  }
  return total;
}
