// Which of this version's SQL files the schema has, and who applied them. What is looked for in the database is
// what the applied files make: a schema of another version lacks nothing by being another version.

import { isNewer, version } from '../../version.js';
import { readSqlFiles } from '../sql-files.js';
import { declaredIn } from './declared.js';
import type { Declared } from './declared.js';
import type { Patient } from './check.js';

export type Applied = {
  /** Files of this version that the schema does not have, or has with other contents. */
  outdated: string[];
  /** Migrations that this version does not know. */
  unknown: string[];
  /** Whether the schema says that relays of this version work with it, newer as it is. */
  works: boolean;
  /** The newest version that has applied anything. */
  newest: string;
  /** What the files make that the schema has as they are. */
  declared: Declared;
};

export async function readApplied({ database, schema }: Patient): Promise<Applied> {
  const rows = await database.query<{
    file: string;
    checksum: string;
    version: string;
    worksWith: string | null;
  }>(
    'read applied files',
    // a schema of 0.1.0 has no such column
    `SELECT file, checksum, version, to_jsonb(f) ->> 'works_with' AS "worksWith" FROM ${schema}.applied_files f`,
  );
  const { migrations, definitions } = readSqlFiles();
  const applied = new Map(rows.map((row) => [row.file, row.checksum]));
  const isCurrent = (file: { name: string; checksum: string }) =>
    applied.get(file.name) === file.checksum;
  const known = new Set(migrations.map(({ name }) => name));
  const versions = rows.map((row) => row.version);
  const unknown = rows.filter(({ file }) => file.startsWith('migrations/') && !known.has(file));
  return {
    outdated: [...migrations, ...definitions]
      .filter((file) => !isCurrent(file))
      .map(({ name }) => name),
    unknown: unknown.map(({ file }) => file),
    works:
      unknown.every(({ worksWith }) => worksWith !== null) &&
      rows.every(({ worksWith }) => worksWith === null || !isNewer(worksWith, version)),
    newest: versions.reduce(
      (one, other) => (isNewer(other, one) ? other : one),
      versions[0] ?? version,
    ),
    declared: declaredIn(migrations.filter(isCurrent), definitions.filter(isCurrent)),
  };
}
