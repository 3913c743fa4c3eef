// Maintenance tasks of a relay: partitions ahead, and retention once a day, at `retention.at`. Any number of relays may
// try; the database lets one of them do the day's retention, until it is finished. This is best effort: a relay that
// renews its hold too late continues beside the one that took over.

import { isTransient } from '../../database/connection.js';
import type { Database } from '../../database/connection.js';
import { releaseHold, renewHold } from '../../database/holds.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import { Hold } from './hold.js';
import { makePartitions, partitionDaysAhead } from './partitions.js';
import { prune } from './retention.js';
import type { ResolvedRetention } from './retention.js';
import { mayMaintain, tellFloors } from './retention-floors.js';

const alarmDays = 30;
/** After this long without a renewal, another relay takes over. */
const defaultHeldMs = 300_000;

/**
 * Makes partitions ahead. A temporary error, such as a lock of VACUUM or another relay, is only reported: partitions
 * reach weeks ahead, and below 30 days there is an alarm.
 */
export async function maintainPartitions(database: Database, emit: Emit): Promise<void> {
  try {
    const { made, daysAhead } = await makePartitions(database);
    if (made > 0) emit({ name: 'partitions_made', count: made });
    warnOf(daysAhead, emit);
  } catch (error) {
    if (!isTransient(error)) throw error;
    emit(troubleOf('make partitions', error));
    warnOf(await partitionDaysAhead(database).catch(() => alarmDays), emit);
  }
}

function warnOf(daysAhead: number, emit: Emit): void {
  if (daysAhead < alarmDays) emit({ name: 'partition_alarm', daysAhead });
}

export async function maintainRetention(
  database: Database,
  retention: ResolvedRetention,
  relayId: string,
  emit: Emit,
  heldMs = defaultHeldMs,
): Promise<void> {
  const token = await beginMaintenance(database, retention.at, relayId, heldMs);
  if (token === null) return;
  const held = { name: 'retention', token };
  const hold = new Hold({
    what: 'hold retention',
    heldMs,
    renew: () => renewHold(database, held),
    release: () => releaseHold(database, held),
    emit,
  });
  try {
    await tellFloors(database, retention, emit);
    await prune(database, retention, (pruned) => emit({ name: 'pruned', ...pruned }));
  } finally {
    // after an error the hold expires, so that the relays do not try again at once
    await hold.stop();
  }
  await endMaintenance(database, token);
}

/** Does the retention if the login may; if it may not, says so once. */
export function retentionTask(
  database: Database,
  retention: ResolvedRetention,
  relayId: string,
  emit: Emit,
): () => Promise<void> {
  let [may, told] = [false, false];
  return async () => {
    may ||= await mayMaintain(database);
    if (may) return maintainRetention(database, retention, relayId, emit);
    if (!told) emit({ name: 'maintenance_left' });
    told = true;
  };
}

/**
 * Takes the hold if the retention that was due last, at this time of day (UTC), is not done yet. One holder at a time.
 * Returns the token of the hold, or null.
 */
export async function beginMaintenance(
  database: Database,
  at: string,
  holder: string,
  heldMs: number,
): Promise<string | null> {
  const [row] = await database.query<{ token: string | null }>(
    'begin maintenance',
    `SELECT ${database.schema}.begin_maintenance(d, $2, $3)::text AS token
       FROM (SELECT (date_trunc('day', now() AT TIME ZONE 'UTC') + $1::time) AT TIME ZONE 'UTC' AS today) t,
            LATERAL (SELECT CASE WHEN today > now() THEN today - interval '1 day' ELSE today END AS d) x`,
    [at, holder, heldMs],
  );
  return row?.token ?? null;
}

/** Records that the retention of the day is done, and releases the hold. */
export async function endMaintenance(database: Database, token: string): Promise<void> {
  await database.query('end maintenance', `SELECT ${database.schema}.end_maintenance($1)`, [token]);
}
