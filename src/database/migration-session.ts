// Migration session: the connection on which migrations run and roles are installed. Transactions wait for locks no
// longer than the lock timeout and then try again, so producers do not queue behind them. A lock on the table of
// applied files separates two runs, one transaction at a time: each run reads what is applied after it has the lock.

import type pg from 'pg';

import { errorText, MigrationError } from '../core/errors.js';
import { quoteIdentifier } from '../core/identifier.js';
import { resolveDatabaseOptions } from './connection.js';
import type { DatabaseOptions } from './connection.js';
import { connectDirectly } from './direct-connection.js';
import { appliedFilesColumns } from './migration-steps.js';

const stepLocks = { lockTimeoutMs: 2_000, attempts: 30 };

/** Errors if another session creates the same thing at the same time: a role, the schema, the table of applied files. */
const madeMeanwhile = [
  'pg_authid_rolname_index',
  'pg_namespace_nspname_index',
  'pg_type_typname_nsp_index',
  'pg_class_relname_nsp_index',
];

/** A lock timeout, a deadlock with a writer, or an object that another session has just created. */
function isBusy(error: unknown): boolean {
  const { code = '', constraint = '' } = error as { code?: string; constraint?: string };
  return (
    ['55P03', '40P01', '42710', '42P06', '42P07'].includes(code) ||
    (code === '23505' && madeMeanwhile.includes(constraint))
  );
}

export async function runTransaction<T>(
  client: pg.Client,
  title: string,
  work: () => Promise<T>,
  { lockTimeoutMs, attempts } = stepLocks,
): Promise<T> {
  for (let attempt = 1; ; attempt += 1) {
    try {
      await client.query(`BEGIN; SET LOCAL lock_timeout = ${lockTimeoutMs};`);
      const result = await work();
      await client.query('COMMIT');
      return result;
    } catch (error) {
      await client.query('ROLLBACK').catch(() => {});
      if (isBusy(error) && attempt < attempts) continue;
      if (error instanceof MigrationError) throw error;
      throw new MigrationError(`${title} failed and was rolled back: ${errorText(error)}`, {
        cause: error,
      });
    }
  }
}

export async function withClient<T>(
  database: DatabaseOptions,
  work: (client: pg.Client, schema: string) => Promise<T>,
): Promise<T> {
  const options = resolveDatabaseOptions(database);
  const client = await connectDirectly(
    { ...options, statementTimeoutMs: 600_000 },
    'waybill migrate',
  );
  try {
    return await work(client, quoteIdentifier(options.schema));
  } finally {
    await client.end();
  }
}

/**
 * Begins a step of a migration and keeps other runs out until the end of the transaction. Everything that a
 * migration creates belongs to the owner of the schema, whichever member of that role runs it, because the functions
 * have the owner's rights.
 */
export async function lockMigrations(client: pg.Client, schema: string): Promise<void> {
  await becomeOwner(client, schema);
  await client.query(bookkeeping(schema));
  await keepMigrationsOut(client, schema);
}

export async function isInstalled(client: pg.Client, schema: string): Promise<boolean> {
  const { rows } = await client.query<{ found: boolean }>(
    'SELECT to_regclass($1) IS NOT NULL AS found',
    [`${schema}.applied_files`],
  );
  return rows[0]?.found === true;
}

/** Locks until the end of the transaction. Taking this lock needs the rights of the owner. */
export async function keepMigrationsOut(client: pg.Client, schema: string): Promise<void> {
  try {
    await client.query(`LOCK TABLE ${schema}.applied_files IN EXCLUSIVE MODE`);
  } catch (error) {
    if ((error as { code?: string }).code !== '55P03') throw error;
    throw Object.assign(
      new Error(
        'another migration has been running for a minute: wait for it, or end its session',
        {
          cause: error,
        },
      ),
      { code: '55P03' },
    );
  }
}

export async function becomeOwner(client: pg.Client, schema: string): Promise<void> {
  const { rows } = await client.query<{ owner: string; isMember: boolean; user: string }>(
    `SELECT pg_get_userbyid(n.nspowner) AS owner, pg_has_role(n.nspowner, 'MEMBER') AS "isMember", current_user AS user
       FROM pg_namespace n WHERE n.oid = to_regnamespace($1)`,
    [schema],
  );
  const [found] = rows;
  if (found === undefined || found.owner === found.user) return;
  if (!found.isMember) {
    throw new MigrationError(
      `the schema ${schema} belongs to ${found.owner}, and ${found.user} is not a member of it: GRANT ${quoteIdentifier(found.owner)} TO ${quoteIdentifier(found.user)}, or connect as a member`,
    );
  }
  await client.query(`SET ROLE ${quoteIdentifier(found.owner)}`);
}

/** Creates the schema, and the table of applied files. */
export function bookkeeping(schema: string): string {
  // checked first: CREATE SCHEMA IF NOT EXISTS needs a right on the database that the owner of the schema may lack
  const literal = (text: string) => `'${text.replaceAll("'", "''")}'`;
  return `DO $do$ BEGIN
  IF to_regnamespace(${literal(schema)}) IS NULL THEN EXECUTE 'CREATE SCHEMA ' || ${literal(schema)}; END IF;
END $do$;
CREATE TABLE IF NOT EXISTS ${schema}.applied_files (${appliedFilesColumns});`;
}
