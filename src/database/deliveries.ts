// What waits, as an operator handles it.

import type { Database } from './connection.js';
import { listMessages } from './message-list.js';
import type { MessageFilter } from './message-ranges.js';

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

/** The same for those that match: they are found page by page, and each page is a short transaction. */
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
