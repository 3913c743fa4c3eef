// Prometheus' own checker, for the metrics, the rules and the dashboard. It comes from the machine and not from npm, so
// a contributor may lack it: then its tests are left out, aloud. On CI that would hide a gap, so there it fails.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const usualProgram = '/usr/bin/promtool';

/** Its program, or undefined when the machine has none. */
export function findPromtool(): string | undefined {
  const program = process.env['WAYBILL_TEST_PROMTOOL'] ?? usualProgram;
  if (existsSync(program)) return program;
  const reason =
    `no promtool at ${program}: install it (Debian: prometheus) ` +
    'or set WAYBILL_TEST_PROMTOOL to its program';
  if (process.env['CI']) throw new Error(reason);
  console.warn(`The tests with promtool are left out: ${reason}.`);
  return undefined;
}

/** Runs it; gives what it said, and whether it was content. */
export function promtool(
  program: string,
  args: readonly string[],
  input = '',
): { ok: boolean; words: string } {
  const { status, stdout, stderr } = spawnSync(program, args, { input, encoding: 'utf8' });
  return { ok: status === 0, words: `${stdout}${stderr}`.trim() };
}
