// The system's Chromium, in which the page is tested. It comes from the machine and not from npm, so a contributor
// may lack it: then its tests are left out, aloud. On CI that would hide a gap, so there it fails.

import { existsSync } from 'node:fs';

const usualProgram = '/usr/bin/chromium';

/** Chromium's program, or undefined when the machine has none. */
export function findChromium(): string | undefined {
  const program = process.env['WAYBILL_TEST_CHROMIUM'] ?? usualProgram;
  if (existsSync(program)) return program;
  const reason =
    `no Chromium at ${program}: install it (Debian: chromium) ` +
    'or set WAYBILL_TEST_CHROMIUM to its program';
  if (process.env['CI']) throw new Error(reason);
  console.warn(`The tests of the page are left out: ${reason}.`);
  return undefined;
}
