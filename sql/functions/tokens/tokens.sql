-- Tokens: access to the HTTP API. Tokens are long and random. The database stores only their SHA-256, so that read
-- access to it does not give access to the API.

-- Adds a token by its hash. scope: read, operate (retry, discard, pause …) or admin (everything; at present no route
-- needs more than operate).
CREATE OR REPLACE FUNCTION add_token(
  p_name       text,
  p_hash       bytea,
  p_scope      text DEFAULT 'read',
  p_tenant_id  text DEFAULT NULL,
  p_expires_at timestamptz DEFAULT 'infinity',
  p_actor      text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_name IS NULL OR p_name !~ '^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}$' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_name is %s: use letters, digits, _ - . and @, at most 63',
                       coalesce('"' || left(p_name, 60) || '"', 'null'));
  ELSIF p_scope IS NULL OR p_scope NOT IN ('read', 'operate', 'admin') THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_scope is %s: use read, operate or admin', coalesce(left(p_scope, 60), 'null'));
  ELSIF octet_length(p_hash) IS DISTINCT FROM 32 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'p_hash is not a SHA-256: give sha256 of the token''s bytes';
  END IF;
  INSERT INTO tokens (name, hash, scope, tenant_id, expires_at)
  VALUES (p_name, p_hash, p_scope, p_tenant_id, coalesce(p_expires_at, 'infinity'));
  PERFORM record_action(p_actor, 'add_token',
                        jsonb_build_object('name', p_name, 'scope', p_scope, 'tenantId', p_tenant_id), 1);
EXCEPTION WHEN unique_violation THEN
  RAISE EXCEPTION USING ERRCODE = '23505',
    MESSAGE = format('there is a token "%s" already: choose another name, or remove it first', p_name);
END $$;

-- Adds a tenant token by its hash: it opens the endpoints of one tenant over HTTP until it ends. scope: read or
-- operate. lifetime: a minute to a day. Returns its name, which actions are recorded with, and its end. Tenant tokens
-- that have ended are deleted here, so that they do not pile up.
CREATE OR REPLACE FUNCTION add_tenant_token(
  tenant_id      text,
  hash           bytea,
  scope          text DEFAULT 'operate',
  lifetime       interval DEFAULT '1 hour',
  actor          text DEFAULT NULL,
  OUT name       text,
  OUT expires_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
BEGIN
  IF tenant_id IS NULL OR tenant_id = '' OR octet_length(tenant_id) > 255 THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('tenant_id is %s: give a tenant id of 1 to 255 bytes',
                       coalesce('"' || left(tenant_id, 60) || '"', 'null'));
  ELSIF scope IS NULL OR scope NOT IN ('read', 'operate') THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('scope is %s: use read or operate', coalesce(left(scope, 60), 'null'));
  ELSIF octet_length(hash) IS DISTINCT FROM 32 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'hash is not a SHA-256: give sha256 of the token''s bytes';
  END IF;
  -- a token of one tenant must not lead to another tenant, or to a longer life
  IF session_tenant() IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = 'a session that is limited to a tenant cannot add tokens';
  END IF;
  PERFORM checked_interval('lifetime', lifetime, '1 minute', '1 day');
  DELETE FROM tokens t
   WHERE t.ctid = ANY (ARRAY (
           SELECT x.ctid
             FROM tokens x
            WHERE x.for_endpoints
              AND x.expires_at < clock_timestamp()
            ORDER BY x.expires_at
            LIMIT 100
              FOR UPDATE SKIP LOCKED));
  name := 'tenant-' || new_id();
  expires_at := clock_timestamp() + lifetime;
  INSERT INTO tokens (name, hash, scope, tenant_id, expires_at, for_endpoints)
  VALUES (name, hash, scope, tenant_id, expires_at, true);
  PERFORM record_action(actor, 'add_tenant_token',
                        jsonb_build_object('name', name, 'scope', scope, 'tenantId', tenant_id), 1);
END $$;

-- Removes a token and ends its logins. False if there is no token of that name.
CREATE OR REPLACE FUNCTION remove_token(p_name text, p_actor text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  DELETE FROM tokens WHERE name = p_name;
  IF FOUND THEN PERFORM record_action(p_actor, 'remove_token', jsonb_build_object('name', p_name), 1); END IF;
  RETURN FOUND;
END $$;

-- Finds the valid tokens and logins among these hashes, each with its token and its expiry. It takes many hashes at
-- once, so that wrong ones cost little.
CREATE OR REPLACE FUNCTION find_access(p_hashes bytea[])
RETURNS TABLE (
  hash bytea, name text, scope text, tenant_id text, for_endpoints boolean, expires_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_now    timestamptz := clock_timestamp();
  v_unused text[];
BEGIN
  RETURN QUERY
    SELECT h.hash, t.name, t.scope, t.tenant_id, t.for_endpoints, t.expires_at
      FROM unnest(p_hashes) h(hash)
      JOIN tokens t ON t.hash = h.hash
     WHERE t.expires_at > v_now
    UNION ALL
    SELECT s.hash, t.name, t.scope, t.tenant_id, t.for_endpoints, least(s.expires_at, t.expires_at)
      FROM unnest(p_hashes) h(hash)
      JOIN sessions s ON s.hash = h.hash
      JOIN tokens t ON t.name = s.token
     WHERE s.expires_at > v_now
       AND t.expires_at > v_now;
  IF NOT FOUND THEN RETURN; END IF;
  -- written at most once a minute: enough to see which tokens are still in use
  v_unused := ARRAY (
    SELECT t.name
      FROM tokens t
     WHERE (t.hash = ANY (p_hashes)
            OR t.name IN (SELECT s.token FROM sessions s WHERE s.hash = ANY (p_hashes)))
       AND (t.last_used_at IS NULL OR t.last_used_at < v_now - interval '1 minute'));
  IF v_unused <> '{}' THEN
    UPDATE tokens t
       SET last_used_at = v_now
     WHERE t.ctid = ANY (ARRAY (
             SELECT x.ctid
               FROM tokens x
              WHERE x.name = ANY (v_unused)
                FOR UPDATE SKIP LOCKED));
  END IF;
END $$;

-- Begins a login: stores the hash of a session that was made with a valid token. False if the token is not valid, or a
-- tenant token, which opens no page.
CREATE OR REPLACE FUNCTION begin_session(p_token_hash bytea, p_session_hash bytea, p_lifetime interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  DELETE FROM sessions WHERE expires_at < clock_timestamp();
  INSERT INTO sessions (hash, token, expires_at)
  SELECT p_session_hash, t.name, least(clock_timestamp() + p_lifetime, t.expires_at)
    FROM tokens t
   WHERE t.hash = p_token_hash
     AND NOT t.for_endpoints
     AND t.expires_at > clock_timestamp();
  RETURN FOUND;
END $$;

-- Ends a login.
CREATE OR REPLACE FUNCTION end_session(p_session_hash bytea) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  DELETE FROM sessions WHERE hash = p_session_hash
$$;
