// Finds the packages of drivers, ORMs and runtimes. They are larger than the whole project, so they are a separate package
// that a contributor may not have installed. Without them their tests are skipped with a message; on CI that is an error,
// because it would hide a gap.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

import type { Library } from './library.js';

const folder = new URL('node_modules/', import.meta.url);

/** Null when the packages are installed, otherwise the reason for the skip. */
export function librariesMissing(): string | null {
  if (existsSync(fileURLToPath(new URL('typeorm', folder)))) return null;
  const reason = 'the packages of test/adapters are not installed: npm ci --prefix test/adapters';
  if (process.env['CI']) throw new Error(reason);
  console.warn(`The tests of drivers, ORMs, frameworks and runtimes are left out: ${reason}.`);
  return reason;
}

export async function loadLibraries(): Promise<Library[]> {
  const { drizzleOnNodePostgres, drizzleOnPostgresJs } = await import('./libraries/drizzle.js');
  const { typeormManager, typeormQueryRunner } = await import('./libraries/typeorm.js');
  return [
    (await import('./libraries/node-postgres.js')).default,
    (await import('./libraries/postgres-js.js')).default,
    drizzleOnNodePostgres,
    drizzleOnPostgresJs,
    (await import('./libraries/prisma.js')).default,
    (await import('./libraries/kysely.js')).default,
    (await import('./libraries/knex.js')).default,
    typeormManager,
    typeormQueryRunner,
    (await import('./libraries/mikro-orm.js')).default,
  ];
}
