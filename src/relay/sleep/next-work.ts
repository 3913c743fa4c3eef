// Next work: when a relay that is about to sleep has to be awake again. This is the earliest due time at its
// destinations, or the expiry of a lease that a dead relay may have left.

import { delay } from '../../core/delay.js';
import type { Database } from '../../database/connection.js';
import { runUpkeep } from '../../database/upkeep.js';
import { idleIsSafe, nextDue, nextTransaction } from '../../database/wake-up.js';
import type { NextDue } from '../../database/wake-up.js';

/** How long a relay that falls asleep waits for transactions that may have enqueued something. */
const openTransactionsMs = 5000;
/** How long the last look may take, including that wait: a connection may have fallen silent. */
export const lastLookMs = 8000;
/** How often it checks whether they have ended. */
const lookMs = 100;

/** Milliseconds until there is work, 0 or less if there is some; null if none is known. */
export async function nextWorkMs(
  database: Database,
  isServed: (due: NextDue) => boolean,
): Promise<number | null> {
  // expired leases first: their messages are due then
  const { nextExpiryMs } = await runUpkeep(database, { reap: true, sample: false });
  const due = (await nextDue(database)).filter(isServed).map(({ ms }) => ms);
  const times = nextExpiryMs === null ? due : [...due, nextExpiryMs];
  return times.length === 0 ? null : Math.min(...times);
}

/**
 * Waits until every transaction that may have seen this relay listen has ended: it would notify in vain. False: one is
 * still open, or the relay is needed meanwhile, so it must not sleep.
 */
export async function allTransactionsEnded(
  database: Database,
  { isNeeded = (): boolean => false, waitMs = openTransactionsMs } = {},
): Promise<boolean> {
  const since = await nextTransaction(database);
  const untilMs = performance.now() + waitMs;
  while (!(await idleIsSafe(database, since))) {
    if (isNeeded() || performance.now() >= untilMs) return false;
    await delay(lookMs);
  }
  return true;
}
