// Whether schema, program and running relays fit together in a rolling upgrade: the schema is migrated first, and each
// migration says which relays work with what it makes. The database refuses relays that are too old for it (heartbeat);
// here is what it cannot know by itself: that it is too old for a relay, and who would be too old for it.

import pg from 'pg';

import { MigrationError, RelayTooOldError, SchemaOutdatedError } from '../errors.js';
import { isNewer, version } from '../version.js';
import type { Database } from './connection.js';
import { readSqlFiles } from './sql-files.js';
import type { Migration } from './sql-files.js';

const undefinedFunction = '42883';

const notSupported = '0A000';

/** What the database says to a relay that is too old for it; every other error as it is. */
export function refusalOr(error: unknown): unknown {
  const isRefusal =
    error instanceof pg.DatabaseError &&
    error.code === notSupported &&
    error.column === 'works_with';
  return isRefusal ? new RelayTooOldError(error.message, { cause: error }) : error;
}

/** The oldest version whose relays the schema works with, if this one is older; asked of the tables, which any reader may. */
export async function readNeededVersion(database: Database): Promise<string | null> {
  const rows = await database.query<{ worksWith: string }>(
    'read who works with the schema',
    // a schema of 0.1.0 has no such column
    `SELECT f.needed AS "worksWith" FROM (SELECT to_jsonb(a) ->> 'works_with' AS needed FROM ${database.schema}.applied_files a) f WHERE f.needed IS NOT NULL`,
  );
  return rows.reduce<string | null>(
    (needed, { worksWith }) => (isNewer(worksWith, needed ?? version) ? worksWith : needed),
    null,
  );
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
    // of a version that had no such function yet
    if (!(error instanceof pg.DatabaseError) || error.code !== undefinedFunction)
      throw refusalOr(error);
    throw new SchemaOutdatedError(schema, version, 'functions/versions.sql');
  }
  const [first, ...others] = lacking.map(({ file }) => file);
  if (first === undefined) return;
  const more = others.length === 0 ? '' : ` and ${others.length} more`;
  throw new SchemaOutdatedError(schema, version, `${first}${more}`);
}

/** Refuses migrations that living relays do not work with, before any of them has run. */
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
