// The connection on which migrations run and roles are installed. Transactions wait for locks no longer than the
// lock timeout and then try again, so that nobody queues behind them; an advisory lock keeps two runs apart.

import type pg from 'pg';

import { errorText, MigrationError } from '../errors.js';
import { connectDirectly, quoteIdentifier, resolveDatabaseOptions } from './connection.js';
import type { DatabaseOptions } from './connection.js';

const stepPatience = { lockTimeoutMs: 2_000, attempts: 30 };

/** A lock timeout, a deadlock with those who write meanwhile, or a role that another database has just made. */
function isBusy(error: unknown): boolean {
  const { code = '', constraint } = error as { code?: string; constraint?: string };
  return (
    ['55P03', '40P01', '42710'].includes(code) ||
    (code === '23505' && constraint === 'pg_authid_rolname_index')
  );
}

export async function runTransaction<T>(
  client: pg.Client,
  title: string,
  work: () => Promise<T>,
  { lockTimeoutMs, attempts } = stepPatience,
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
 * Whatever a migration makes belongs to the owner of the schema, whoever runs it: one owner for all of it, whose
 * rights the functions have.
 */
async function becomeOwner(client: pg.Client, schema: string): Promise<void> {
  const { rows } = await client.query<{ owner: string; isMember: boolean; user: string }>(
    `SELECT pg_get_userbyid(n.nspowner) AS owner, pg_has_role(n.nspowner, 'MEMBER') AS "isMember", current_user AS user
       FROM pg_namespace n WHERE n.oid = to_regnamespace($1)`,
    [schema],
  );
  const [found] = rows;
  if (found === undefined || found.owner === found.user) return;
  if (!found.isMember) {
    throw new MigrationError(
      `the schema ${schema} belongs to ${found.owner}, and ${found.user} is no member of it: GRANT ${quoteIdentifier(found.owner)} TO ${quoteIdentifier(found.user)}, or connect as one that is`,
    );
  }
  await client.query(`SET ROLE ${quoteIdentifier(found.owner)}`);
}

export async function asOwner<T>(
  database: DatabaseOptions,
  work: (client: pg.Client, schema: string) => Promise<T>,
): Promise<T> {
  return withMigrationLock(database, async (client, schema) => {
    await becomeOwner(client, schema);
    return work(client, schema);
  });
}

export async function withMigrationLock<T>(
  database: DatabaseOptions,
  work: (client: pg.Client, schema: string) => Promise<T>,
): Promise<T> {
  return withClient(database, async (client, schema) => {
    const lock = `hashtextextended('waybill migrate ${schema.replaceAll("'", "''")}', 0)`;
    await client.query('SET lock_timeout = 60000');
    try {
      await client.query(`SELECT pg_advisory_lock(${lock})`);
    } catch (error) {
      throw new MigrationError(
        'another migration has been running for a minute: wait for it, or end its session',
        { cause: error },
      );
    }
    try {
      return await work(client, schema);
    } finally {
      await client.query(`SELECT pg_advisory_unlock(${lock})`).catch(() => {});
    }
  });
}
