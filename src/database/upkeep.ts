// Upkeep of the whole database, as a relay calls it; see sql/functions/upkeep/upkeep.sql.

import type { Database } from './connection.js';

export type UpkeepReport = {
  /** Messages of expired leases. */
  requeued: number;
  /** Destinations that relays had been polling which are gone: they need a wake-up. */
  unattended: number[];
  /** Until the next lease expires; null if there is none. Only with `reap`. */
  nextExpiryMs: number | null;
  /** Whether any delivery is pending. Only with `sample`. */
  pending: boolean;
  /** Tasks that failed, with their errors. */
  problems: string[];
};

const nothing: UpkeepReport = {
  requeued: 0,
  unattended: [],
  nextExpiryMs: null,
  pending: false,
  problems: [],
};

/** `reap`: ends expired leases, and removes relays that listen no longer. `sample`: takes the sample of the statistics. */
export async function runUpkeep(
  database: Database,
  { reap, sample }: { reap: boolean; sample: boolean },
): Promise<UpkeepReport> {
  const [row] = await database.query<UpkeepReport>(
    'upkeep',
    `SELECT requeued, unattended, next_expiry_ms AS "nextExpiryMs", pending, problems
       FROM ${database.schema}.upkeep($1, $2)`,
    [reap, sample],
  );
  return row ?? nothing;
}
