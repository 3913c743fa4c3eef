// The relay's part of watches: puts triggers on new partitions of watched tables. Any relay may do it.

import type { Database } from '../../database/connection.js';
import type { PartContext, RelayPart } from '../../relay/part.js';
import type { Emit } from '../../telemetry/events.js';
import { mendWatches } from './database.js';

export function watchesPart({ database, emit }: PartContext): RelayPart {
  const run = () => maintainWatches(database, emit);
  return { task: { what: 'mend watches', everyMs: 60_000, run } };
}

export async function maintainWatches(database: Database, emit: Emit): Promise<void> {
  const count = await mendWatches(database);
  if (count > 0) emit({ name: 'watches_mended', count });
}
