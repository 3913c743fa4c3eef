// Finds the oldest supported PostgreSQL. Without it its tests are skipped with a message; on CI that is an error,
// because it would hide a gap.

import { existsSync } from 'node:fs';
import path from 'node:path';

const usualDirectory = '/usr/lib/postgresql/15/bin';

/** The directory of PostgreSQL 15's programs, or undefined when the machine has none. */
export function findPostgres15(): string | undefined {
  const directory = process.env['WAYBILL_TEST_POSTGRES_15'] ?? usualDirectory;
  if (existsSync(path.join(directory, 'postgres'))) return directory;
  const reason =
    `no PostgreSQL 15 in ${directory}: install it (Debian: postgresql-15) ` +
    'or set WAYBILL_TEST_POSTGRES_15 to the directory of its programs';
  if (process.env['CI']) throw new Error(reason);
  console.warn(`The project database-15 is left out: ${reason}.`);
  return undefined;
}
