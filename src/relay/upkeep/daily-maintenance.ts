// Maintenance tasks of a relay: partitions ahead, and retention once a day. Any number of relays may try; the database
// lets one of them do the day's retention, until it is finished. This is best effort: a relay that renews its hold too
// late continues beside the one that took over.

import {
  beginMaintenance,
  endMaintenance,
  makePartitions,
  partitionDaysAhead,
  prune,
} from './maintenance.js';
import type { ResolvedRetention } from './maintenance.js';
import { isTransient } from '../../database/connection.js';
import type { Database } from '../../database/connection.js';
import { releaseHold, renewHold } from '../../database/holds.js';
import { troubleOf } from '../../telemetry/events.js';
import type { Emit } from '../../telemetry/events.js';
import { Hold } from './hold.js';
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
