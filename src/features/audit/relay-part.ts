// The relay's part of the audit: every ten seconds, extends the chain of seals and exports its heads, if the
// configuration asks for it.

import type { PartContext, RelayPart } from '../../relay/part.js';
import { headSinks } from './head-sinks.js';
import { maintainSeals } from './sealing.js';

const sealMs = 10_000;

export function auditPart({ setup, database, emit }: PartContext): RelayPart | undefined {
  const { audit } = setup;
  if (!audit.seal) return undefined;
  const run = async () => {
    await maintainSeals(database, audit, headSinks(audit, emit), emit);
  };
  return { task: { what: 'seal', everyMs: sealMs, run, inDrain: 'maintenance' } };
}
