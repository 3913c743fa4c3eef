// The relay's part of the audit: seals what is closed, in short steps, and brings the heads to the places outside. Any
// number of relays may do it: the database lets one at a time add to the chain. A head counts as exported when the
// place has answered, so that a crash in between sends it again, and a place that cannot be reached gets it later.

import type { Database } from '../database/connection.js';
import { exportState, noteExport, readHeads, sealStep } from '../database/seals.js';
import { errorText } from '../errors.js';
import type { ResolvedAuditOptions } from '../model/audit-options.js';
import type { Emit } from '../telemetry/events.js';
import type { HeadSink } from './head-sinks.js';

/** In one go: the rest is done at the next tick, so that a relay that stops need not wait for it. */
const goMs = 5000;
const headsAtOnce = 1000;

/** Returns how many rows were sealed. */
export async function maintainSeals(
  database: Database,
  audit: ResolvedAuditOptions,
  sinks: readonly HeadSink[],
  emit: Emit,
  forMs = goMs,
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

/** What fetch failed of is in its cause. */
function causeOf(error: unknown): string {
  const { cause } = error as { cause?: unknown };
  return errorText(cause ?? error);
}
