-- Health check, after every migration and at any time: one row per check, with the result. The tables
-- and further checks come from hooks (sql/functions/access/hooks.sql).
CREATE OR REPLACE FUNCTION health_check()
RETURNS TABLE (name text, ok boolean, detail text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_schema regnamespace := quote_ident(current_schema())::regnamespace;
  v_tables text[] := '{}';
  v_own    text[];
  v_hook   text;
BEGIN
  FOR v_hook IN SELECT hooks('tables') LOOP
    EXECUTE format('SELECT %s()', v_hook) INTO v_own;
    v_tables := v_tables || v_own;
  END LOOP;

  RETURN QUERY
    SELECT 'server'::text, current_setting('server_version_num')::int BETWEEN 150000 AND 189999,
           format('PostgreSQL %s (15 to 18 are supported)', current_setting('server_version'));

  RETURN QUERY
    SELECT 'tables'::text, count(c.oid) = cardinality(v_tables),
           coalesce('missing: ' || string_agg(t.name, ', ') FILTER (WHERE c.oid IS NULL),
                    format('all %s tables exist', cardinality(v_tables)))
      FROM unnest(v_tables) t(name)
      LEFT JOIN pg_class c ON c.relname = t.name AND c.relnamespace = v_schema;

  RETURN QUERY
    SELECT 'indexes'::text, count(*) FILTER (WHERE NOT i.indisvalid) = 0,
           coalesce('invalid: ' || string_agg(c.relname, ', ') FILTER (WHERE NOT i.indisvalid),
                    format('all %s indexes are valid', count(*)))
      FROM pg_index i
      JOIN pg_class c ON c.oid = i.indexrelid
     WHERE c.relnamespace = v_schema;

  RETURN QUERY
    SELECT 'partitions'::text, partition_days_ahead() >= 30,
           format('made for %s days ahead (60 when fresh, an alarm below 30)', partition_days_ahead());

  RETURN QUERY
    SELECT 'no default partition'::text, count(*) = 0,
           CASE count(*)
             WHEN 0 THEN 'none exists'
             ELSE 'remove ' || string_agg(p.partdefid::regclass::text, ', ')
           END
      FROM pg_partitioned_table p
      JOIN pg_class c ON c.oid = p.partrelid
     WHERE c.relnamespace = v_schema
       AND p.partdefid <> 0;

  RETURN QUERY
    SELECT 'transaction ids'::text, p.problem IS NULL,
           coalesce(p.problem, 'those of messages and cursors are this server''s own')
      FROM (SELECT coalesce(
                     min(format('cursor %s: %s', c.name, cursor_problem(c)))
                       FILTER (WHERE cursor_problem(c) IS NOT NULL),
                     stale_messages()) AS problem
              FROM cursors c) p;

  RETURN QUERY
    WITH granted AS (
      SELECT c.relname::text AS object
        FROM pg_class c, aclexplode(c.relacl) a
       WHERE c.relnamespace = v_schema
         AND a.grantee = 0
      UNION
      SELECT format('%s.%s', c.relname, t.attname)
        FROM pg_class c
        JOIN pg_attribute t ON t.attrelid = c.oid, aclexplode(t.attacl) a
       WHERE c.relnamespace = v_schema
         AND a.grantee = 0
      UNION
      SELECT p.proname
        FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
       WHERE p.pronamespace = v_schema
         AND a.grantee = 0
      UNION
      SELECT t.typname
        FROM pg_type t, aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) a
       WHERE t.typnamespace = v_schema
         AND a.grantee = 0
         AND t.typtype = 'e'
      UNION
      SELECT n.nspname
        FROM pg_namespace n, aclexplode(n.nspacl) a
       WHERE n.oid = v_schema
         AND a.grantee = 0)
    SELECT 'privileges'::text, count(*) = 0,
           coalesce('PUBLIC has rights on ' || string_agg(object, ', ' ORDER BY object),
                    'PUBLIC has no right on anything')
      FROM granted;

  -- A changed argument list creates a second function beside the first, and makes calls ambiguous. A function that is
  -- kept for relays of the previous version has a comment that says so.
  RETURN QUERY
    SELECT 'functions'::text, count(*) = 0,
           coalesce('defined twice: ' || string_agg(x.proname, ', '), 'each is defined once')
      FROM (SELECT p.proname
              FROM pg_proc p
             WHERE p.pronamespace = v_schema
               AND coalesce(obj_description(p.oid, 'pg_proc'), '') NOT LIKE 'kept for %'
             GROUP BY p.proname
            HAVING count(*) > 1) x;

  RETURN QUERY
    SELECT 'definer functions'::text, count(*) = 0,
           coalesce('no fixed search_path that ends in pg_temp: ' || string_agg(p.proname, ', '),
                    'every one has a fixed search_path')
      FROM pg_proc p
     WHERE p.pronamespace = v_schema
       AND p.prosecdef
       AND NOT EXISTS (SELECT FROM unnest(p.proconfig) s WHERE s LIKE 'search_path=%, pg_temp');

  RETURN QUERY
    SELECT 'protection'::text, count(*) = 0,
           coalesce('run waybill migrate up: ' || min(s),
                    'row level security is forced everywhere, and records cannot be changed')
      FROM (SELECT * FROM missing_protection(role_names())
            UNION ALL
            SELECT * FROM missing_rights(role_names())) m(s);

  FOR v_hook IN SELECT hooks('checks') LOOP
    RETURN QUERY EXECUTE format('SELECT * FROM %s()', v_hook);
  END LOOP;
END $$;
