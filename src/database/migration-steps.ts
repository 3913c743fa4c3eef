// Migration steps as SQL for other tools: psql, or the migration tool of an application. Each step is one DO statement,
// so it is applied completely or not at all, with or without a transaction around it. It makes the checks of
// `waybill migrate up`, records what it has applied, and leaves the session's settings as they were.

import { MigrationError } from '../core/errors.js';
import { quoteIdentifier } from '../core/identifier.js';
import { isNewer, version } from '../core/version.js';
import { readSqlFiles } from './sql-files.js';
import type { Migration, SqlFile, SqlFiles } from './sql-files.js';

export type FileStep = {
  /** Unique among the steps of a schema, and fit for a file name: 0001_storage, 0_2_0_functions. */
  name: string;
  title: string;
  up: string;
  /** Undefined if the step cannot be reverted; null if there is nothing to revert. */
  down: string | null | undefined;
};

/** The record of what is applied. A migration cannot create it, because it is needed before the first one. */
export const appliedFilesColumns = `
  file text PRIMARY KEY, checksum text NOT NULL, version text NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp(), works_with text`;

/** The quotes of a step, and of the files in it. No SQL file contains them, which `quoted` checks. */
const outer = '$waybill$';
const inner = '$waybill_sql$';

/** The steps from one version of the package to this one; without `from`, all steps of a new schema. */
export function migrationSteps(
  schemaName: string,
  { from, files = readSqlFiles() }: { from?: string; files?: SqlFiles } = {},
): FileStep[] {
  if (from === version) return [];
  const schema = quoteIdentifier(schemaName);
  const [first] = files.migrations;
  if (from !== undefined && isNewer(from, version))
    throw new MigrationError(
      `${from} is newer than this version of Waybill, ${version}: run the command with the newer one`,
    );
  if (from !== undefined && first !== undefined && isNewer(addedInOf(first), from))
    throw new MigrationError(
      `Waybill ${from} has no schema that can be migrated: the first one is of Waybill ${addedInOf(first)}`,
    );
  const added = files.migrations.filter(
    (file) => from === undefined || isNewer(addedInOf(file), from),
  );
  return [
    ...added.map((file) => migrationStep(schema, files, file)),
    {
      name: `${version.replaceAll(/[^\dA-Za-z]/g, '_')}_functions`,
      title: `functions and views of Waybill ${version}`,
      up: statement(schema, functionsBody(schema, files)),
      // relays of the previous version work with the newer functions
      down: null,
    },
  ];
}

/** The version of the package that brought a migration, from its comment. */
export function addedInOf({ name, text }: Pick<SqlFile, 'name' | 'text'>): string {
  const [, found] = /^-- Added in Waybill (\d+\.\d+\.\d+(?:-[\dA-Za-z.-]+)?)\.$/m.exec(text) ?? [];
  if (found === undefined)
    throw new MigrationError(
      `${name} does not say which version brought it: add the line "-- Added in Waybill X.Y.Z."`,
    );
  return found;
}

function migrationStep(schema: string, files: SqlFiles, file: Migration): FileStep {
  return {
    name: file.name.replace(/^migrations\/(.*)\.sql$/, '$1'),
    title: file.name,
    up: statement(schema, migrationBody(schema, files, file)),
    down:
      file.down === undefined
        ? undefined
        : statement(schema, downBody(schema, files, file), { creates: false }),
  };
}

/** One DO statement that runs the body as the owner of the schema, within its search_path. */
function statement(schema: string, body: string, { creates = true } = {}): string {
  const text = literal(schema);
  const table = literal(`${schema}.applied_files`);
  const schemaExists = creates
    ? `IF to_regnamespace(${text}) IS NULL THEN CREATE SCHEMA ${schema}; END IF;`
    : `IF to_regclass(${table}) IS NULL THEN RETURN; END IF;`;
  return `DO ${outer}
DECLARE
  v_search_path  text := current_setting('search_path');
  v_role         text := current_setting('role');
  v_lock_timeout text := current_setting('lock_timeout');
  v_bodies       text := current_setting('check_function_bodies');
  v_found        text;
  v_file         text;
  v_checksum     text;
  v_sql          text;
BEGIN
  ${schemaExists}
  -- others must not queue behind this step
  SET LOCAL lock_timeout = '2s';
  -- everything belongs to the owner of the schema, whichever member of that role runs this
  v_found := (SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE oid = to_regnamespace(${text}));
  IF v_found <> current_user THEN PERFORM set_config('role', v_found, true); END IF;
  SET LOCAL search_path = ${schema}, pg_temp;
  SET LOCAL check_function_bodies = off;
  IF to_regclass(${table}) IS NULL THEN
    CREATE TABLE applied_files (${appliedFilesColumns});
  END IF;
  LOCK TABLE applied_files IN EXCLUSIVE MODE;

${body}

  PERFORM set_config('role', v_role, true), set_config('search_path', v_search_path, true),
          set_config('lock_timeout', v_lock_timeout, true), set_config('check_function_bodies', v_bodies, true);
END ${outer};
`;
}

function migrationBody(schema: string, files: SqlFiles, file: Migration): string {
  const before = files.migrations.slice(0, files.migrations.indexOf(file));
  const { name, checksum, worksWith } = file;
  return `  v_checksum := (SELECT checksum FROM applied_files WHERE file = ${literal(name)});
  IF v_checksum = '${checksum}' THEN
    ${notice(`${name} is already applied to the schema ${schema}`)}
  ELSIF v_checksum IS NOT NULL THEN
    ${refusal(literal(`${name} was applied to the schema ${schema} with other contents: a migration never changes once it was released`))}
  ELSE
${[...requireApplied(schema, before), ...(worksWith === null ? [] : requireRelays(name, worksWith))].map(indented).join('')}    EXECUTE ${quoted(file.text)};
    INSERT INTO applied_files (file, checksum, version, works_with)
    VALUES (${literal(name)}, '${checksum}', '${version}', ${worksWith === null ? 'NULL' : literal(worksWith)});
    EXECUTE ${quoted(files.privileges.text)};
  END IF;`;
}

function functionsBody(schema: string, files: SqlFiles): string {
  const rows = files.definitions.map(
    ({ name, checksum, text }) => `    (${literal(name)}, '${checksum}', ${quoted(text)})`,
  );
  return `  v_found := NULL;
  IF to_regprocedure('version_number(text)') IS NOT NULL THEN
    v_found := (
      SELECT version
        FROM applied_files
       WHERE version_number(version) > version_number('${version}')
       LIMIT 1);
  END IF;
  IF v_found IS NOT NULL THEN
    RAISE NOTICE USING MESSAGE = ${literal(`the schema ${schema} has the functions of a newer version: `)} || v_found;
  ELSE
${requireApplied(schema, files.migrations).map(indented).join('')}    FOR v_file, v_checksum, v_sql IN VALUES
${rows.join(',\n')}
    LOOP
      CONTINUE WHEN EXISTS (SELECT FROM applied_files WHERE file = v_file AND checksum = v_checksum);
      EXECUTE v_sql;
      INSERT INTO applied_files (file, checksum, version)
      VALUES (v_file, v_checksum, '${version}')
      ON CONFLICT (file) DO UPDATE
        SET checksum = excluded.checksum, version = excluded.version, applied_at = excluded.applied_at,
            works_with = NULL;
    END LOOP;
    PERFORM make_partitions();
    EXECUTE ${quoted(files.privileges.text)};
    PERFORM apply_rights();
  END IF;`;
}

function downBody(schema: string, files: SqlFiles, file: Migration): string {
  const isFirst = files.migrations[0] === file;
  return `  IF NOT EXISTS (SELECT FROM applied_files WHERE file = ${literal(file.name)}) THEN
    ${notice(`${file.name} is not applied to the schema ${schema}`)}
  ELSE
    v_found := (SELECT max(file) FROM applied_files WHERE file LIKE 'migrations/%' AND file > ${literal(file.name)});
    IF v_found IS NOT NULL THEN
      ${refusal(`${literal(`${file.name} cannot be taken back before `)} || v_found`)}
    END IF;
    v_found := (${unfinishedMessages});
    IF v_found <> '0' THEN
      ${refusal(`v_found || ' messages are pending, in flight, dead or unrouted, and would be lost: let them end first'`)}
    END IF;
${isFirst ? '' : `    ${forgetMigration(file)}\n`}    EXECUTE ${quoted(file.down ?? '')};
  END IF;`;
}

/** How many messages a revert would lose. */
export const unfinishedMessages = `
      SELECT (SELECT count(*) FROM deliveries) + (SELECT count(*) FROM dead_letters)
             + (SELECT coalesce(sum(remaining), 0) FROM leases) + (SELECT count(*) FROM unrouted_messages)`;

/** Functions and views are applied again by the next `up`, because they may use what the migration had added. */
export function forgetMigration({ name }: Pick<SqlFile, 'name'>): string {
  return `DELETE FROM applied_files WHERE file = ${literal(name)} OR file LIKE 'functions/%' OR file LIKE 'views/%';`;
}

function requireApplied(schema: string, files: readonly SqlFile[]): string[] {
  if (files.length === 0) return [];
  const needed = files.map(({ name, checksum }) => `(${literal(name)}, '${checksum}')`).join(', ');
  return [
    `v_found := (`,
    `  SELECT min(n.file)`,
    `    FROM (VALUES ${needed}) n(file, checksum)`,
    `   WHERE NOT EXISTS (SELECT FROM applied_files a WHERE a.file = n.file AND a.checksum = n.checksum));`,
    `IF v_found IS NOT NULL THEN`,
    `  ${refusal(`v_found || ${literal(` is not applied to the schema ${schema}: apply it first`)}`)}`,
    `END IF;`,
  ];
}

/** `version_number` comes with the first functions: without it, no relay has ever run on the schema. */
function requireRelays(name: string, worksWith: string): string[] {
  return [
    `IF to_regprocedure('version_number(text)') IS NOT NULL THEN`,
    `  v_found := (`,
    `    SELECT string_agg(format('%s (%s)', r.name, r.version), ', ' ORDER BY r.name)`,
    `      FROM relays r`,
    `     WHERE r.heartbeat_at > clock_timestamp() - interval '15 seconds'`,
    `       AND version_number(r.version) < version_number(${literal(worksWith)}));`,
    `  IF v_found IS NOT NULL THEN`,
    `    ${refusal(`${literal(`${name} works with relays of Waybill ${worksWith} and newer, and older ones are running: `)} || v_found`)}`,
    `  END IF;`,
    `END IF;`,
  ];
}

function notice(text: string): string {
  return `RAISE NOTICE USING MESSAGE = ${literal(text)};`;
}

function refusal(expression: string): string {
  return `RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = ${expression};`;
}

function indented(line: string): string {
  return `    ${line}\n`;
}

function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

function quoted(text: string): string {
  if (text.includes('$waybill'))
    throw new MigrationError('a SQL file contains $waybill, which the steps use as a quote');
  return `${inner}\n${text}${inner}`;
}
