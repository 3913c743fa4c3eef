-- Endpoints: webhooks of customers, stored in the database, added and changed while relays run. An endpoint is a
-- destination with its own routes, so all features of destinations (retries, dead letters, keys, pauses) apply to it.
-- Secrets arrive here encrypted (sealed): read access to the database does not reveal them.

-- Notifies relays that listen; the others poll every second. Two-phase transactions cannot notify: see notify_relays.
CREATE OR REPLACE FUNCTION announce_endpoints() RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF current_setting('waybill.notify', true) = 'off' THEN RETURN; END IF;
  PERFORM pg_notify(notification_channel(), 'endpoints');
END $$;

-- The endpoint of this name, locked. With p_tenant_id, endpoints of other tenants count as unknown.
CREATE OR REPLACE FUNCTION find_endpoint(p_name text, p_tenant_id text DEFAULT NULL) RETURNS endpoints
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_endpoint endpoints;
BEGIN
  SELECT e.*
    INTO v_endpoint
    FROM endpoints e
    JOIN destinations d ON d.id = e.destination_id
   WHERE d.name = p_name
     AND (p_tenant_id IS NULL OR e.tenant_id = p_tenant_id)
     AND e.removed_at IS NULL
     FOR UPDATE OF e;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = 'P0002',
      MESSAGE = format('endpoint %s does not exist%s', coalesce('"' || left(p_name, 63) || '"', 'null'),
                       coalesce(format(' for tenant "%s"', left(p_tenant_id, 60)), '')),
      HINT = 'waybill endpoints list shows those that do.';
  END IF;
  RETURN v_endpoint;
END $$;

-- Validates an endpoint: returns the first problem, or null. Keep it in step with
-- src/features/endpoints/description.ts, which checks the same rules before the database is called. The address is not
-- shown, because it may contain a secret.
CREATE OR REPLACE FUNCTION endpoint_problem(p_endpoint endpoints) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN p_endpoint.url IS NULL
         OR p_endpoint.url !~ '^https?://[^/?#@\s]+([/?#]\S*)?$'
         OR octet_length(p_endpoint.url) > 2048 THEN
      'url must be an http:// or https:// address of at most 2048 bytes, without user and password'
    WHEN p_endpoint.topics IS NULL OR cardinality(p_endpoint.topics) NOT BETWEEN 1 AND 100 THEN
      format('topics has %s entries: give 1 to 100', coalesce(cardinality(p_endpoint.topics), 0))
    WHEN (SELECT bool_or(t IS NULL OR t !~ '^(\*|[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*(\.\*)?)$'
                         OR octet_length(t) > 255)
            FROM unnest(p_endpoint.topics) t) THEN
      (SELECT format('topics has "%s": give an exact topic, user.* or *', left(t, 60))
         FROM unnest(p_endpoint.topics) t
        WHERE t IS NULL
           OR t !~ '^(\*|[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*(\.\*)?)$'
           OR octet_length(t) > 255
        LIMIT 1)
    WHEN p_endpoint.namespace !~ '^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$'
         OR octet_length(p_endpoint.namespace) > 255 THEN
      format('namespace "%s" is malformed: use words of letters, digits, _ and -, joined by . : or /, '
             'at most 255 bytes', left(p_endpoint.namespace, 60))
    WHEN p_endpoint.tenant_id = '' OR octet_length(p_endpoint.tenant_id) > 255 THEN
      format('tenantId "%s" must have 1 to 255 bytes: leave it out for all tenants', left(p_endpoint.tenant_id, 60))
    WHEN p_endpoint.body NOT IN ('payload', 'envelope', 'cloudevents', 'cloudevents-structured') THEN
      format('body "%s" is unknown: use payload, envelope, cloudevents or cloudevents-structured',
             left(p_endpoint.body, 60))
    WHEN octet_length(p_endpoint.description) > 1000 THEN 'description has more than 1000 bytes: shorten it'
    WHEN p_endpoint.sealed_headers !~ '^sealed:1:' THEN
      'headers are not sealed: use waybill endpoints, or createEndpoints()'
    -- room for 8 KiB of headers in JSON, encrypted and in base64; their number is checked before they are encrypted
    WHEN octet_length(p_endpoint.sealed_headers) > 24576 THEN
      format('sealed headers have %s bytes, and at most 24576 are allowed: give fewer or shorter headers',
             octet_length(p_endpoint.sealed_headers))
    WHEN jsonb_array_length(p_endpoint.secrets) NOT BETWEEN 1 AND 5 THEN
      format('it has %s secrets: at most 5 sign at once; retire the old ones first',
             jsonb_array_length(p_endpoint.secrets))
    WHEN EXISTS (
           SELECT FROM jsonb_array_elements(p_endpoint.secrets) s
            WHERE s ->> 'sealed' IS NULL
               OR s ->> 'sealed' !~ '^sealed:1:') THEN
      'a secret is not sealed: use waybill endpoints, or createEndpoints()'
    WHEN EXISTS (
           SELECT FROM jsonb_array_elements(p_endpoint.secrets) s
            WHERE octet_length(s ->> 'sealed') > 1024) THEN
      'a sealed secret has more than 1024 bytes: give one that waybill endpoints, or createEndpoints(), has sealed'
  END
$$;

-- Checks and stores a changed endpoint with its routes, and notifies the relays.
CREATE OR REPLACE FUNCTION save_endpoint(p_endpoint endpoints, p_name text, p_actor text, p_action text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_problem text := endpoint_problem(p_endpoint);
BEGIN
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was changed.';
  END IF;
  UPDATE endpoints e
     SET url = p_endpoint.url, topics = p_endpoint.topics, namespace = p_endpoint.namespace,
         description = p_endpoint.description, body = p_endpoint.body, secrets = p_endpoint.secrets,
         sealed_headers = p_endpoint.sealed_headers, changed_at = clock_timestamp(), version = e.version + 1,
         changed_in = pg_current_xact_id()
   WHERE e.destination_id = p_endpoint.destination_id;
  DELETE FROM routes r
   WHERE r.destination_id = p_endpoint.destination_id
     AND (r.topic <> ALL (p_endpoint.topics) OR r.namespace IS DISTINCT FROM p_endpoint.namespace);
  INSERT INTO routes (destination_id, topic, namespace, tenant_id, owner)
  SELECT DISTINCT p_endpoint.destination_id, t, p_endpoint.namespace, p_endpoint.tenant_id, 'endpoints'
    FROM unnest(p_endpoint.topics) t
  ON CONFLICT DO NOTHING;
  PERFORM record_action(p_actor, p_action, jsonb_build_object('endpoint', p_name, 'tenantId', p_endpoint.tenant_id), 1);
  PERFORM announce_endpoints();
END $$;

-- Refuses another endpoint of a tenant that has reached the limit. Sessions that add endpoints of the same tenant are
-- serialized. Endpoints for all tenants are not counted: they belong to the operator.
CREATE OR REPLACE FUNCTION refuse_too_many_endpoints(p_tenant_id text, p_most int) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count bigint;
BEGIN
  IF p_tenant_id IS NULL THEN RETURN; END IF;
  PERFORM take_lock('endpoints of ' || p_tenant_id);
  -- A transaction with an older snapshot (REPEATABLE READ) would count old endpoints: the update makes it fail.
  UPDATE locks l SET name = l.name WHERE l.name = 'endpoints of ' || p_tenant_id;
  -- a separate statement, so that its snapshot is newer than the lock
  SELECT count(*)
    INTO v_count
    FROM endpoints e
   WHERE e.tenant_id = p_tenant_id
     AND e.removed_at IS NULL;
  IF v_count < p_most THEN RETURN; END IF;
  RAISE EXCEPTION USING ERRCODE = '54000',
    MESSAGE = format('tenant "%s" has %s endpoints, and at most %s are allowed',
                     left(p_tenant_id, 60), v_count, p_most),
    HINT = 'Nothing was added. Remove an endpoint first, '
           'or raise endpoints.maxPerTenant in the configuration of the relays.';
END $$;

-- Adds an endpoint. endpoint: {url, topics, tenantId, namespace, description, body, sealedHeaders, sealedSecret,
-- fingerprint}. Without tenantId it gets the messages of all tenants. A name stays taken
-- until retention deletes the removed endpoint (prune_endpoints).
CREATE OR REPLACE FUNCTION add_endpoint(name text, endpoint jsonb, actor text DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_fields   text[] := '{url,topics,tenantId,namespace,description,body,sealedHeaders,sealedSecret,fingerprint}';
  v_unknown  text := (
    SELECT k FROM jsonb_object_keys(endpoint) k WHERE k <> ALL (v_fields) LIMIT 1);
  v_settings endpoint_settings;
  v_endpoint endpoints;
  v_problem  text;
BEGIN
  IF v_unknown IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('%s is not a field of an endpoint: use %s', v_unknown, array_to_string(v_fields, ', '));
  END IF;
  IF EXISTS (SELECT FROM destinations d WHERE d.name = add_endpoint.name) THEN
    RAISE EXCEPTION USING ERRCODE = '23505',
      MESSAGE = format(
        'the name "%s" is taken%s: choose another', left(name, 63),
        CASE
          WHEN EXISTS (
                 SELECT FROM destinations d
                   JOIN endpoints e ON e.destination_id = d.id
                  WHERE d.name = add_endpoint.name
                    AND e.removed_at IS NOT NULL)
          THEN ' by an endpoint that was removed'
          ELSE ''
        END);
  END IF;
  v_endpoint.url := endpoint ->> 'url';
  v_endpoint.topics := ARRAY (
    SELECT t
      FROM jsonb_array_elements_text(
             CASE jsonb_typeof(endpoint -> 'topics') WHEN 'array' THEN endpoint -> 'topics' ELSE '[]' END) t);
  v_endpoint.tenant_id := endpoint ->> 'tenantId';
  v_endpoint.namespace := endpoint ->> 'namespace';
  v_endpoint.description := endpoint ->> 'description';
  v_endpoint.body := endpoint ->> 'body';
  v_endpoint.sealed_headers := endpoint ->> 'sealedHeaders';
  v_endpoint.secrets := jsonb_build_array(jsonb_build_object(
    'sealed', endpoint ->> 'sealedSecret', 'fingerprint', endpoint ->> 'fingerprint', 'since', clock_timestamp()));
  v_problem := endpoint_problem(v_endpoint);
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was added.';
  END IF;
  SELECT * INTO STRICT v_settings FROM endpoint_settings;
  PERFORM refuse_too_many_endpoints(v_endpoint.tenant_id, v_settings.max_per_tenant);
  v_endpoint.destination_id := store_destination(
    'endpoints', NULL, name, 'endpoint', v_settings.max_attempts, v_settings.retry_base_ms, v_settings.retry_max_ms,
    v_settings.retry_delays_ms, v_settings.when_dead, 'none');
  INSERT INTO endpoints (destination_id, url, topics, namespace, tenant_id, secrets, version)
  VALUES (v_endpoint.destination_id, v_endpoint.url, v_endpoint.topics, v_endpoint.namespace, v_endpoint.tenant_id,
          v_endpoint.secrets, 0)
  ON CONFLICT DO NOTHING;
  -- of two sessions that add the same name, the second waits for the destination's row, and finds this endpoint
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '23505',
      MESSAGE = format('the name "%s" is taken: choose another', left(name, 63));
  END IF;
  PERFORM save_endpoint(v_endpoint, name, actor, 'add_endpoint');
  RETURN v_endpoint.destination_id;
END $$;

-- Changes the fields that are given: {url, topics, namespace, description, body, sealedHeaders}. Pending deliveries go
-- to the new address. The tenant cannot be changed, because pending deliveries belong to it.
CREATE OR REPLACE FUNCTION change_endpoint(
  name      text,
  changes   jsonb,
  tenant_id text DEFAULT NULL,
  actor     text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_fields   text[] := '{url,topics,namespace,description,body,sealedHeaders}';
  v_unknown  text := (
    SELECT k FROM jsonb_object_keys(changes) k WHERE k <> ALL (v_fields) LIMIT 1);
  v_endpoint endpoints := find_endpoint(name, tenant_id);
BEGIN
  IF v_unknown IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('%s cannot be changed: use %s', v_unknown, array_to_string(v_fields, ', '));
  END IF;
  IF changes ? 'url' THEN v_endpoint.url := changes ->> 'url'; END IF;
  IF changes ? 'topics' THEN
    v_endpoint.topics := ARRAY (
      SELECT t
        FROM jsonb_array_elements_text(
               CASE jsonb_typeof(changes -> 'topics') WHEN 'array' THEN changes -> 'topics' ELSE '[]' END) t);
  END IF;
  IF changes ? 'namespace' THEN v_endpoint.namespace := changes ->> 'namespace'; END IF;
  IF changes ? 'description' THEN v_endpoint.description := changes ->> 'description'; END IF;
  IF changes ? 'body' THEN v_endpoint.body := changes ->> 'body'; END IF;
  IF changes ? 'sealedHeaders' THEN v_endpoint.sealed_headers := changes ->> 'sealedHeaders'; END IF;
  PERFORM save_endpoint(v_endpoint, name, actor, 'change_endpoint');
END $$;

-- Adds a secret that signs from now on, beside the old ones; at most 5 sign at once.
CREATE OR REPLACE FUNCTION rotate_endpoint(
  name          text,
  sealed_secret text,
  fingerprint   text,
  tenant_id     text DEFAULT NULL,
  actor         text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_endpoint endpoints := find_endpoint(name, tenant_id);
BEGIN
  v_endpoint.secrets :=
    jsonb_build_array(jsonb_build_object(
      'sealed', sealed_secret, 'fingerprint', fingerprint, 'since', clock_timestamp()))
    || v_endpoint.secrets;
  PERFORM save_endpoint(v_endpoint, name, actor, 'rotate_endpoint');
END $$;

-- Ends the overlap of a rotation: only the newest secret is kept. Returns how many were retired.
CREATE OR REPLACE FUNCTION retire_endpoint_secrets(name text, tenant_id text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_endpoint endpoints := find_endpoint(name, tenant_id);
  v_retired  int := jsonb_array_length(v_endpoint.secrets) - 1;
BEGIN
  IF v_retired = 0 THEN RETURN 0; END IF;
  v_endpoint.secrets := jsonb_build_array(v_endpoint.secrets -> 0);
  PERFORM save_endpoint(v_endpoint, name, actor, 'retire_endpoint_secrets');
  RETURN v_retired;
END $$;

-- Stores the same secrets and headers, sealed with another key, unless the endpoint has changed since it was read.
CREATE OR REPLACE FUNCTION reseal_endpoint(
  name           text,
  version        int,
  secrets        jsonb,
  sealed_headers text,
  actor          text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_endpoint endpoints := find_endpoint(name);
BEGIN
  IF v_endpoint.version <> version THEN RETURN false; END IF;
  v_endpoint.secrets := secrets;
  v_endpoint.sealed_headers := sealed_headers;
  PERFORM save_endpoint(v_endpoint, name, actor, 'reseal_endpoint');
  RETURN true;
END $$;

-- Enables or disables an endpoint. Deliveries of a disabled endpoint stay pending and continue when it is enabled
-- again. The reason is kept while it is disabled.
CREATE OR REPLACE FUNCTION set_endpoint_enabled(
  name      text,
  enabled   boolean,
  tenant_id text DEFAULT NULL,
  actor     text DEFAULT NULL,
  reason    text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
BEGIN
  PERFORM find_endpoint(name, tenant_id);
  PERFORM set_paused(name, NOT enabled, actor, reason);
END $$;

-- Removes an endpoint: no more messages are routed to it, and its secrets are deleted. Pending deliveries stay until
-- they are moved (move_deliveries) or discarded (discard_deliveries). Returns whether there are any.
CREATE OR REPLACE FUNCTION remove_endpoint(name text, tenant_id text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_endpoint endpoints := find_endpoint(name, tenant_id);
BEGIN
  DELETE FROM routes r WHERE r.destination_id = v_endpoint.destination_id;
  UPDATE destinations d
     SET configured = false, changed_at = clock_timestamp()
   WHERE d.id = v_endpoint.destination_id;
  UPDATE endpoints e
     SET removed_at = clock_timestamp(), changed_at = clock_timestamp(), secrets = '[]', sealed_headers = NULL,
         version = e.version + 1, changed_in = pg_current_xact_id()
   WHERE e.destination_id = v_endpoint.destination_id;
  PERFORM record_action(actor, 'remove_endpoint',
                        jsonb_build_object('endpoint', name, 'tenantId', v_endpoint.tenant_id), 1);
  PERFORM announce_endpoints();
  RETURN EXISTS (SELECT FROM deliveries d WHERE d.destination_id = v_endpoint.destination_id);
END $$;

-- Deletes endpoints that were removed long ago, once nothing of them is left: no delivery, lease or dead letter, and no
-- day of messages or attempts from before the removal. Until then, the record needs their names.
CREATE OR REPLACE FUNCTION prune_endpoints(p_older_than interval DEFAULT '30 days', p_batch int DEFAULT 1000)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_before timestamptz;
  v_ids    int[];
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  PERFORM checked_interval('p_older_than', p_older_than, '1 day', '100 years');
  SELECT least(now() - p_older_than, min(b.day)::timestamptz)
    INTO v_before
    FROM (SELECT * FROM partition_bounds('messages')
          UNION ALL
          SELECT * FROM partition_bounds('attempts')) b;
  v_ids := ARRAY (
    SELECT e.destination_id
      FROM endpoints e
     WHERE e.removed_at < v_before
       AND NOT EXISTS (SELECT FROM deliveries d WHERE d.destination_id = e.destination_id)
       AND NOT EXISTS (SELECT FROM leases l WHERE l.destination_id = e.destination_id)
       AND NOT EXISTS (SELECT FROM dead_letters d WHERE d.destination_id = e.destination_id)
     ORDER BY e.destination_id
     LIMIT p_batch
       FOR UPDATE SKIP LOCKED);
  DELETE FROM lane_tickets WHERE destination_id = ANY (v_ids);
  DELETE FROM lanes WHERE destination_id = ANY (v_ids);
  DELETE FROM listeners WHERE destination_id = ANY (v_ids);
  DELETE FROM destination_owners WHERE destination_id = ANY (v_ids);
  DELETE FROM endpoints WHERE destination_id = ANY (v_ids);
  DELETE FROM destinations WHERE id = ANY (v_ids);
  RETURN cardinality(v_ids);
END $$;

-- The endpoints that have changed since a relay last looked, and the snapshot for its next call; null: none, only the
-- snapshot. A change is found by its transaction, not by a time or a counter. So a change that commits late is not
-- missed, and transactions that change endpoints do not wait for each other.
CREATE OR REPLACE FUNCTION endpoint_changes(p_since pg_snapshot DEFAULT NULL)
RETURNS TABLE (seen pg_snapshot, destination_id int, version int, removed boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
    SELECT pg_current_snapshot(), e.destination_id, e.version, e.removed_at IS NOT NULL
      FROM (SELECT) one
      LEFT JOIN endpoints e
        ON e.changed_in >= pg_snapshot_xmin(p_since)
       AND NOT pg_visible_in_snapshot(e.changed_in, p_since);
END $$;

-- Endpoints with their sealed secrets, without removed ones: those of these destinations, or all of them for null.
CREATE OR REPLACE FUNCTION read_endpoints(p_destination_ids int[] DEFAULT NULL)
RETURNS TABLE (
  destination_id int, name text, tenant_id text, url text, body text, secrets jsonb, sealed_headers text, version int)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
    SELECT e.destination_id, d.name, e.tenant_id, e.url, e.body, e.secrets, e.sealed_headers, e.version
      FROM endpoints e
      JOIN destinations d ON d.id = e.destination_id
     WHERE e.removed_at IS NULL
       AND (p_destination_ids IS NULL OR e.destination_id = ANY (p_destination_ids));
END $$;

-- Stores the settings that all endpoints share, as configured: they apply to existing endpoints and to new ones.
-- p_settings: {maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs, whenDead, maxPerTenant}.
CREATE OR REPLACE FUNCTION sync_endpoint_settings(p_settings jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v endpoint_settings;
BEGIN
  PERFORM lock_definitions();
  UPDATE endpoint_settings s
     SET (max_attempts, retry_base_ms, retry_max_ms, retry_delays_ms, when_dead, max_per_tenant) =
         (SELECT g."maxAttempts", g."retryBaseMs", g."retryMaxMs", g."retryDelaysMs", g."whenDead", g."maxPerTenant"
            FROM jsonb_to_record(p_settings)
              AS g("maxAttempts" int, "retryBaseMs" bigint, "retryMaxMs" bigint, "retryDelaysMs" bigint[],
                   "whenDead" text, "maxPerTenant" int))
  RETURNING * INTO v;
  PERFORM store_destination('endpoints', NULL, d.name, d.kind, v.max_attempts, v.retry_base_ms, v.retry_max_ms,
                            v.retry_delays_ms, v.when_dead, 'none')
     FROM endpoints e
     JOIN destinations d ON d.id = e.destination_id
    WHERE e.removed_at IS NULL
      AND (d.max_attempts, d.retry_base_ms, d.retry_max_ms, d.retry_delays_ms, d.when_dead)
          IS DISTINCT FROM
          (coalesce(cardinality(v.retry_delays_ms) + 1, v.max_attempts), v.retry_base_ms, v.retry_max_ms,
           v.retry_delays_ms, v.when_dead);
END $$;
