// The relay's part of reports: every 30 seconds, the relay counts new messages and attempts, up to the time before which
// no more can be added. If it has not caught up after two seconds, it pauses for two seconds and goes on.

import type { PartContext, RelayPart } from '../../relay/part.js';
import { fillReports } from './database.js';

const fillMs = 30_000;
/** Time for one run, and the pause after it if more is left. A stopping relay waits for a run. */
const runMs = 2000;

export function reportsPart({ database }: Pick<PartContext, 'database'>): RelayPart {
  let isBehind = false;
  const run = async () => {
    isBehind = false;
    isBehind = await fillReports(database, runMs);
  };
  const everyMs = () => (isBehind ? runMs : fillMs);
  // a drain that did its work does not fail because of the reports
  return { task: { what: 'reports', everyMs, run, inDrain: 'end' } };
}
