// The relay's housekeeping: partitions ahead, and once a day the retention. Any number of relays may do it;
// the database lets one of them begin each day's run.

import { dueMaintenance, makePartitions, prune } from '../database/maintenance.js';
import type { ResolvedRetention } from '../database/maintenance.js';
import type { Database } from '../database/connection.js';
import type { Emit } from '../telemetry/events.js';

const alarmDays = 30;

export async function maintainPartitions(database: Database, emit: Emit): Promise<void> {
  const { made, daysAhead } = await makePartitions(database);
  if (made > 0) emit({ name: 'partitions_made', count: made });
  if (daysAhead < alarmDays) emit({ name: 'partition_alarm', daysAhead });
}

export async function maintainRetention(
  database: Database,
  retention: ResolvedRetention,
  emit: Emit,
): Promise<void> {
  if (!(await dueMaintenance(database, 'retention', retention.at))) return;
  await prune(database, retention, ({ what, rows, ms }) =>
    emit({ name: 'pruned', what, rows, ms }),
  );
}
