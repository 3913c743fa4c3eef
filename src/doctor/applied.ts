// Applied files: which of this version's SQL files the schema has, and which versions applied them. Missing objects
// are looked for only among those of applied files, so a schema of another version does not look damaged.

import { isNewer, version } from '../core/version.js';
import { readSqlFiles } from '../database/sql-files.js';
import { declaredIn } from './declared.js';
import type { Declared } from './declared.js';
import type { CheckContext } from './check.js';

export type Applied = {
  /** Files of this version that the schema does not have, or has with other contents. */
  outdated: string[];
  /** Migrations that this version does not know. */
  unknown: string[];
  /** Whether the schema, although newer, declares that relays of this version work with it. */
  works: boolean;
  /** The newest version that has applied a file. */
  newest: string;
  /** The objects of the files that the schema has unchanged. */
  declared: Declared;
};

export async function readApplied({ database, schema }: CheckContext): Promise<Applied> {
  const rows = await database.query<{
    file: string;
    checksum: string;
    version: string;
    worksWith: string | null;
  }>(
    'read applied files',
    `SELECT file, checksum, version, works_with AS "worksWith" FROM ${schema}.applied_files`,
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
