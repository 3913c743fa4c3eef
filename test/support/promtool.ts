// Runs promtool, Prometheus' own checker, on the metrics, the rules and the dashboard. Without it those tests are
// skipped with a message; on CI that is an error, because it would hide a gap.

import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';

const usualProgram = '/usr/bin/promtool';

/** The path of promtool, or undefined when the machine has none. */
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

/** Runs promtool; returns its output and whether it succeeded. */
export function promtool(
  program: string,
  args: readonly string[],
  input = '',
): { ok: boolean; words: string } {
  const { status, stdout, stderr } = spawnSync(program, args, { input, encoding: 'utf8' });
  return { ok: status === 0, words: `${stdout}${stderr}`.trim() };
}
