-- Roles: which role may do what. The role owner, which cannot log in, owns all objects. The other roles get the
-- functions of role_functions and the tables listed here, and nothing else; every migration applies both again.
-- Functions run with the owner's rights and a fixed search_path, so only the reading roles have rights on tables.

-- The purpose of each role.
CREATE OR REPLACE FUNCTION role_kinds() RETURNS TABLE (role text, purpose text)
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('owner', 'owns the schema and everything in it; functions run with its rights; migrations are run by its members'),
    ('producer', 'enqueues messages'),
    ('consumer', 'asks the inbox whether a message is new'),
    ('relay', 'claims, delivers and settles; creates partitions'),
    ('maintenance', 'removes what has outlived its retention, and nothing that a retention floor keeps'),
    ('operator', 'retries, discards, skips, cancels, moves, pauses; endpoints and cursors'),
    ('control', 'reads everything, also the keys and their next sequences; the page and the API'),
    ('auditor', 'reads everything but the keys and their next sequences'),
    ('tenant_reader', 'reads the rows of the tenant that the setting waybill.tenant_id names')
$$;

-- The functions that each role may call, from the hooks rights_of_NAME (hooks.sql). Functions that are not listed can
-- be called only by the owner.
CREATE OR REPLACE FUNCTION role_functions() RETURNS TABLE (role text, function text)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_hook text;
BEGIN
  FOR v_hook IN SELECT hooks('rights') LOOP
    RETURN QUERY EXECUTE format(
      'SELECT r.role, f.name FROM %s() h, unnest(h.roles) r(role), unnest(h.functions) f(name)', v_hook);
  END LOOP;
END $$;

-- The rows that the role tenant_reader sees of each table: those of its tenant. Rows without a tenant column belong to
-- the tenant of their message. The destination of an endpoint belongs to the endpoint's tenant; destinations of
-- configurations are visible to all tenants.
CREATE OR REPLACE FUNCTION tenant_rows() RETURNS TABLE (relation text, expression text)
LANGUAGE sql IMMUTABLE
AS $$
  SELECT t.relation, t.expression
    FROM (VALUES
           ('messages', $e$tenant_id = nullif(current_setting('waybill.tenant_id', true), '')$e$),
           ('deliveries', $e$tenant_id = nullif(current_setting('waybill.tenant_id', true), '')$e$),
           ('dead_letters', $e$tenant_id = nullif(current_setting('waybill.tenant_id', true), '')$e$),
           ('message_identities', $e$tenant_id = nullif(current_setting('waybill.tenant_id', true), '')$e$),
           ('endpoints', $e$tenant_id = nullif(current_setting('waybill.tenant_id', true), '')$e$),
           -- row level security applies to these subqueries too: they find only messages of the tenant
           ('attempts',
            $e$EXISTS (SELECT FROM messages m WHERE m.id = attempts.message_id)
            OR EXISTS (SELECT FROM dead_letters d WHERE d.message_id = attempts.message_id)
            OR EXISTS (
                 SELECT FROM message_identities i
                  WHERE i.message_id = attempts.message_id)$e$),
           ('unrouted_messages',
            $e$EXISTS (SELECT FROM messages m WHERE m.id = unrouted_messages.message_id)$e$),
           ('destinations', $e$origin = 'file' OR id IN (SELECT e.destination_id FROM endpoints e)$e$)
         ) t(relation, expression)
$$;

-- The tenant that the session is limited to; null: none. The HTTP server sets it for requests with a token of one
-- tenant, as a second barrier behind its own checks.
CREATE OR REPLACE FUNCTION session_tenant() RETURNS text
LANGUAGE sql STABLE
AS $$
  SELECT nullif(current_setting('waybill.tenant_id', true), '')
$$;

-- The rows that the owner and the reading roles see, of tables where a limited session sees its tenant only. Functions
-- with the owner's rights are limited too. Not for tables of messages: the conditions of their indexes are not
-- leakproof, so with such a policy they would not be used.
CREATE OR REPLACE FUNCTION limited_rows() RETURNS TABLE (relation text, expression text)
LANGUAGE sql IMMUTABLE
AS $$
  VALUES ('endpoints', $e$coalesce(tenant_id = nullif(current_setting('waybill.tenant_id', true), ''),
            nullif(current_setting('waybill.tenant_id', true), '') IS NULL)$e$)
$$;

-- Whether the destination of an endpoint is hidden from a limited session: it belongs to another tenant, or to all.
CREATE OR REPLACE FUNCTION is_hidden(p_destination_id int) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT session_tenant() IS NOT NULL
         AND NOT EXISTS (
               SELECT FROM endpoints e
                WHERE e.destination_id = p_destination_id
                  AND e.tenant_id = session_tenant())
$$;

-- Every right of every role: grants, documentation and tests use this table. The reading roles can read every table and
-- view, also those of later versions, except the ones named here. Hashes of credentials can be read only by functions.
CREATE OR REPLACE FUNCTION role_rights() RETURNS TABLE (role text, kind text, object text, privilege text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  WITH relations AS (
    SELECT c.oid, c.relname::text AS name
      FROM pg_class c
     WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
       AND c.relkind IN ('r', 'p', 'v')
       AND NOT c.relispartition
       AND c.relname !~ '^(messages|attempts|message_identities)_[0-9]{8}(_kept)?$'),
  parted AS (
    SELECT h.role, h.relation, a.attname::text AS name
      FROM (VALUES
             ('control', 'tokens', '{hash}'::text[]),
             ('auditor', 'tokens', '{hash}'),
             ('control', 'sessions', '{hash}'),
             ('auditor', 'sessions', '{hash}'),
             ('tenant_reader', 'endpoints', '{secrets,sealed_headers,sealed_query,auth}')) h(role, relation, hidden)
      JOIN relations r ON r.name = h.relation
      JOIN pg_attribute a
        ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attname <> ALL (h.hidden))
  SELECT k.role, 'schema', current_schema()::text, 'USAGE'
    FROM role_kinds() k
   WHERE k.role <> 'owner'
  UNION ALL
  SELECT f.role, 'function', f.function, 'EXECUTE'
    FROM role_functions() f
  UNION ALL
  SELECT p.role, 'column', p.relation || '.' || p.name, 'SELECT'
    FROM parted p
  UNION ALL
  SELECT k.role, 'table', r.name, 'SELECT'
    FROM relations r
   CROSS JOIN (VALUES ('control'), ('auditor')) k(role)
   WHERE (k.role, r.name) NOT IN (SELECT p.role, p.relation FROM parted p)
     AND (k.role, r.name) <> ('auditor', 'keys')
  UNION ALL
  SELECT 'tenant_reader', 'table', t.name, 'SELECT'
    FROM (SELECT t.relation FROM tenant_rows() t WHERE t.relation <> 'endpoints'
          UNION ALL
          VALUES ('message_status'), ('attempt_log'), ('active_claims'), ('brought_back')) t(name)
$$;

-- The names of this schema's roles in this cluster. Without installed roles, only the owner of the schema.
CREATE OR REPLACE FUNCTION role_names() RETURNS jsonb
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT coalesce(jsonb_object_agg(r.role, r.name), '{}')
         || jsonb_build_object('owner', (
              SELECT pg_get_userbyid(n.nspowner)
                FROM pg_namespace n
               WHERE n.nspname = current_schema()))
    FROM roles r
$$;

-- The statements that are missing to protect every table. Protection means: row level security enabled and forced, with
-- one policy each for the owner, readers and tenants; no rights on a partition but the owner's; attempts,
-- operator_actions and seals append-only; pending work and history never truncated. Triggers guard the last two, and
-- must exist and be enabled. p_only: check this table only.
CREATE OR REPLACE FUNCTION missing_protection(p_names jsonb, p_only regclass DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN QUERY
    WITH tables AS (
      SELECT c.oid, format('%I.%I', current_schema(), c.relname) AS shown, x.name, c.relname <> x.name AS is_part,
             c.relrowsecurity AND c.relforcerowsecurity AS secured, c.relowner, c.relacl
        FROM pg_class c
       CROSS JOIN LATERAL (
              SELECT regexp_replace(c.relname::text, '^(messages|attempts|message_identities)_[0-9]{8}(_kept)?$',
                                    '\1') AS name) x
       WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
         AND c.relkind IN ('r', 'p')
         AND (p_only IS NULL OR c.oid = p_only)),
    wanted AS (
      SELECT t.oid, t.shown, 'owner' AS policy, 'ALL' AS command, ARRAY[p_names ->> 'owner'] AS roles,
             coalesce(l.expression, 'true') AS expression
        FROM tables t
        LEFT JOIN limited_rows() l ON l.relation = t.name
      UNION ALL
      SELECT t.oid, t.shown, 'readers', 'SELECT',
             ARRAY (
               SELECT p_names ->> k.role
                 FROM (VALUES ('control'), ('auditor')) k(role)
                WHERE (k.role, t.name) <> ('auditor', 'keys')),
             coalesce(l.expression, 'true')
        FROM tables t
        LEFT JOIN limited_rows() l ON l.relation = t.name
       WHERE NOT t.is_part
         AND p_names ? 'control'
      UNION ALL
      SELECT t.oid, t.shown, 'tenants', 'SELECT', ARRAY[p_names ->> 'tenant_reader'], r.expression
        FROM tables t
        JOIN tenant_rows() r ON r.relation = t.name
       WHERE NOT t.is_part
         AND p_names ? 'tenant_reader'),
    guarded AS (
      SELECT t.oid, t.shown, g.name, g.events
        FROM tables t
        JOIN (VALUES
               ('attempts', 'append_only', 'UPDATE OR DELETE OR TRUNCATE'),
               ('message_identities', 'append_only', 'UPDATE OR DELETE OR TRUNCATE'),
               ('operator_actions', 'append_only', 'UPDATE OR DELETE OR TRUNCATE'),
               ('seals', 'append_only', 'UPDATE OR DELETE OR TRUNCATE'),
               ('deliveries', 'never_truncated', 'TRUNCATE'),
               ('leases', 'never_truncated', 'TRUNCATE'),
               ('dead_letters', 'never_truncated', 'TRUNCATE'),
               ('messages', 'never_truncated', 'TRUNCATE'),
               ('dedupe_keys', 'never_truncated', 'TRUNCATE'),
               ('keys', 'never_truncated', 'TRUNCATE')) g(relation, name, events)
          ON g.relation = t.name)
    SELECT s.statement
      FROM (SELECT 1 AS place, t.oid,
                   format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', t.shown) AS statement
              FROM tables t
             WHERE NOT t.secured
            UNION ALL
            -- default privileges may have granted them
            SELECT DISTINCT 1, t.oid, format('REVOKE ALL ON TABLE %s FROM %s CASCADE', t.shown,
                                             CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END)
              FROM tables t, aclexplode(t.relacl) a
             WHERE t.is_part
               AND a.grantee <> t.relowner
            UNION ALL
            SELECT 2, w.oid,
                   format(CASE
                            WHEN p.oid IS NULL THEN 'CREATE POLICY %I ON %s FOR %s'
                            ELSE 'ALTER POLICY %I ON %s'
                          END, w.policy, w.shown, w.command)
                   || format(' TO %s USING (%s)',
                             (SELECT string_agg(quote_ident(r), ', ') FROM unnest(w.roles) r), w.expression)
                   -- PostgreSQL stores the expression in its own form, so a comment keeps the original for comparison
                   || CASE
                        WHEN w.expression <> 'true' THEN
                          format('; COMMENT ON POLICY %I ON %s IS %L', w.policy, w.shown, w.expression)
                        ELSE ''
                      END
              FROM wanted w
              LEFT JOIN pg_policy p ON p.polrelid = w.oid AND p.polname = w.policy
             WHERE ARRAY (SELECT quote_ident(r) FROM unnest(w.roles) r ORDER BY 1)
                   IS DISTINCT FROM
                   ARRAY (SELECT o::regrole::text FROM unnest(p.polroles) o ORDER BY 1)
                OR w.expression IS DISTINCT FROM coalesce(obj_description(p.oid, 'pg_policy'), 'true')
            UNION ALL
            SELECT 3, g.oid,
                   CASE
                     WHEN t.oid IS NULL THEN
                       format('CREATE TRIGGER %I BEFORE %s ON %s '
                              'FOR EACH STATEMENT EXECUTE FUNCTION %I.refuse_change(); ',
                              g.name, g.events, g.shown, current_schema())
                     ELSE ''
                   END
                   || format('ALTER TABLE %s ENABLE ALWAYS TRIGGER %I', g.shown, g.name)
              FROM guarded g
              LEFT JOIN pg_trigger t ON t.tgrelid = g.oid AND t.tgname = g.name
             WHERE t.tgenabled IS DISTINCT FROM 'A') s
     ORDER BY s.place, s.oid;
END $$;

-- The trigger function of guarded tables: refuses the change, whichever role makes it. Retention drops whole
-- partitions, which changes no rows.
CREATE OR REPLACE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'P0001',
    MESSAGE = format('%s of %s is refused: %s', TG_OP, TG_TABLE_NAME, CASE TG_NAME
      WHEN 'append_only' THEN 'it is a record, to which rows are only ever added'
      ELSE 'it would remove messages without a trace; cancel or discard them instead'
    END);
END $$;

-- The statements that are missing to give the roles the rights of role_rights, and no others in this schema.
CREATE OR REPLACE FUNCTION missing_rights(p_names jsonb) RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_schema regnamespace := quote_ident(current_schema())::regnamespace;
BEGIN
  RETURN QUERY
    WITH objects AS (
      SELECT 'schema' AS kind, n.nspname::text AS object, format('SCHEMA %I', n.nspname) AS shown,
             NULL::text AS part, n.nspacl AS acl
        FROM pg_namespace n
       WHERE n.oid = v_schema
      UNION ALL
      SELECT 'function', p.proname,
             format('FUNCTION %I.%I(%s)', current_schema(), p.proname, pg_get_function_identity_arguments(p.oid)),
             NULL, p.proacl
        FROM pg_proc p
       WHERE p.pronamespace = v_schema
      UNION ALL
      SELECT CASE c.relkind WHEN 'S' THEN 'sequence' ELSE 'table' END, c.relname,
             format('%s %I.%I', CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, current_schema(), c.relname),
             NULL, c.relacl
        FROM pg_class c
       WHERE c.relnamespace = v_schema
         AND c.relkind IN ('r', 'p', 'v', 'S')
      UNION ALL
      SELECT 'column', c.relname || '.' || a.attname, format('TABLE %I.%I', current_schema(), c.relname),
             quote_ident(a.attname), a.attacl
        FROM pg_class c
        JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
       WHERE c.relnamespace = v_schema
         AND c.relkind IN ('r', 'p', 'v')),
    named AS (
      SELECT n.key AS role, n.value AS name
        FROM jsonb_each_text(p_names) n
       WHERE n.key <> 'owner'),
    -- compared with their arguments, not by name: one of two functions with the same name may have its rights already
    granted AS (
      SELECT n.role, o.kind, o.shown, o.part, a.privilege_type AS privilege
        FROM objects o
       CROSS JOIN LATERAL aclexplode(o.acl) a
        JOIN pg_roles r ON r.oid = a.grantee
        JOIN named n ON n.name = r.rolname),
    wanted AS (
      SELECT w.role, w.kind, o.shown, o.part, w.privilege
        FROM role_rights() w
        JOIN named n ON n.role = w.role
        JOIN objects o ON o.kind = w.kind AND o.object = w.object),
    changes AS (
      SELECT 'GRANT' AS verb, 'TO' AS preposition, x.*
        FROM (SELECT * FROM wanted EXCEPT SELECT * FROM granted) x
      UNION ALL
      SELECT 'REVOKE', 'FROM', x.*
        FROM (SELECT * FROM granted EXCEPT SELECT * FROM wanted) x)
    SELECT format('%s %s%s ON %s %s %I', c.verb, c.privilege,
                  ' (' || string_agg(c.part, ', ' ORDER BY c.part) || ')', c.shown, c.preposition, n.name)
      FROM changes c
      JOIN named n ON n.role = c.role
     GROUP BY c.verb, c.preposition, c.privilege, c.kind, c.shown, n.name
     ORDER BY c.verb DESC, n.name, c.kind, c.shown;
END $$;

-- Applies protection and rights at the end of every migration. It changes only what is missing or wrong. Returns the
-- statements that it ran.
CREATE OR REPLACE FUNCTION apply_rights() RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_names     jsonb := role_names();
  v_statement text;
BEGIN
  FOR v_statement IN
    SELECT s FROM missing_protection(v_names) s
    UNION ALL
    SELECT s FROM missing_rights(v_names) s
  LOOP
    EXECUTE v_statement;
    RETURN NEXT v_statement;
  END LOOP;
END $$;
