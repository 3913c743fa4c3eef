-- Destinations and routes: defined by the configuration file, kept here so that plain SQL and triggers
-- route too. A sync replaces definitions and never touches run-time state (paused).

CREATE OR REPLACE FUNCTION find_destination(p_name text) RETURNS destinations
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_destination destinations;
BEGIN
  SELECT * INTO v_destination FROM destinations WHERE name = p_name;
  IF NOT FOUND THEN PERFORM refuse_unknown('destination', p_name, ARRAY (SELECT name FROM destinations WHERE origin = 'file' ORDER BY name LIMIT 50)); END IF;
  RETURN v_destination;
END $$;

-- Whether a route wants a message. Its topic is exact, 'user.*' (everything that begins with 'user.') or '*';
-- no namespace or tenant means all of them.
CREATE OR REPLACE FUNCTION route_matches(
  p_route_topic text, p_route_namespace text, p_route_tenant_id text, p_topic text, p_namespace text, p_tenant_id text)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT (p_route_topic = p_topic OR p_route_topic = '*'
          OR (p_route_topic LIKE '%.*' AND starts_with(p_topic, left(p_route_topic, -1))))
     AND (p_route_namespace IS NULL OR p_route_namespace = p_namespace)
     AND (p_route_tenant_id IS NULL OR p_route_tenant_id = p_tenant_id)
$$;

-- Adds or redefines one destination. Deliveries that are already at a lowered maximum die at once: a
-- claim never has to ask. What one origin has defined, the other must not: they would take each other's messages.
CREATE OR REPLACE FUNCTION define_destination(
  p_name text, p_kind text DEFAULT 'worker', p_max_attempts int DEFAULT 10, p_retry_base_ms bigint DEFAULT 1000,
  p_retry_max_ms bigint DEFAULT 300000, p_retry_delays_ms bigint[] DEFAULT NULL, p_when_dead text DEFAULT 'continue',
  p_fairness text DEFAULT 'none', p_origin text DEFAULT 'file') RETURNS smallint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_ten_years_ms CONSTANT bigint := 315360000000;
  v_id      smallint;
  v_lanes   bigint[];
  v_streams bigint[];
  v_dead    uuid[];
  v_max     int := coalesce(cardinality(p_retry_delays_ms) + 1, p_max_attempts);
  v_was     text := (SELECT d.fairness FROM destinations d WHERE d.name = p_name);
BEGIN
  IF p_name IS NULL OR p_name !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format(
      'p_name is %s: use letters, digits, _ - and ., at most 63', coalesce('"' || left(p_name, 60) || '"', 'null'));
  END IF;
  IF p_kind IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'p_kind is null: say what serves it, for example worker';
  END IF;
  IF p_retry_delays_ms IS NULL THEN
    PERFORM checked_number('p_max_attempts', p_max_attempts, 1, 1000);
  ELSE
    PERFORM checked_number('the length of p_retry_delays_ms', cardinality(p_retry_delays_ms), 1, 100);
    PERFORM checked_number(format('p_retry_delays_ms[%s]', i), p_retry_delays_ms[i], 0, v_ten_years_ms)
       FROM generate_subscripts(p_retry_delays_ms, 1) i;
  END IF;
  IF p_when_dead IS NULL OR p_when_dead NOT IN ('continue', 'block', 'park') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('p_when_dead is %s: use continue, block or park', coalesce(left(p_when_dead, 60), 'null'));
  END IF;
  IF p_fairness IS NULL OR p_fairness NOT IN ('none', 'tenant') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('p_fairness is %s: use none or tenant', coalesce(left(p_fairness, 60), 'null'));
  END IF;
  PERFORM checked_number('p_retry_base_ms', p_retry_base_ms, 0, v_ten_years_ms);
  PERFORM checked_number('p_retry_max_ms', p_retry_max_ms, p_retry_base_ms, v_ten_years_ms);

  -- An insert takes an id even if it becomes an update, and there are no more than 32767.
  UPDATE destinations d
     SET kind = p_kind, max_attempts = v_max, retry_base_ms = p_retry_base_ms, retry_max_ms = p_retry_max_ms,
         retry_delays_ms = p_retry_delays_ms, when_dead = p_when_dead, fairness = p_fairness, configured = true,
         changed_at = clock_timestamp()
   WHERE d.name = p_name AND d.origin = p_origin RETURNING d.id INTO v_id;
  IF NOT FOUND THEN
    INSERT INTO destinations AS d (name, kind, max_attempts, retry_base_ms, retry_max_ms, retry_delays_ms, when_dead, fairness, origin)
    VALUES (p_name, p_kind, v_max, p_retry_base_ms, p_retry_max_ms, p_retry_delays_ms, p_when_dead, p_fairness, p_origin)
    ON CONFLICT (name) DO UPDATE
      SET kind = excluded.kind, max_attempts = excluded.max_attempts, retry_base_ms = excluded.retry_base_ms,
          retry_max_ms = excluded.retry_max_ms, retry_delays_ms = excluded.retry_delays_ms,
          when_dead = excluded.when_dead, fairness = excluded.fairness, configured = true,
          changed_at = clock_timestamp()
      WHERE d.origin = p_origin
    RETURNING id INTO v_id;
  END IF;
  IF v_id IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the name "%s" is taken by %s: choose another', p_name,
      CASE WHEN p_origin = 'file' THEN 'an endpoint of the database' ELSE 'a destination of the configuration' END);
  END IF;
  -- Lanes before deliveries and in one sorted go, as a settle has it. What reaches the new maximum after this look
  -- is tried once more, and dies then.
  v_lanes := ARRAY (
    SELECT l.stream_id FROM lanes l
     WHERE l.destination_id = v_id AND l.stream_id IN (
       SELECT d.stream_id FROM deliveries d WHERE d.destination_id = v_id AND d.tries >= v_max AND d.tries > 0)
     ORDER BY l.stream_id FOR UPDATE);
  WITH exhausted AS (
    DELETE FROM deliveries WHERE destination_id = v_id AND tries >= v_max AND tries > 0
       AND (stream_id IS NULL OR stream_id = ANY (v_lanes)) RETURNING *),
  died AS (
    INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, created_at, stream_id, sequence,
           namespace, topic, tenant_id, key, dedupe_key, aggregate_type, aggregate_id, headers, payload)
    SELECT e.message_id, v_id, clock_timestamp(), e.claim_no, e.tries, 'exhausted', 'max_attempts_lowered', m.created_at, m.stream_id,
           m.sequence, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
      FROM exhausted e LEFT JOIN messages m ON m.id = e.message_id)
  SELECT array_agg(e.stream_id), array_agg(e.message_id) INTO v_streams, v_dead FROM exhausted e WHERE e.stream_id IS NOT NULL;
  IF v_streams IS NOT NULL THEN
    IF p_when_dead <> 'continue' THEN PERFORM block_lanes(v_id, v_dead); END IF;
    PERFORM recheck_lanes(array_fill(v_id, ARRAY[cardinality(v_streams)]), v_streams);
  END IF;
  IF p_fairness = 'tenant' THEN
    -- what has no tenant takes its turn like one; what somebody has locked is not waited for, and gets it later
    UPDATE lanes SET tenant_id = '' WHERE ctid = ANY (ARRAY (
      SELECT l.ctid FROM lanes l WHERE l.destination_id = v_id AND l.tenant_id IS NULL FOR UPDATE SKIP LOCKED));
    UPDATE deliveries SET tenant_id = '' WHERE ctid = ANY (ARRAY (
      SELECT d.ctid FROM deliveries d WHERE d.destination_id = v_id AND d.tenant_id IS NULL FOR UPDATE SKIP LOCKED));
    IF v_was = 'none' THEN PERFORM owe_turns(v_id); END IF;
  END IF;
  -- an endpoint's is recorded by whoever adds it
  IF p_origin = 'file' THEN
    PERFORM record_action(NULL, 'define_destination', jsonb_build_object('destination', p_name, 'kind', p_kind, 'maxAttempts', v_max,
      'retryBaseMs', p_retry_base_ms, 'retryMaxMs', p_retry_max_ms, 'retryDelaysMs', p_retry_delays_ms, 'whenDead', p_when_dead,
      'fairness', p_fairness), 1);
  END IF;
  RETURN v_id;
END $$;

-- p_definitions: {"destinations": [{name, kind, maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs,
-- whenDead, fairness, ratePerSecond, hasBreaker}], "routes": [{topic, to, namespace, tenantId, rollout}]}. Returns the ids of the destinations by name.
-- A destination that left the file stays, unconfigured, with its waiting deliveries in the open. Endpoints of the
-- database, and their routes, are none of the file's business.
CREATE OR REPLACE FUNCTION sync_definitions(p_definitions jsonb)
RETURNS TABLE (name text, id smallint) LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_left    jsonb;
  v_gone    jsonb;
  v_added   jsonb;
BEGIN
  IF jsonb_typeof(p_definitions -> 'destinations') IS DISTINCT FROM 'array' OR jsonb_typeof(p_definitions -> 'routes') IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('p_definitions is %s: give {"destinations": [...], "routes": [...]}',
      coalesce(left(p_definitions::text, 60), 'null'));
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('waybill sync ' || current_schema(), 0));
  PERFORM define_destination(d.name, d.kind, d."maxAttempts", d."retryBaseMs", d."retryMaxMs", d."retryDelaysMs",
                             coalesce(d."whenDead", 'continue'), coalesce(d.fairness, 'none'))
    FROM jsonb_to_recordset(p_definitions -> 'destinations') AS d(
      name text, kind text, "maxAttempts" int, "retryBaseMs" bigint, "retryMaxMs" bigint, "retryDelaysMs" bigint[],
      "whenDead" text, fairness text)
    LEFT JOIN destinations k ON k.name = d.name
   WHERE (k.kind, k.max_attempts, k.retry_base_ms, k.retry_max_ms, k.retry_delays_ms, k.when_dead, k.fairness,
          k.configured, k.origin) IS DISTINCT FROM
         (d.kind, coalesce(cardinality(d."retryDelaysMs") + 1, d."maxAttempts"), d."retryBaseMs", d."retryMaxMs", d."retryDelaysMs",
          coalesce(d."whenDead", 'continue'), coalesce(d.fairness, 'none'), true, 'file');
  UPDATE destinations k SET rate_per_second = d."ratePerSecond", has_breaker = coalesce(d."hasBreaker", false)
    FROM jsonb_to_recordset(p_definitions -> 'destinations') AS d(name text, "ratePerSecond" float8, "hasBreaker" boolean)
   WHERE k.name = d.name AND (k.rate_per_second, k.has_breaker) IS DISTINCT FROM (d."ratePerSecond", coalesce(d."hasBreaker", false));
  WITH leaving AS (
    UPDATE destinations SET configured = false, changed_at = clock_timestamp()
     WHERE configured AND origin = 'file' AND name NOT IN (SELECT d ->> 'name' FROM jsonb_array_elements(p_definitions -> 'destinations') d)
    RETURNING name)
  SELECT jsonb_agg(l.name ORDER BY l.name) INTO v_left FROM leaving l;
  IF v_left IS NOT NULL THEN
    PERFORM record_action(NULL, 'leave_destinations', jsonb_build_object('destinations', v_left), jsonb_array_length(v_left));
  END IF;

  PERFORM sync_rollouts(p_definitions -> 'routes');
  WITH wanted AS (
    SELECT DISTINCT d.id AS destination_id, r.topic, r.namespace, r."tenantId" AS tenant_id, r.rollout
      FROM jsonb_to_recordset(p_definitions -> 'routes') AS r(topic text, "to" text, namespace text, "tenantId" text, rollout text)
      JOIN destinations d ON d.name = r."to" AND d.origin = 'file'),
  gone AS (
    DELETE FROM routes r USING destinations d WHERE d.id = r.destination_id AND d.origin = 'file' AND NOT EXISTS (
      SELECT FROM wanted w WHERE (w.destination_id, w.topic, w.namespace, w.tenant_id)
        IS NOT DISTINCT FROM (r.destination_id, r.topic, r.namespace, r.tenant_id)) RETURNING r.*),
  -- one that another rollout governs now is told as a new one
  added AS (
    INSERT INTO routes AS r (destination_id, topic, namespace, tenant_id, rollout)
    SELECT w.destination_id, w.topic, w.namespace, w.tenant_id, w.rollout FROM wanted w
    ON CONFLICT (destination_id, topic, namespace, tenant_id) DO UPDATE SET rollout = excluded.rollout
      WHERE r.rollout IS DISTINCT FROM excluded.rollout
    RETURNING *),
  told AS (
    SELECT false AS is_new, * FROM gone UNION ALL SELECT true, * FROM added)
  SELECT jsonb_agg(r.route) FILTER (WHERE NOT r.is_new), jsonb_agg(r.route) FILTER (WHERE r.is_new) INTO v_gone, v_added
    FROM (SELECT t.is_new, jsonb_strip_nulls(jsonb_build_object('topic', t.topic, 'to', d.name, 'namespace', t.namespace, 'tenantId', t.tenant_id,
                   'rollout', t.rollout)) AS route
            FROM told t JOIN destinations d ON d.id = t.destination_id ORDER BY d.name, t.topic) r;
  IF v_gone IS NOT NULL OR v_added IS NOT NULL THEN
    PERFORM record_action(NULL, 'change_routes', jsonb_build_object('added', v_added, 'removed', v_gone),
      coalesce(jsonb_array_length(v_added), 0) + coalesce(jsonb_array_length(v_gone), 0));
  END IF;

  RETURN QUERY SELECT d.name, d.id FROM destinations d
    WHERE d.name IN (SELECT x ->> 'name' FROM jsonb_array_elements(p_definitions -> 'destinations') x);
END $$;
