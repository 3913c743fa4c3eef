// Roles: installed once by an administrator, kept current by migrations. What each may do is a table in
// sql/functions/roles.sql; here it is installed and shown.

import type { Database, DatabaseOptions } from './connection.js';
import { runTransaction, withClient, withMigrationLock } from './migration-session.js';

export type RoleReport = {
  role: string;
  /** What it is called in this cluster; null until it is installed. */
  name: string | null;
  purpose: string;
  members: string[];
  functions: string[];
  tables: string[];
};

/** Every table is needed at once: given up before PostgreSQL looks for a deadlock, and tried again often. */
const lockPatience = { lockTimeoutMs: 300, attempts: 200 };

/** Makes the roles and hands everything in the schema over; returns the statements that it took, none if all is there. */
export async function installRoles(database: DatabaseOptions, prefix: string): Promise<string[]> {
  return withMigrationLock(database, async (client, schema) =>
    runTransaction(
      client,
      'roles',
      async () => {
        const { rows } = await client.query<{ statement: string }>(
          `SELECT statement FROM ${schema}.install_roles($1) AS statement`,
          [prefix],
        );
        return rows.map((row) => row.statement);
      },
      lockPatience,
    ),
  );
}

/** The statements that `installRoles` would run now, for psql: some name types and tables without their schema. */
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
