// The relay's housekeeping: partitions ahead, new partitions of watched tables, and once a day the retention. Any
// number of relays may do it; the database lets one of them at a time be at it, until the day's run was brought to its end.

import {
  beginMaintenance,
  endMaintenance,
  makePartitions,
  partitionDaysAhead,
  prune,
} from '../database/maintenance.js';
import type { ResolvedRetention } from '../database/maintenance.js';
import { isTransient } from '../database/connection.js';
import type { Database } from '../database/connection.js';
import { mendWatches } from '../database/watches.js';
import { errorText } from '../errors.js';
import type { Emit } from '../telemetry/events.js';
import { Ticker } from './ticker.js';

const alarmDays = 30;
const task = 'retention';
/** After this long without a word from the relay that is at it, another one takes over. */
const defaultHeldMs = 300_000;

/**
 * Somebody may be in the way (a VACUUM, another relay): there are weeks left to try again, and an alarm when there
 * are not.
 */
export async function maintainPartitions(database: Database, emit: Emit): Promise<void> {
  try {
    const { made, daysAhead } = await makePartitions(database);
    if (made > 0) emit({ name: 'partitions_made', count: made });
    warnOf(daysAhead, emit);
  } catch (error) {
    if (!isTransient(error)) throw error;
    emit({ name: 'trouble', what: 'make partitions', error: errorText(error) });
    warnOf(await partitionDaysAhead(database).catch(() => alarmDays), emit);
  }
}

function warnOf(daysAhead: number, emit: Emit): void {
  if (daysAhead < alarmDays) emit({ name: 'partition_alarm', daysAhead });
}

export async function maintainWatches(database: Database, emit: Emit): Promise<void> {
  const count = await mendWatches(database);
  if (count > 0) emit({ name: 'watches_mended', count });
}

export async function maintainRetention(
  database: Database,
  retention: ResolvedRetention,
  relayId: string,
  emit: Emit,
  heldMs = defaultHeldMs,
): Promise<void> {
  const begin = () => beginMaintenance(database, task, retention.at, relayId, heldMs);
  if (!(await begin())) return;
  const holding = new Ticker('hold on to retention', heldMs / 3, emit, async () => {
    await begin();
  });
  holding.start();
  try {
    await prune(database, retention, ({ what, rows, ms }) =>
      emit({ name: 'pruned', what, rows, ms }),
    );
  } finally {
    await holding.stop();
  }
  await endMaintenance(database, task, relayId);
}
