// Finds the programs that recipes in the documents call. Without one its tests are skipped with a message; on CI that
// is an error, because it would hide a gap.

import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';

import { findPostgres15 } from './postgres-versions.js';

/** Whether all of these are on the path; each is named with its Debian package. */
export function hasPrograms(programs: Record<string, string>): boolean {
  const folders = (process.env['PATH'] ?? '').split(path.delimiter);
  const missing = Object.entries(programs).filter(
    ([program]) => !folders.some((folder) => existsSync(path.join(folder, program))),
  );
  return missing.every(([program, name]) => lacking(`no ${program}: install it (Debian: ${name})`));
}

/** The programs of PostgreSQL 15, if it has pg_cron. */
export function findPgCron(): string | undefined {
  const directory = findPostgres15();
  if (directory === undefined) return undefined;
  if (existsSync(path.join(directory, '../lib/pg_cron.so'))) return directory;
  lacking('no pg_cron for PostgreSQL 15: install it (Debian: postgresql-15-cron)');
  return undefined;
}

/** Whether pg_cron of that PostgreSQL has schedules in seconds, which are new in 1.5. */
export function pgCronHasSeconds(directory: string): boolean {
  const share = path.join(directory, '../../../../share/postgresql/15/extension');
  const control = readFileSync(path.join(share, 'pg_cron.control'), 'utf8');
  const [, major = '', minor = ''] = /^default_version = '(\d+)\.(\d+)/m.exec(control) ?? [];
  return Number(major) > 1 || Number(minor) >= 5;
}

function lacking(reason: string): false {
  if (process.env['CI']) throw new Error(reason);
  console.warn(`Tests of recipes are left out: ${reason}.`);
  return false;
}
