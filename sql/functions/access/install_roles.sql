-- Installing the roles: an administrator does it once. Every step is a statement that can be read before it is run.

-- The statements that create the roles, make the role owner the owner of this schema and its contents, and grant each
-- role its rights. Roles belong to the cluster: other schemas and databases can share them under the same prefix. An
-- administrator who is not a superuser becomes a member of the owner, because PostgreSQL requires that to transfer
-- objects. A membership and a right to create schemas that exist already are used and kept: an administrator without
-- CREATEROLE could neither grant nor revoke them.
CREATE OR REPLACE FUNCTION missing_roles(p_prefix text) RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_schema  regnamespace := quote_ident(current_schema())::regnamespace;
  v_names   jsonb := (SELECT jsonb_object_agg(k.role, p_prefix || k.role) FROM role_kinds() k);
  v_owner   text := v_names ->> 'owner';
  v_foreign boolean := (
    SELECT pg_get_userbyid(n.nspowner) <> v_owner
      FROM pg_namespace n
     WHERE n.oid = v_schema);
  v_super   boolean := (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user);
  -- since PostgreSQL 16 a member may lack the right to give objects to the role
  v_set     text := CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'SET' ELSE 'MEMBER' END;
  v_member  boolean := EXISTS (
    SELECT FROM pg_roles r
     WHERE r.rolname = v_owner
       AND pg_has_role(current_user, r.oid, 'USAGE')
       AND pg_has_role(current_user, r.oid, v_set));
  -- the new owner of a schema needs the right to create one
  v_creates boolean := EXISTS (
    SELECT FROM pg_roles r
     WHERE r.rolname = v_owner
       AND has_database_privilege(r.oid, current_database(), 'CREATE'));
  v_problem text;
BEGIN
  IF p_prefix IS NULL OR p_prefix !~ '^[a-z_][a-z0-9_]{0,39}$' OR p_prefix LIKE 'pg\_%' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('prefix is %s: give up to 40 lower-case letters, digits and _, not beginning with pg_',
                       coalesce('"' || left(p_prefix, 60) || '"', 'null'));
  END IF;
  SELECT format('the roles of this schema are called %s already: use that prefix',
                string_agg(r.name, ', ' ORDER BY r.name))
    INTO v_problem
    FROM roles r
   WHERE r.name <> p_prefix || r.role
  HAVING count(*) > 0;
  v_problem := coalesce(v_problem, (
    SELECT format('the role %I exists and %s: choose another prefix, or run ALTER ROLE %1$I %3$s',
                  r.rolname, b.fact, b.remedy)
      FROM jsonb_each_text(v_names) n
      JOIN pg_roles r ON r.rolname = n.value
      JOIN LATERAL (VALUES
             (r.rolcanlogin, 'can log in', 'NOLOGIN'),
             (r.rolsuper, 'is a superuser', 'NOSUPERUSER'),
             (r.rolbypassrls, 'bypasses row level security', 'NOBYPASSRLS')) b(bad, fact, remedy)
        ON b.bad
     LIMIT 1));
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was changed.';
  END IF;

  RETURN QUERY
    SELECT format('CREATE ROLE %I NOLOGIN', v_names ->> k.role)
      FROM role_kinds() k
     WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = v_names ->> k.role)
     ORDER BY k.role;
  RETURN QUERY
    SELECT format('INSERT INTO %I.roles (role, name) VALUES (%L, %L)', current_schema(), k.role, v_names ->> k.role)
      FROM role_kinds() k
     WHERE NOT EXISTS (SELECT FROM roles r WHERE r.role = k.role);

  IF v_foreign AND NOT v_super AND NOT v_member THEN
    RETURN NEXT format('GRANT %I TO %I', v_owner, current_user);
  END IF;
  IF v_foreign AND NOT v_super AND NOT v_creates THEN
    RETURN NEXT format('GRANT CREATE ON DATABASE %I TO %I', current_database(), v_owner);
  END IF;
  IF v_foreign THEN
    -- one statement, in the order in which enqueue locks: locking table by table could deadlock with running work
    RETURN NEXT format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', (
      SELECT string_agg(format('%I.%I', current_schema(), t.name), ', ' ORDER BY t.place)
        FROM unnest('{message_limits,dedupe_keys,keys,messages,routes,destinations,deliveries,lane_tickets,'
                     'unrouted_messages,cursors,listeners,
                      lanes,leases,attempts,dead_letters,relays}'::text[])
             WITH ORDINALITY t(name, place)));
  END IF;
  IF v_foreign THEN RETURN NEXT format('ALTER SCHEMA %I OWNER TO %I', current_schema(), v_owner); END IF;
  RETURN QUERY
    SELECT format('ALTER %s %I.%I OWNER TO %I', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END,
                  current_schema(), c.relname, v_owner)
      FROM pg_class c
     WHERE c.relnamespace = v_schema
       AND c.relkind IN ('r', 'p', 'v')
       AND pg_get_userbyid(c.relowner) <> v_owner
     ORDER BY c.relname;
  RETURN QUERY
    SELECT format('ALTER TYPE %I.%I OWNER TO %I', current_schema(), t.typname, v_owner)
      FROM pg_type t
      LEFT JOIN pg_class c ON c.oid = t.typrelid
     WHERE t.typnamespace = v_schema
       AND (t.typtype IN ('e', 'd') OR c.relkind = 'c')
       AND pg_get_userbyid(t.typowner) <> v_owner
     ORDER BY t.typname;
  RETURN QUERY
    SELECT format('ALTER FUNCTION %I.%I(%s) OWNER TO %I', current_schema(), p.proname,
                  pg_get_function_identity_arguments(p.oid), v_owner)
      FROM pg_proc p
     WHERE p.pronamespace = v_schema
       AND pg_get_userbyid(p.proowner) <> v_owner
     ORDER BY p.proname;
  IF v_foreign AND NOT v_super AND NOT v_creates THEN
    RETURN NEXT format('REVOKE CREATE ON DATABASE %I FROM %I', current_database(), v_owner);
  END IF;
  RETURN QUERY SELECT * FROM missing_protection(v_names);
  RETURN QUERY SELECT * FROM missing_rights(v_names);
END $$;

-- Creates the roles and transfers all objects to the owner, in one transaction. Returns the statements that it ran. A
-- second call changes only what has changed since. A login that may not run one of the first statements is told what an
-- administrator has to run for it.
CREATE OR REPLACE FUNCTION install_roles(prefix text DEFAULT 'waybill_') RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_statements text[] := ARRAY (SELECT * FROM missing_roles(prefix));
  v_statement  text;
BEGIN
  FOREACH v_statement IN ARRAY v_statements LOOP
    EXECUTE v_statement;
    RETURN NEXT v_statement;
  END LOOP;
EXCEPTION WHEN insufficient_privilege THEN
  RAISE EXCEPTION USING ERRCODE = '42501',
    MESSAGE = format(
      '%s may not run %s: %s. Let an administrator run these statements, then run this again: %s',
      current_user, v_statement, SQLERRM, (
        SELECT string_agg(s.statement || ';', ' ' ORDER BY s.place)
          FROM (SELECT u.statement, u.place
                  FROM unnest(v_statements) WITH ORDINALITY u(statement, place)
                 WHERE u.statement ~ '^(CREATE ROLE|GRANT CREATE ON DATABASE) '
                UNION ALL
                SELECT format('GRANT %I TO %I', prefix || 'owner', current_user), cardinality(v_statements)) s));
END $$;
