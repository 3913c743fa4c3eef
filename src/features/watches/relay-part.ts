// The relay's part of watches: declares those of the configuration, ends those that no relay declares any more, and puts
// triggers on new partitions of watched tables. A configuration without watches leaves them as they are.

import type { Database } from '../../database/connection.js';
import type { PartContext, RelayPart } from '../../relay/part.js';
import type { Emit } from '../../telemetry/events.js';
import { mendWatches, reconcileWatches, syncWatches } from './database.js';

export function watchesPart({ setup, relayId, actor, database, emit }: PartContext): RelayPart {
  const { watches, application } = setup;
  const declaration = { application: application.name, relayId };
  return {
    ...(watches && {
      declare: async () => {
        await syncWatches(database, watches, declaration, actor);
      },
      tend: () => reconcileWatches(database, relayId, actor),
    }),
    // any relay may do it
    task: {
      what: 'mend watches',
      everyMs: 60_000,
      run: () => maintainWatches(database, emit),
    },
  };
}

export async function maintainWatches(database: Database, emit: Emit): Promise<void> {
  const count = await mendWatches(database);
  if (count > 0) emit({ name: 'watches_mended', count });
}
