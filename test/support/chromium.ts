// Finds the system's Chromium for tests of the page. Without it those tests are skipped with a message; on CI that is
// an error, because it would hide a gap.

import { existsSync } from 'node:fs';

const usualProgram = '/usr/bin/chromium';

/** The path of Chromium, or undefined when the machine has none. */
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
