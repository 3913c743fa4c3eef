-- Destinations, defined by configurations and in SQL. They are stored in the database so that messages enqueued by
-- plain SQL and by triggers are routed too. A definition never changes run-time state (paused). Applications are in
-- applications/definitions.sql, routes made in SQL in applications/routes.sql.

-- The destination of this name; raises P0002 if there is none. For a session that is limited to a tenant, there are no
-- endpoints of others.
CREATE OR REPLACE FUNCTION find_destination(p_name text)
RETURNS destinations
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_destination destinations;
BEGIN
  SELECT * INTO v_destination FROM destinations WHERE name = p_name;
  IF NOT FOUND OR (v_destination.origin = 'database' AND is_hidden(v_destination.id)) THEN
    PERFORM refuse_unknown('destination', p_name, ARRAY (
      SELECT name FROM destinations WHERE origin = 'file' ORDER BY name LIMIT 50));
  END IF;
  RETURN v_destination;
END $$;

-- Refuses a destination that another owner defines differently, because each owner would deliver the other's messages.
-- A handler function or a worker has no fingerprint to compare, so it can belong to only one owner.
CREATE OR REPLACE FUNCTION refuse_foreign_destination(p_name text, p_owner text, p_fingerprint text)
RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_origin text;
  v_other  text;
BEGIN
  SELECT d.origin, o.owner
    INTO v_origin, v_other
    FROM destinations d
    LEFT JOIN destination_owners o
      ON o.destination_id = d.id
     AND o.owner <> p_owner
     AND o.fingerprint = p_fingerprint IS NOT TRUE
   WHERE d.name = p_name
   ORDER BY o.owner
   LIMIT 1;
  IF (v_origin = 'database') <> (p_owner = 'endpoints') THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('the name "%s" is taken by %s: choose another', p_name, CASE
        WHEN v_origin = 'database' THEN 'an endpoint of the database'
        ELSE 'a destination of the configuration'
      END);
  END IF;
  IF v_other IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format(
        'the destination "%s" is defined by %s and by %s%s: give it another name in one of them%s',
        p_name, shown_owner(v_other), shown_owner(p_owner),
        CASE
          WHEN p_fingerprint IS NULL THEN ', and its code cannot be compared'
          ELSE ', with different settings'
        END,
        CASE
          WHEN v_other = 'sql' THEN
            format(', or remove the one of SQL: SELECT %I.remove_destination(%L)', current_schema(), p_name)
          ELSE
            format(', or, if %s is gone for good, remove what it defined: SELECT %I.remove_application(%L)',
                   shown_owner(v_other), current_schema(), v_other)
        END);
  END IF;
END $$;

-- The display name of an owner.
CREATE OR REPLACE FUNCTION shown_owner(p_owner text)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE p_owner WHEN 'sql' THEN 'SQL' ELSE format('the application "%s"', p_owner) END
$$;

-- Adds or redefines a destination in SQL, for workers in other languages. Its owner is 'sql'.
CREATE OR REPLACE FUNCTION define_destination(
  p_name            text,
  p_kind            text DEFAULT 'worker',
  p_max_attempts    int DEFAULT 10,
  p_retry_base_ms   bigint DEFAULT 1000,
  p_retry_max_ms    bigint DEFAULT 300000,
  p_retry_delays_ms bigint[] DEFAULT NULL,
  p_when_dead       text DEFAULT 'continue',
  p_fairness        text DEFAULT 'none')
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM lock_definitions();
  RETURN store_destination('sql', NULL, p_name, p_kind, p_max_attempts, p_retry_base_ms, p_retry_max_ms,
                           p_retry_delays_ms, p_when_dead, p_fairness);
END $$;

-- Removes a destination that SQL has defined, and the routes of SQL to it. Its pending deliveries stay, and waybill
-- status shows them. Returns false, and changes nothing, if SQL had not defined it.
CREATE OR REPLACE FUNCTION remove_destination(p_name text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_id     int;
  v_routes routes[];
BEGIN
  PERFORM lock_definitions();
  v_id := (find_destination(p_name)).id;
  DELETE FROM destination_owners o WHERE o.destination_id = v_id AND o.owner = 'sql';
  IF NOT FOUND THEN RETURN false; END IF;
  v_routes := ARRAY (SELECT r FROM routes r WHERE r.destination_id = v_id AND r.owner = 'sql');
  DELETE FROM routes r WHERE r.destination_id = v_id AND r.owner = 'sql';
  PERFORM record_routes('sql', '{}', v_routes);
  PERFORM record_action(NULL, 'remove_destination', jsonb_build_object('destination', p_name), 1);
  PERFORM leave_destinations();
  RETURN true;
END $$;

-- Marks destinations that no owner defines any more as not configured. They keep their pending deliveries, and waybill
-- status shows them. Returns their names.
CREATE OR REPLACE FUNCTION leave_destinations()
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_left jsonb;
BEGIN
  WITH leaving AS (
    UPDATE destinations d
       SET configured = false, changed_at = clock_timestamp()
     WHERE d.configured
       AND d.origin = 'file'
       AND NOT EXISTS (SELECT FROM destination_owners o WHERE o.destination_id = d.id)
    RETURNING d.name)
  SELECT jsonb_agg(l.name ORDER BY l.name)
    INTO v_left
    FROM leaving l;
  IF v_left IS NOT NULL THEN
    PERFORM record_action(NULL, 'leave_destinations', jsonb_build_object('destinations', v_left),
                          jsonb_array_length(v_left));
  END IF;
  RETURN coalesce(v_left, '[]');
END $$;

-- Adds or redefines one destination for an owner. If max_attempts is lowered, deliveries that have reached it become
-- dead letters here, so that claims do not have to check. The caller holds the lock of the definitions.
CREATE OR REPLACE FUNCTION store_destination(
  p_owner           text,
  p_fingerprint     text,
  p_name            text,
  p_kind            text,
  p_max_attempts    int,
  p_retry_base_ms   bigint,
  p_retry_max_ms    bigint,
  p_retry_delays_ms bigint[],
  p_when_dead       text,
  p_fairness        text,
  p_rate_per_second float8 DEFAULT NULL,
  p_has_breaker     boolean DEFAULT false)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_ten_years_ms CONSTANT bigint := 315360000000;
  v_id                    int;
  v_lanes                 bigint[];
  v_keys                  bigint[];
  v_dead                  uuid[];
  v_max                   int := coalesce(cardinality(p_retry_delays_ms) + 1, p_max_attempts);
BEGIN
  IF p_name IS NULL OR p_name !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_name is %s: use letters, digits, _ - and ., at most 63',
                       coalesce('"' || left(p_name, 60) || '"', 'null'));
  END IF;
  IF p_kind IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = 'p_kind is null: say what serves it, for example worker';
  END IF;
  IF p_retry_delays_ms IS NULL THEN
    PERFORM checked_number('p_max_attempts', p_max_attempts, 1, 1000);
  ELSE
    PERFORM checked_number('the length of p_retry_delays_ms', cardinality(p_retry_delays_ms), 1, 100);
    PERFORM checked_number(format('p_retry_delays_ms[%s]', i), p_retry_delays_ms[i], 0, v_ten_years_ms)
       FROM generate_subscripts(p_retry_delays_ms, 1) i;
  END IF;
  IF p_when_dead IS NULL OR p_when_dead NOT IN ('continue', 'block', 'park') THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_when_dead is %s: use continue, block or park', coalesce(left(p_when_dead, 60), 'null'));
  END IF;
  IF p_fairness IS NULL OR p_fairness NOT IN ('none', 'tenant') THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_fairness is %s: use none or tenant', coalesce(left(p_fairness, 60), 'null'));
  END IF;
  PERFORM checked_number('p_retry_base_ms', p_retry_base_ms, 0, v_ten_years_ms);
  PERFORM checked_number('p_retry_max_ms', p_retry_max_ms, p_retry_base_ms, v_ten_years_ms);

  PERFORM refuse_foreign_destination(p_name, p_owner, p_fingerprint);
  -- Not INSERT ... ON CONFLICT: that would use up an id each time a relay starts.
  UPDATE destinations d
     SET kind = p_kind, max_attempts = v_max, retry_base_ms = p_retry_base_ms, retry_max_ms = p_retry_max_ms,
         retry_delays_ms = p_retry_delays_ms, when_dead = p_when_dead, fairness = p_fairness, configured = true,
         is_fair = d.is_fair AND p_fairness = 'tenant',
         fair_from = CASE WHEN d.fairness = p_fairness THEN d.fair_from END,
         rate_per_second = p_rate_per_second, has_breaker = p_has_breaker, changed_at = clock_timestamp()
   WHERE d.name = p_name
  RETURNING d.id INTO v_id;
  IF NOT FOUND THEN
    INSERT INTO destinations AS d (name, kind, max_attempts, retry_base_ms, retry_max_ms, retry_delays_ms, when_dead,
                                   fairness, is_fair, origin, rate_per_second, has_breaker)
    VALUES (p_name, p_kind, v_max, p_retry_base_ms, p_retry_max_ms, p_retry_delays_ms, p_when_dead,
            p_fairness, p_fairness = 'tenant', CASE p_owner WHEN 'endpoints' THEN 'database' ELSE 'file' END,
            p_rate_per_second, p_has_breaker)
    ON CONFLICT (name) DO NOTHING
    RETURNING id INTO v_id;
  END IF;
  IF v_id IS NULL THEN
    -- another transaction has just inserted the name
    PERFORM refuse_foreign_destination(p_name, p_owner, p_fingerprint);
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = format('the destination "%s" was defined at the same time: try again', p_name);
  END IF;
  INSERT INTO destination_owners AS o (destination_id, owner, fingerprint)
  VALUES (v_id, p_owner, p_fingerprint)
  ON CONFLICT (destination_id, owner) DO UPDATE
     SET fingerprint = excluded.fingerprint
   WHERE o.fingerprint IS DISTINCT FROM excluded.fingerprint;
  -- Lanes before deliveries, sorted, in one statement: settle locks in the same order. A delivery that reaches the new
  -- maximum after this statement is tried once more and becomes a dead letter then.
  v_lanes := ARRAY (
    SELECT l.key_id
      FROM lanes l
     WHERE l.destination_id = v_id
       AND l.key_id IN (
             SELECT d.key_id
               FROM deliveries d
              WHERE d.destination_id = v_id
                AND d.tries >= v_max
                AND d.tries > 0)
     ORDER BY l.key_id
       FOR UPDATE);
  WITH exhausted AS (
    DELETE FROM deliveries
     WHERE destination_id = v_id
       AND tries >= v_max
       AND tries > 0
       AND (key_id IS NULL OR key_id = ANY (v_lanes))
    RETURNING *),
  died AS (
    INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, created_at,
                              key_id, sequence, bytes, namespace, topic, tenant_id, key, dedupe_key, aggregate_type,
                              aggregate_id, headers, payload)
    SELECT e.message_id, v_id, clock_timestamp(), e.claim_no, e.tries, 'exhausted', 'max_attempts_lowered',
           m.created_at, m.key_id, m.sequence, m.bytes, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key,
           m.aggregate_type, m.aggregate_id, m.headers, m.payload
      FROM exhausted e
      LEFT JOIN messages m ON m.id = e.message_id)
  SELECT array_agg(e.key_id), array_agg(e.message_id)
    INTO v_keys, v_dead
    FROM exhausted e
   WHERE e.key_id IS NOT NULL;
  IF v_keys IS NOT NULL THEN
    IF p_when_dead <> 'continue' THEN PERFORM block_lanes(v_id, v_dead); END IF;
    PERFORM recheck_lanes(array_fill(v_id, ARRAY[cardinality(v_keys)]), v_keys);
  END IF;
  -- for an endpoint, the calling function records the action
  IF p_owner <> 'endpoints' THEN
    PERFORM record_action(NULL, 'define_destination', jsonb_build_object(
      'destination', p_name, 'owner', p_owner, 'kind', p_kind, 'maxAttempts', v_max, 'retryBaseMs', p_retry_base_ms,
      'retryMaxMs', p_retry_max_ms, 'retryDelaysMs', p_retry_delays_ms, 'whenDead', p_when_dead,
      'fairness', p_fairness), 1);
  END IF;
  RETURN v_id;
END $$;
