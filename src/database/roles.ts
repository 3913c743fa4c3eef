// Roles: an administrator installs them once, and migrations keep them current. sql/functions/access/roles.sql lists
// their rights; this file installs and shows them.

import type { Database, DatabaseOptions } from './connection.js';
import { isInstalled, keepMigrationsOut, runTransaction, withClient } from './migration-session.js';

export type RoleReport = {
  role: string;
  /** The name of the role in this cluster; null until it is installed. */
  name: string | null;
  purpose: string;
  members: string[];
  functions: string[];
  tables: string[];
};

/** All tables are locked at once. So each try ends before PostgreSQL looks for a deadlock, and there are many tries. */
const roleLocks = { lockTimeoutMs: 300, attempts: 200 };

/**
 * Creates the roles and gives everything in the schema to the role owner; returns the statements that were needed,
 * none if nothing was missing.
 */
export async function installRoles(database: DatabaseOptions, prefix: string): Promise<string[]> {
  return withClient(database, async (client, schema) =>
    runTransaction(
      client,
      'roles',
      async () => {
        if (await isInstalled(client, schema)) await keepMigrationsOut(client, schema);
        const { rows } = await client.query<{ statement: string }>(
          `SELECT statement FROM ${schema}.install_roles($1) AS statement`,
          [prefix],
        );
        return rows.map((row) => row.statement);
      },
      roleLocks,
    ),
  );
}

/**
 * The statements that `installRoles` would run now, for psql. They begin with the search path, because some use
 * unqualified names.
 */
export async function planRoles(database: DatabaseOptions, prefix: string): Promise<string[]> {
  return withClient(database, async (client, schema) => {
    const { rows } = await client.query<{ statement: string }>(
      `SELECT statement FROM ${schema}.missing_roles($1) AS statement`,
      [prefix],
    );
    const path = `SET LOCAL search_path = ${schema}, pg_temp`;
    return rows.length === 0 ? [] : [path, ...rows.map((row) => row.statement)];
  });
}

export async function listRoles(database: Database): Promise<RoleReport[]> {
  const { schema } = database;
  return database.query<RoleReport>(
    'list roles',
    `SELECT k.role, r.name, k.purpose,
            ARRAY (SELECT pg_get_userbyid(m.member)::text FROM pg_auth_members m JOIN pg_roles g ON g.oid = m.roleid
                    WHERE g.rolname = r.name ORDER BY 1) AS members,
            ARRAY (SELECT w.object FROM ${schema}.role_rights() w WHERE w.role = k.role AND w.kind = 'function' ORDER BY 1) AS functions,
            ARRAY (SELECT DISTINCT split_part(w.object, '.', 1) FROM ${schema}.role_rights() w
                    WHERE w.role = k.role AND w.kind IN ('table', 'column') ORDER BY 1) AS tables
       FROM ${schema}.role_kinds() WITH ORDINALITY k(role, purpose, place) LEFT JOIN ${schema}.roles r ON r.role = k.role
      ORDER BY k.place`,
  );
}
