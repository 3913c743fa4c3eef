// Releases misdated deliveries, which were queued while the database's clock ran ahead (see
// sql/functions/upkeep/misdated.sql). The query is slow if many deliveries wait for a later time; then it runs less
// often and takes at most a two-hundredth of the time.

import { releaseMisdated } from '../../listing/deliveries.js';
import type { Database } from '../../database/connection.js';
import type { Emit } from '../../telemetry/events.js';

/** For a subscription; a relay does it with its upkeep. */
export const misdatedMs = 5000;
const shareOfTime = 200;

/** A periodic task. `released` is called when deliveries have become due. */
export function misdatedTask(
  database: Database,
  actor: string,
  emit: Emit,
  released: () => void,
): () => Promise<void> {
  let nextMs = 0;
  return async () => {
    const startedMs = performance.now();
    if (startedMs < nextMs) return;
    const count = await releaseMisdated(database, actor);
    const endedMs = performance.now();
    nextMs = endedMs + (endedMs - startedMs) * shareOfTime;
    if (count === 0) return;
    emit({ name: 'misdated_released', count });
    released();
  };
}
