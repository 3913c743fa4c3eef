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
    WHEN filter_problem(p_endpoint.filter) IS NOT NULL THEN filter_problem(p_endpoint.filter)
    WHEN labels_problem(p_endpoint.labels) IS NOT NULL THEN labels_problem(p_endpoint.labels)
    WHEN p_endpoint.sealed_query !~ '^sealed:1:' OR octet_length(p_endpoint.sealed_query) > 8192 THEN
      'query is not sealed, or too long: use waybill endpoints, or createEndpoints()'
    WHEN octet_length(p_endpoint.description) > 1000 THEN 'description has more than 1000 bytes: shorten it'
    WHEN p_endpoint.sealed_headers !~ '^sealed:1:' THEN
      'headers are not sealed: use waybill endpoints, or createEndpoints()'
    -- room for 8 KiB of headers in JSON, encrypted and in base64; their number is checked before they are encrypted
    WHEN octet_length(p_endpoint.sealed_headers) > 24576 THEN
      format('sealed headers have %s bytes, and at most 24576 are allowed: give fewer or shorter headers',
             octet_length(p_endpoint.sealed_headers))
    WHEN p_endpoint.auth IS NOT NULL
         AND (p_endpoint.auth ->> 'type' IN ('basic', 'oauth2')
              AND p_endpoint.auth ->> 'sealed' ~ '^sealed:1:'
              AND octet_length(p_endpoint.auth::text) <= 16384) IS NOT TRUE THEN
      'auth is not sealed, or of an unknown type: use waybill endpoints, or createEndpoints()'
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
         sealed_headers = p_endpoint.sealed_headers, sealed_query = p_endpoint.sealed_query,
         auth = p_endpoint.auth,
         filter = p_endpoint.filter, expire_after_ms = p_endpoint.expire_after_ms, rate = p_endpoint.rate,
         concurrency = p_endpoint.concurrency, timeout_ms = p_endpoint.timeout_ms, labels = p_endpoint.labels,
         changed_at = clock_timestamp(), version = e.version + 1, changed_in = pg_current_xact_id()
   WHERE e.destination_id = p_endpoint.destination_id;
  UPDATE destinations d
     SET filter = filter_path(p_endpoint.filter)
   WHERE d.id = p_endpoint.destination_id
     AND d.filter IS DISTINCT FROM filter_path(p_endpoint.filter);
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

-- The fields of an endpoint that can be changed.
CREATE OR REPLACE FUNCTION endpoint_fields() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{url,topics,namespace,description,body,sealedHeaders,sealedQuery,auth,filter,expireAfterMs,rate,concurrency,'
         'timeoutMs,labels}'::text[]
$$;

-- A number among the fields of an endpoint; null if it is given as null.
CREATE OR REPLACE FUNCTION endpoint_number(p_fields jsonb, p_field text, p_min numeric, p_max numeric) RETURNS numeric
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_value jsonb := nullif(p_fields -> p_field, 'null');
BEGIN
  IF jsonb_typeof(v_value) <> 'number'
     OR (v_value #>> '{}')::numeric NOT BETWEEN p_min AND p_max
     OR ((v_value #>> '{}')::numeric % 1 <> 0 AND p_min >= 1)
  THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('%s is %s: give a%s number from %s to %s', p_field, left(v_value::text, 60),
                       CASE WHEN p_min >= 1 THEN ' whole' ELSE '' END, p_min, p_max);
  END IF;
  RETURN (v_value #>> '{}')::numeric;
END $$;

-- Validates the labels of an endpoint: returns the first problem, or null.
CREATE OR REPLACE FUNCTION labels_problem(p_labels jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN p_labels IS NULL THEN NULL
    WHEN jsonb_typeof(p_labels) <> 'object' THEN
      format('labels is %s: give an object of names and texts', left(p_labels::text, 60))
    WHEN (SELECT count(*) FROM jsonb_object_keys(p_labels)) > 20 THEN 'labels has more than 20 entries: give fewer'
    ELSE (
      SELECT format('labels.%s is %s: give a name of letters, digits, _ . and -, at most 63, '
                    'and a text of 1 to 255 bytes without commas and control characters',
                    left(l.name, 63), left(l.value::text, 60))
        FROM jsonb_each(p_labels) l(name, value)
       WHERE l.name !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$'
          OR jsonb_typeof(l.value) <> 'string'
          OR octet_length(l.value #>> '{}') NOT BETWEEN 1 AND 255
          OR l.value #>> '{}' ~ '[,\x01-\x1f\x7f]'
       LIMIT 1)
  END
$$;

-- The endpoint with the given fields changed; null clears an optional field. Fields with configured bounds are checked
-- only here, when they are set, so that an endpoint stays valid when bounds are lowered.
CREATE OR REPLACE FUNCTION endpoint_with(p_endpoint endpoints, p_fields jsonb) RETURNS endpoints
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_endpoint endpoints := p_endpoint;
  v_settings endpoint_settings;
BEGIN
  SELECT * INTO STRICT v_settings FROM endpoint_settings;
  IF p_fields ? 'url' THEN v_endpoint.url := p_fields ->> 'url'; END IF;
  IF p_fields ? 'topics' THEN
    v_endpoint.topics := ARRAY (
      SELECT t
        FROM jsonb_array_elements_text(
               CASE jsonb_typeof(p_fields -> 'topics') WHEN 'array' THEN p_fields -> 'topics' ELSE '[]' END) t);
  END IF;
  IF p_fields ? 'namespace' THEN v_endpoint.namespace := p_fields ->> 'namespace'; END IF;
  IF p_fields ? 'description' THEN v_endpoint.description := p_fields ->> 'description'; END IF;
  IF p_fields ? 'body' THEN v_endpoint.body := p_fields ->> 'body'; END IF;
  IF p_fields ? 'sealedHeaders' THEN v_endpoint.sealed_headers := p_fields ->> 'sealedHeaders'; END IF;
  IF p_fields ? 'sealedQuery' THEN v_endpoint.sealed_query := p_fields ->> 'sealedQuery'; END IF;
  IF p_fields ? 'auth' THEN v_endpoint.auth := nullif(p_fields -> 'auth', 'null'); END IF;
  IF p_fields ? 'expireAfterMs' THEN
    v_endpoint.expire_after_ms := endpoint_number(p_fields, 'expireAfterMs', 1000, 31536000000);
  END IF;
  IF p_fields ? 'concurrency' THEN
    v_endpoint.concurrency := endpoint_number(p_fields, 'concurrency', 1, v_settings.max_concurrency);
  END IF;
  IF p_fields ? 'timeoutMs' THEN
    v_endpoint.timeout_ms := endpoint_number(p_fields, 'timeoutMs', 1000, v_settings.max_timeout_ms);
  END IF;
  IF p_fields ? 'rate' THEN
    v_endpoint.rate := nullif(p_fields -> 'rate', 'null');
    IF v_endpoint.rate IS NOT NULL THEN
      IF jsonb_typeof(v_endpoint.rate) <> 'object'
         OR jsonb_typeof(v_endpoint.rate -> 'perSecond') IS DISTINCT FROM 'number'
         OR v_endpoint.rate - '{perSecond,burst}'::text[] <> '{}'
      THEN
        RAISE EXCEPTION USING ERRCODE = '22023',
          MESSAGE = format('rate is %s: give {"perSecond": 10}, or {"perSecond": 10, "burst": 100}',
                           left(v_endpoint.rate::text, 60));
      END IF;
      PERFORM endpoint_number(v_endpoint.rate, 'perSecond', 0.001, 1000000),
              endpoint_number(v_endpoint.rate, 'burst', 1, 1000000);
    END IF;
  END IF;
  IF p_fields ? 'labels' THEN v_endpoint.labels := nullif(nullif(p_fields -> 'labels', 'null'), '{}'); END IF;
  IF p_fields ? 'filter' THEN v_endpoint.filter := nullif(p_fields -> 'filter', 'null'); END IF;
  RETURN v_endpoint;
END $$;

-- Adds an endpoint. endpoint: {tenantId, sealedSecret, fingerprint} and the fields of change_endpoint, of which url and
-- topics are required. Without tenantId it gets the messages of all tenants. A name stays taken until retention deletes
-- the removed endpoint (prune_endpoints).
CREATE OR REPLACE FUNCTION add_endpoint(name text, endpoint jsonb, actor text DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_fields   text[] := '{tenantId,sealedSecret,fingerprint}' || endpoint_fields();
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
  v_endpoint := endpoint_with(v_endpoint, endpoint);
  v_endpoint.tenant_id := endpoint ->> 'tenantId';
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
  -- if two sessions add the same name, the second waits for the destination's row, and then finds this endpoint
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '23505',
      MESSAGE = format('the name "%s" is taken: choose another', left(name, 63));
  END IF;
  PERFORM save_endpoint(v_endpoint, name, actor, 'add_endpoint');
  RETURN v_endpoint.destination_id;
END $$;

-- Changes the fields that are given: {url, topics, namespace, description, body, sealedHeaders, sealedQuery, auth,
-- filter, expireAfterMs, rate: {perSecond, burst}, concurrency, timeoutMs, labels}. Pending deliveries go to the new
-- address. The tenant cannot be changed, because pending deliveries belong to it.
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
  v_fields   text[] := endpoint_fields();
  v_unknown  text := (
    SELECT k FROM jsonb_object_keys(changes) k WHERE k <> ALL (v_fields) LIMIT 1);
  v_endpoint endpoints := find_endpoint(name, tenant_id);
BEGIN
  IF v_unknown IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('%s cannot be changed: use %s', v_unknown, array_to_string(v_fields, ', '));
  END IF;
  PERFORM save_endpoint(endpoint_with(v_endpoint, changes), name, actor, 'change_endpoint');
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

-- Stores the same secrets, headers, query parameters and login, sealed with another key, unless the endpoint has
-- changed since it was read.
CREATE OR REPLACE FUNCTION reseal_endpoint(
  name           text,
  version        int,
  secrets        jsonb,
  sealed_headers text,
  sealed_query   text,
  auth           jsonb,
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
  v_endpoint.sealed_query := sealed_query;
  v_endpoint.auth := auth;
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
         sealed_query = NULL, auth = NULL, version = e.version + 1, changed_in = pg_current_xact_id()
   WHERE e.destination_id = v_endpoint.destination_id;
  DELETE FROM endpoint_failures f WHERE f.destination_id = v_endpoint.destination_id;
  PERFORM record_action(actor, 'remove_endpoint',
                        jsonb_build_object('endpoint', name, 'tenantId', v_endpoint.tenant_id), 1);
  PERFORM announce_endpoints();
  RETURN EXISTS (SELECT FROM deliveries d WHERE d.destination_id = v_endpoint.destination_id);
END $$;

-- Deletes endpoints that were removed long ago, once nothing of them is left: no delivery, lease or dead letter, and no
-- day of messages or attempts from before the removal. Until then, the record needs their names. Also deletes the
-- counts of tenants' requests (limit_tenant) that are a day old: their periods have ended.
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
  -- a call in flight at the removal may have failed since
  DELETE FROM endpoint_failures WHERE destination_id = ANY (v_ids);
  DELETE FROM endpoints WHERE destination_id = ANY (v_ids);
  DELETE FROM destinations WHERE id = ANY (v_ids);
  DELETE FROM tenant_limits WHERE since < now() - interval '1 day';
  RETURN cardinality(v_ids);
END $$;

-- The endpoints that have changed since a relay last looked, and the snapshot for its next call. With null, it returns
-- only the snapshot. A change is found by its transaction, not by a time or a counter. So a change that commits late is
-- not missed, and transactions that change endpoints do not wait for each other.
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
  destination_id int, name text, tenant_id text, url text, body text, secrets jsonb, sealed_headers text,
  sealed_query text, auth jsonb, expire_after_ms bigint, rate jsonb, concurrency int, timeout_ms int, version int)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  RETURN QUERY
    SELECT e.destination_id, d.name, e.tenant_id, e.url, e.body, e.secrets, e.sealed_headers, e.sealed_query, e.auth,
           e.expire_after_ms, e.rate, e.concurrency, e.timeout_ms, e.version
      FROM endpoints e
      JOIN destinations d ON d.id = e.destination_id
     WHERE e.removed_at IS NULL
       AND (p_destination_ids IS NULL OR e.destination_id = ANY (p_destination_ids));
END $$;

-- Stores the settings that all endpoints share, as configured: they apply to existing endpoints and to new ones.
-- p_settings: {maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs, whenDead, maxPerTenant, warnAfterMs,
-- disableAfterMs, maxConcurrency, maxTimeoutMs}.
CREATE OR REPLACE FUNCTION sync_endpoint_settings(p_settings jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v endpoint_settings;
BEGIN
  PERFORM lock_definitions();
  UPDATE endpoint_settings s
     SET (max_attempts, retry_base_ms, retry_max_ms, retry_delays_ms, when_dead, max_per_tenant, warn_after_ms,
          disable_after_ms, max_concurrency, max_timeout_ms) =
         (SELECT g."maxAttempts", g."retryBaseMs", g."retryMaxMs", g."retryDelaysMs", g."whenDead", g."maxPerTenant",
                 g."warnAfterMs", g."disableAfterMs", g."maxConcurrency", g."maxTimeoutMs"
            FROM jsonb_to_record(p_settings)
              AS g("maxAttempts" int, "retryBaseMs" bigint, "retryMaxMs" bigint, "retryDelaysMs" bigint[],
                   "whenDead" text, "maxPerTenant" int, "warnAfterMs" bigint, "disableAfterMs" bigint,
                   "maxConcurrency" int, "maxTimeoutMs" int))
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
