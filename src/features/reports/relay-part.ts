// The relay's part of reports: every 30 seconds, counts the messages and attempts that have become complete.

import type { PartContext, RelayPart } from '../../relay/part.js';
import { fillReports } from './database.js';

const fillMs = 30_000;
/** Time for one run. The next interval continues, so that a stopping relay does not wait for it. */
const runMs = 2000;

export function reportsPart({ database }: PartContext): RelayPart {
  const run = async () => {
    await fillReports(database, runMs);
  };
  // a drain that did its work does not fail because of the reports
  return { task: { what: 'reports', everyMs: fillMs, run, inDrain: 'end' } };
}
