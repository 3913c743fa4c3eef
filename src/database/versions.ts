// Version checks for rolling upgrades. The schema is migrated first, and each migration says which relays work with
// it. The database refuses relays that are too old (heartbeat). This file checks what the database cannot know by
// itself: whether it is too old for a relay, and which running relays would be too old for a migration.

import pg from 'pg';

import {
  MigrationError,
  NoRightsError,
  RelayTooOldError,
  SchemaMissingError,
  SchemaOutdatedError,
} from '../core/errors.js';
import { isNewer, version } from '../core/version.js';
import type { Database } from './connection.js';
import { readSqlFiles } from './sql-files.js';
import type { Migration } from './sql-files.js';

const undefinedFunction = '42883';
const undefinedSchema = '3F000';
const forbidden = '42501';

const notSupported = '0A000';

/** Turns the database's refusal of an old relay into a RelayTooOldError; returns every other error unchanged. */
export function refusalOr(error: unknown): unknown {
  const isRefusal =
    error instanceof pg.DatabaseError &&
    error.code === notSupported &&
    error.column === 'works_with';
  return isRefusal ? new RelayTooOldError(error.message, { cause: error }) : error;
}

/**
 * The oldest version that the schema works with, if this program is older; else null. It reads a table that any
 * reader may read.
 */
export async function readNeededVersion(database: Database): Promise<string | null> {
  const rows = await database.query<{ worksWith: string }>(
    'read who works with the schema',
    `SELECT works_with AS "worksWith" FROM ${database.schema}.applied_files WHERE works_with IS NOT NULL`,
  );
  return rows.reduce<string | null>(
    (needed, { worksWith }) => (isNewer(worksWith, needed ?? version) ? worksWith : needed),
    null,
  );
}

/** Turns a missing schema into a SchemaMissingError, which says what to run; returns every other error unchanged. */
export function schemaMissingOr(error: unknown, schema: string): unknown {
  const isMissing = error instanceof pg.DatabaseError && error.code === undefinedSchema;
  return isMissing ? new SchemaMissingError(schema, { cause: error }) : error;
}

/** Refuses a schema that lacks something of this version. */
export async function refuseOutdatedSchema(database: Database): Promise<void> {
  const { schema } = database;
  const { migrations, definitions } = readSqlFiles();
  const files = Object.fromEntries(
    [...migrations, ...definitions].map(({ name, checksum }) => [name, checksum]),
  );
  let lacking: { file: string }[];
  try {
    lacking = await database.query<{ file: string }>(
      'compare versions',
      `SELECT file FROM ${schema}.lacking_files($1, $2) AS file`,
      [version, JSON.stringify(files)],
    );
  } catch (error) {
    const code = error instanceof pg.DatabaseError ? error.code : undefined;
    const cause = { cause: error };
    if (code === undefinedSchema) throw new SchemaMissingError(schema, cause);
    if (code === forbidden) throw new NoRightsError(schema, 'lacking_files', 'relay', cause);
    // a schema older than this function
    if (code === undefinedFunction)
      throw new SchemaOutdatedError(schema, version, 'functions/versions.sql', cause);
    throw refusalOr(error);
  }
  const [first, ...others] = lacking.map(({ file }) => file);
  if (first === undefined) return;
  const more = others.length === 0 ? '' : ` and ${others.length} more`;
  throw new SchemaOutdatedError(schema, version, `${first}${more}`);
}

/** Refuses migrations that living relays do not work with, before any of them runs. */
export async function refuseWhileOldRelaysRun(
  client: pg.Client,
  schema: string,
  pending: readonly Migration[],
): Promise<void> {
  const strictest = pending.reduce<Migration | undefined>(
    (one, other) =>
      other.worksWith !== null && isNewer(other.worksWith, one?.worksWith ?? '0.0.0') ? other : one,
    undefined,
  );
  const oldest = strictest?.worksWith;
  if (strictest === undefined || !oldest) return;
  const { rows } = await client.query<{ name: string; version: string }>(
    `SELECT name, version FROM ${schema}.relays WHERE heartbeat_at > clock_timestamp() - interval '15 seconds' ORDER BY name`,
  );
  const old = rows.filter((relay) => isNewer(oldest, relay.version));
  if (old.length === 0) return;
  const names = old.map((relay) => `${relay.name} (${relay.version})`).join(', ');
  throw new MigrationError(
    `${strictest.name} works with relays of Waybill ${oldest} and newer, and older ones are running: ${names}. Upgrade them to ${oldest} first, or stop them; one that was killed counts for 15 seconds more`,
  );
}
