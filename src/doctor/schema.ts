// Doctor checks of the schema against this version's files: whether it exists, has the right version and is
// complete, and whether roles have the rights that they need and no others.

import { isNewer, version } from '../core/version.js';
import { quoteIdentifier } from '../core/identifier.js';
import type { HealthCheck } from '../database/migrate.js';
import { readApplied } from './applied.js';
import { counted, failure, listed, ok, warning, waybill } from './check.js';
import type { Check, CheckContext } from './check.js';

export async function schemaExists({ database }: CheckContext): Promise<boolean> {
  const rows = await database.query(
    'look for the schema',
    `SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname = 'applied_files'`,
    [database.options.schema],
  );
  return rows.length > 0;
}

const missing: Check = {
  code: 'schema_missing',
  title: 'the schema is there',
  finds: 'Error when Waybill has no schema in this database.',
  needs: 'server',
  run: async (context) => {
    const { schema } = context.database.options;
    return (await schemaExists(context))
      ? ok(`Waybill is in the schema ${schema}`)
      : failure(
          `there is no schema ${schema} of Waybill in this database`,
          'Make it, or correct DATABASE_URL or --schema.',
          [waybill(context, 'migrate up')],
        );
  },
};

const schemaVersion: Check = {
  code: 'schema_version',
  title: 'schema and program are of one version',
  finds:
    'Warning when the schema is older than this program, has other texts of functions, or is newer and says that this version works with it; error when it is newer and does not.',
  needs: 'schema',
  run: async (context) => {
    const { outdated, unknown, works, newest } = await readApplied(context);
    if (unknown.length > 0 || isNewer(newest, version))
      return (works ? warning : failure)(
        `the schema is of Waybill ${newest}${unknown.length > 0 ? ` (it has ${listed(unknown)})` : ''}, and this is Waybill ${version}${works ? ', which works with it' : ''}`,
        'Upgrade Waybill here, and wherever a relay of this version runs.',
        [`npm install waybill@${newest}`],
      );
    if (outdated.length === 0) return ok(`both are Waybill ${version}`);
    return warning(
      `the schema lacks ${counted(outdated.length, 'file')} of Waybill ${version}, or has ${outdated.length === 1 ? 'it' : 'them'} with other contents: ${listed(outdated)}`,
      'Bring the schema up to date, before relays of this version are started.',
      [waybill(context, 'migrate up')],
    );
  },
};

const objects: Check = {
  code: 'objects_missing',
  title: 'tables, functions and views are there',
  finds: 'Error when a table, a function or a view is missing that an applied file has made.',
  needs: 'schema',
  run: async (context) => {
    const { tables, definitions } = (await readApplied(context)).declared;
    const rows = await context.database.query<{ kind: string; name: string }>(
      'list objects',
      `SELECT CASE c.relkind WHEN 'v' THEN 'view' ELSE 'table' END AS kind, c.relname AS name
         FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v')
       UNION SELECT 'function', p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1`,
      [context.database.options.schema],
    );
    const found = new Set(rows.map(({ kind, name }) => `${kind} ${name}`));
    const lostTables = tables.filter((name) => !found.has(`table ${name}`));
    if (lostTables.length > 0)
      return failure(
        `missing: ${listed(lostTables.map((name) => `table ${name}`))}`,
        'Rename a renamed table back, or restore it from a backup: its rows are lost with it.',
      );
    const lost = definitions.filter(({ kind, name }) => !found.has(`${kind} ${name}`));
    if (lost.length === 0)
      return ok(
        `all ${tables.length} tables and ${definitions.length} functions and views are there`,
      );
    const files = [...new Set(lost.map(({ file }) => `'${file}'`))].join(', ');
    return failure(
      `missing: ${listed(lost.map(({ kind, name }) => `${kind} ${name}`))}`,
      'Apply their files again.',
      [
        `DELETE FROM ${context.schema}.applied_files WHERE file IN (${files});`,
        waybill(context, 'migrate up'),
      ],
    );
  },
};

async function failedHealthChecks(
  { database, schema }: CheckContext,
  names: readonly string[],
): Promise<HealthCheck[]> {
  return database.query<HealthCheck>(
    'health check',
    `SELECT name, ok, detail FROM ${schema}.health_check() WHERE NOT ok AND name = ANY ($1)`,
    [names],
  );
}

const publicRights: Check = {
  code: 'public_rights',
  title: 'PUBLIC has no rights',
  finds: 'Error when PUBLIC has a right on the schema or on anything in it.',
  needs: 'schema',
  run: async (context) => {
    const [failed] = await failedHealthChecks(context, ['privileges']);
    return failed === undefined
      ? ok('PUBLIC has no right on anything')
      : failure(
          `${failed.detail}: every role of the database has it`,
          'Take it back; grants to roles by name stay.',
          [waybill(context, 'migrate up')],
        );
  },
};

const functions: Check = {
  code: 'functions_unsafe',
  title: 'functions are safe to call',
  finds:
    "Error when a function is defined twice, or one that runs with its owner's rights has no fixed `search_path`.",
  needs: 'schema',
  run: async (context) => {
    const failed = await failedHealthChecks(context, ['functions', 'definer functions']);
    return failed.length === 0
      ? ok('each is defined once, and definer functions have a fixed search_path')
      : failure(
          failed.map(({ detail }) => detail).join('; '),
          'Drop functions that are not part of Waybill; then apply its functions again.',
          [
            `DELETE FROM ${context.schema}.applied_files WHERE file LIKE 'functions/%';`,
            waybill(context, 'migrate up'),
          ],
        );
  },
};

/** A role that may claim must also be able to settle, to send heartbeats, and to reap the leases of other relays. */
const relayFunctions = [
  'claim_batch',
  'claim_batches',
  'settle',
  'settle_many',
  'deliver_leases',
  'extend_leases',
  'release_leases',
  'reap',
  'upkeep',
  'heartbeat',
  'lacking_files',
  'sign_off',
  'register_listener',
  'next_due',
];

const grants: Check = {
  code: 'grants_missing',
  title: 'roles have the rights that they need',
  finds:
    'Warning for roles that were granted functions of Waybill without the schema, or some of what a relay calls and not the rest.',
  needs: 'schema',
  run: async ({ database, schema }) => {
    const rows = await database.query<{ role: string; usage: boolean; lacking: string[] }>(
      'look for grants',
      `WITH ours AS (SELECT p.oid, p.proname, p.proowner, p.proacl, p.pronamespace FROM pg_proc p
                       JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1::text),
            granted AS (SELECT DISTINCT a.grantee, o.pronamespace, bool_or(o.proname = 'claim_batch') OVER (PARTITION BY a.grantee) AS claims
                          FROM ours o, aclexplode(o.proacl) a WHERE a.grantee NOT IN (0, o.proowner))
       SELECT r.rolname AS role, has_schema_privilege(r.oid, g.pronamespace, 'usage') AS usage,
              ARRAY (SELECT format('%I.%I', $1::text, o.proname) FROM ours o WHERE g.claims AND o.proname = ANY ($2)
                        AND NOT has_function_privilege(r.oid, o.oid, 'execute') ORDER BY 1) AS lacking
         FROM granted g JOIN pg_roles r ON r.oid = g.grantee ORDER BY 1`,
      [database.options.schema, relayFunctions],
    );
    const poor = rows.filter(({ usage, lacking }) => !usage || lacking.length > 0);
    if (poor.length === 0)
      return ok(
        rows.length === 0
          ? 'no role but the owner was granted anything'
          : `${counted(rows.length, 'role has', 'roles have')} what they need: ${listed(rows.map(({ role }) => role))}`,
      );
    const shown = poor.map(
      ({ role, usage, lacking }) =>
        `${role} lacks ${listed([...(usage ? [] : ['USAGE on the schema']), ...lacking])}`,
    );
    return warning(
      listed(shown),
      'Grant it; a new version may have brought functions that roles were not granted yet.',
      poor.flatMap(({ role, usage, lacking }) => [
        ...(usage ? [] : [`GRANT USAGE ON SCHEMA ${schema} TO ${quoteIdentifier(role)};`]),
        ...lacking.map((name) => `GRANT EXECUTE ON FUNCTION ${name} TO ${quoteIdentifier(role)};`),
      ]),
    );
  },
};

export const schemaChecks = [missing, schemaVersion, objects, publicRights, functions, grants];
