// Every object of the schema by every role, read from the catalogs and compared with a table that is written by hand.

import { describe, expect, it } from 'vitest';

import { logins, rolePrefix } from '../support/logins.js';
import { testDatabase } from '../support/postgres.js';
import {
  functionsOf,
  hiddenColumnsOf,
  tablesOf,
  withCallersRights,
} from '../support/role-matrix.js';

const db = testDatabase();
const roles = [
  'producer',
  'consumer',
  'relay',
  'maintenance',
  'operator',
  'control',
  'auditor',
  'tenant_reader',
] as const;

async function texts(sql: string, values: unknown[] = [db.quoted]): Promise<string[]> {
  const { rows } = await db.query<{ text: string }>(sql, values);
  return rows.map((row) => row.text);
}

describe.each(roles)('%s', (role) => {
  // asked with the login that has the role: rights through PUBLIC or a membership count too
  const login = `test_${role}`;

  it('P13 may execute its functions and no others', async () => {
    const may = await texts(
      `SELECT p.proname AS text FROM pg_proc p
        WHERE p.pronamespace = $1::text::regnamespace AND has_function_privilege($2, p.oid, 'EXECUTE') ORDER BY 1`,
      [db.quoted, login],
    );
    expect(may).toEqual((functionsOf[role] ?? []).toSorted());
  });

  it('P13 N8 P5 may read its tables and views, and do nothing else with any', async () => {
    const may = await texts(
      `SELECT format('%s %s', p.name, c.relname) AS text
         FROM pg_class c, unnest('{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[]) p(name)
        WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v')
          AND has_table_privilege($2, c.oid, p.name) ORDER BY 1`,
      [db.quoted, login],
    );
    expect(may).toEqual((tablesOf[role] ?? []).map((table) => `SELECT ${table}`).toSorted());
  });

  it('P13 may read of the other tables only the columns that are not secret', async () => {
    const { rows } = await db.query<{ table: string; may: string[]; not: string[] }>(
      `SELECT c.relname AS table, array_agg(a.attname::text ORDER BY a.attname) FILTER (WHERE h.may) AS may,
              array_agg(a.attname::text ORDER BY a.attname DESC) FILTER (WHERE NOT h.may) AS not
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
         CROSS JOIN LATERAL (SELECT has_column_privilege($2, c.oid, a.attnum, 'SELECT') AS may) h
        WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT has_table_privilege($2, c.oid, 'SELECT')
        GROUP BY c.relname HAVING bool_or(h.may)`,
      [db.quoted, login],
    );
    expect(Object.fromEntries(rows.map((row) => [row.table, row.not.toSorted()]))).toEqual(
      Object.fromEntries(
        Object.entries(hiddenColumnsOf[role] ?? {}).map(([table, not]) => [table, not.toSorted()]),
      ),
    );
    const writable = await texts(
      `SELECT format('%s.%s', c.relname, a.attname) AS text FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
        WHERE c.relnamespace = $1::text::regnamespace AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition
          AND (has_column_privilege($2, c.oid, a.attnum, 'INSERT') OR has_column_privilege($2, c.oid, a.attnum, 'UPDATE'))`,
      [db.quoted, login],
    );
    expect(writable).toEqual([]);
  });

  it('P13 may use the schema and create nothing in it; has no sequence and no type', async () => {
    const { rows } = await db.query(
      `SELECT has_schema_privilege($2, $1, 'USAGE') AS usage, has_schema_privilege($2, $1, 'CREATE') AS creates,
              has_database_privilege($2, current_database(), 'CREATE') AS makes_schemas,
              (SELECT count(*)::int FROM pg_class c WHERE c.relnamespace = quote_ident($1)::regnamespace AND c.relkind = 'S'
                  AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege($2, c.oid, 'USAGE, SELECT, UPDATE') END) AS sequences,
              (SELECT count(*)::int FROM pg_type t WHERE t.typnamespace = quote_ident($1)::regnamespace AND t.typtype = 'e'
                  AND has_type_privilege($2, t.oid, 'USAGE')) AS types`,
      [db.schema, login],
    );
    expect(rows).toEqual([
      { usage: true, creates: false, makes_schemas: false, sequences: 0, types: 0 },
    ]);
  });
});

describe('the roles', () => {
  it('P13 cannot log in, are no superusers, bypass nothing and may not create others', async () => {
    const { rows } = await db.query(
      `SELECT rolname AS name, rolcanlogin OR rolsuper OR rolbypassrls OR rolcreaterole OR rolcreatedb OR rolreplication AS can
         FROM pg_roles WHERE rolname LIKE $1 ORDER BY 1`,
      [rolePrefix.replaceAll('_', '\\_') + '%'],
    );
    expect(rows).toEqual(
      ['owner', ...roles].map((role) => ({ name: rolePrefix + role, can: false })).toSorted(byName),
    );
  });

  it('P13 the owner, which cannot log in, owns the schema and everything in it, and no login is its member', async () => {
    const owners = await texts(
      `SELECT DISTINCT pg_get_userbyid(o.owner)::text AS text FROM (
         SELECT nspowner FROM pg_namespace WHERE oid = $1::text::regnamespace
         UNION ALL SELECT relowner FROM pg_class WHERE relnamespace = $1::text::regnamespace
         UNION ALL SELECT proowner FROM pg_proc WHERE pronamespace = $1::text::regnamespace
         UNION ALL SELECT typowner FROM pg_type WHERE typnamespace = $1::text::regnamespace) o(owner)`,
    );
    expect(owners).toEqual([`${rolePrefix}owner`]);
    const members = await texts(
      `SELECT rolname AS text FROM pg_roles WHERE rolname = ANY ($1) AND pg_has_role(oid, $2::text, 'MEMBER')`,
      [Object.keys(logins), `${rolePrefix}owner`],
    );
    expect(members).toEqual([]);
  });

  it('P13 every function that a role calls and that touches a table runs with the owner’s rights', async () => {
    const called = [...new Set(Object.values(functionsOf).flat())];
    const withOwners = await texts(
      `SELECT p.proname AS text FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace AND p.prosecdef AND p.proname = ANY ($2)`,
      [db.quoted, called],
    );
    expect(withOwners.toSorted()).toEqual(
      called.filter((name) => !withCallersRights.includes(name)).toSorted(),
    );
    // and no others do, except the one that triggers call
    const others = await texts(
      `SELECT p.proname AS text FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace AND p.prosecdef AND p.proname <> ALL ($2)`,
      [db.quoted, called],
    );
    expect(others).toEqual(['watch_event']);
  });

  it('P13 every function with the owner’s rights has its own search_path and no right for PUBLIC', async () => {
    const { rows } = await db.query<{ name: string; path: string; open: boolean }>(
      `SELECT p.proname AS name, array_to_string(p.proconfig, '; ') AS path,
              EXISTS (SELECT FROM aclexplode(p.proacl) a WHERE a.grantee = 0) OR p.proacl IS NULL AS open
         FROM pg_proc p WHERE p.pronamespace = $1::text::regnamespace AND p.prosecdef`,
      [db.quoted],
    );
    for (const { name, path, open } of rows) {
      expect(path, name).toMatch(/^search_path=.*[^;], pg_temp(;|$)/);
      expect(open, name).toBe(false);
    }
  });
});

describe('row level security', () => {
  it('N8 is enabled and forced on every table, partitions included', async () => {
    const without = await texts(
      `SELECT c.relname AS text FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace
          AND c.relkind IN ('r', 'p') AND NOT (c.relrowsecurity AND c.relforcerowsecurity)`,
    );
    expect(without).toEqual([]);
  });

  it('N8 is enabled and forced on later partitions, which have the guards too', async () => {
    await db.query(`SELECT ${db.quoted}.make_partitions(63)`);
    const { rows } = await db.query(
      `SELECT c.relname ~ '^attempts' AS attempts, c.relrowsecurity AND c.relforcerowsecurity AS secured,
              pg_get_userbyid(c.relowner) AS owner, (SELECT array_agg(t.tgname::text || t.tgenabled::text) FROM pg_trigger t WHERE t.tgrelid = c.oid) AS triggers
         FROM pg_class c WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r'
          AND c.relname ~ to_char(now() AT TIME ZONE 'UTC' + interval '63 days', '"_"YYYYMMDD$') ORDER BY 1`,
      [db.quoted],
    );
    const owner = `${rolePrefix}owner`;
    expect(rows).toEqual([
      { attempts: false, secured: true, owner, triggers: ['never_truncatedA'] },
      { attempts: true, secured: true, owner, triggers: ['append_onlyA'] },
    ]);
  });
});

function byName(one: { name: string }, other: { name: string }): number {
  return one.name < other.name ? -1 : 1;
}
