// The relay's part of the audit: seals closed ranges in short steps and exports the heads to the sinks. Any number
// of relays can do this: the database lets one at a time extend the chain. A head counts as exported once the sink has
// confirmed it, so a crash sends it again and an unreachable sink gets it later.

import type { Database } from '../../database/connection.js';
import { exportState, noteExport, readHeads, sealStep } from './database.js';
import { errorText } from '../../core/errors.js';
import type { ResolvedAuditOptions } from './options.js';
import type { Emit } from '../../telemetry/events.js';
import type { HeadSink } from './head-sinks.js';

/** Time for one run. The next interval continues, so that a stopping relay does not wait for it. */
const runMs = 5000;
const headsAtOnce = 1000;

/** Returns how many rows were sealed. */
export async function maintainSeals(
  database: Database,
  audit: ResolvedAuditOptions,
  sinks: readonly HeadSink[],
  emit: Emit,
  forMs = runMs,
): Promise<number> {
  const startedMs = performance.now();
  let rows = 0;
  for (;;) {
    const sealed = await sealStep(database, audit);
    rows += sealed ?? 0;
    if (sealed === null || performance.now() - startedMs > forMs) break;
  }
  for (const sink of sinks) await exportHeads(database, sink, emit);
  return rows;
}

async function exportHeads(database: Database, sink: HeadSink, emit: Emit): Promise<void> {
  const { exported, last } = await exportState(database, sink.name);
  let number = exported;
  const failed = async (error: string): Promise<void> => {
    await noteExport(database, sink.name, number, error);
    emit({ name: 'trouble', what: `export heads to ${sink.name}`, error });
  };
  if (last < number) {
    await failed(`it has head ${number}, and the chain ends at ${last}: run waybill audit verify`);
    return;
  }
  while (number < last) {
    const heads = await readHeads(database, number, headsAtOnce);
    try {
      await sink.send(heads);
    } catch (error) {
      await failed(causeOf(error));
      return;
    }
    number = heads.at(-1)?.number ?? last;
    await noteExport(database, sink.name, number, null);
  }
}

/** fetch() puts the reason of a failure into `cause`. */
function causeOf(error: unknown): string {
  const { cause } = error as { cause?: unknown };
  return errorText(cause ?? error);
}
