// What a role of Supabase's API may do in some schemas: by the catalog's word, and by trying every table, view, sequence
// and function as that role.

import type { ApiRole } from './postgrest.js';
import type { Supabase } from './supabase.js';

/** Every right that one of the roles has there, through a grant, a membership or PUBLIC. */
export async function rightsOf(
  { superuser }: Supabase,
  roles: readonly string[],
  schemas: readonly string[],
): Promise<string[]> {
  const { rows } = await superuser.query<{ text: string }>(
    `WITH ours AS (SELECT unnest($2::text[])::regnamespace AS schema), who AS (SELECT unnest($1::text[]) AS role)
     SELECT format('%s: %s', role, x.right) AS text
       FROM who, ours, LATERAL (
         SELECT 'schema ' || ours.schema AS right WHERE has_schema_privilege(role, ours.schema, 'USAGE, CREATE')
         UNION ALL
         SELECT c.relname FROM pg_class c
          WHERE c.relnamespace = ours.schema AND c.relkind IN ('r', 'p', 'v')
            AND (has_table_privilege(role, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
                 OR has_any_column_privilege(role, c.oid, 'SELECT, INSERT, UPDATE, REFERENCES'))
         UNION ALL
         SELECT c.relname FROM pg_class c
          WHERE c.relnamespace = ours.schema AND c.relkind = 'S'
            AND has_sequence_privilege(role, c.oid, 'USAGE, SELECT, UPDATE')
         UNION ALL
         SELECT p.oid::regprocedure::text FROM pg_proc p
          WHERE p.pronamespace = ours.schema AND has_function_privilege(role, p.oid, 'EXECUTE')
         UNION ALL
         SELECT t.typname FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
          WHERE t.typnamespace = ours.schema AND (t.typtype = 'e' OR c.relkind = 'c')
            AND has_type_privilege(role, t.oid, 'USAGE')) x
      ORDER BY 1`,
    [roles, schemas],
  );
  return rows.map((row) => row.text);
}

/** What does not answer "permission denied" when the role reads it or calls it with nulls. All is rolled back. */
export async function usableBy(
  { superuser }: Supabase,
  role: ApiRole,
  schemas: readonly string[],
): Promise<string[]> {
  await superuser.query('BEGIN');
  try {
    await superuser.query(`
      CREATE FUNCTION pg_temp.is_refused(p_role text, p_statement text) RETURNS boolean LANGUAGE plpgsql AS $$
      BEGIN
        PERFORM set_config('role', p_role, true);
        EXECUTE p_statement;
        RAISE EXCEPTION 'it ran';
      EXCEPTION
        WHEN insufficient_privilege THEN RETURN true;
        WHEN OTHERS THEN RETURN false;
      END $$`);
    const { rows } = await superuser.query<{ name: string }>(
      `WITH tried AS MATERIALIZED (
         SELECT format('%I.%I', n.nspname, c.relname) AS name, format('SELECT FROM %I.%I', n.nspname, c.relname) AS statement
           FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
          WHERE n.nspname = ANY ($2) AND c.relkind IN ('r', 'p', 'v', 'm', 'S')
         UNION ALL
         SELECT format('%I.%I(%s)', n.nspname, p.proname, oidvectortypes(p.proargtypes)),
                format(CASE p.prokind WHEN 'p' THEN 'CALL %I.%I(%s)' ELSE 'SELECT %I.%I(%s)' END, n.nspname, p.proname,
                       (SELECT string_agg('NULL::' || t::regtype, ', ') FROM unnest(p.proargtypes) t))
           FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
          WHERE n.nspname = ANY ($2))
       SELECT name FROM tried WHERE NOT pg_temp.is_refused($1, statement) ORDER BY 1`,
      [role, schemas],
    );
    return rows.map((row) => row.name);
  } finally {
    await superuser.query('ROLLBACK');
  }
}
