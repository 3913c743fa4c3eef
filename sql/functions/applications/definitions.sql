-- Definitions: the destinations and routes of applications and of SQL, each with its owner. Each relay declares its
-- configuration, and waybill apply declares one too. An application wants the union of its declarations. Where they
-- differ on the settings of a destination or the rollout that splits a route, the newest counts.
--
-- Additions take effect at once. A definition that is no longer declared is removed by a relay of the application that
-- has run for ten minutes without interruption, or by apply with prune. So nothing disappears during a rolling deploy,
-- while all relays are down, or after an outage of the database. A drain only adds definitions, and changes settings
-- that neither a living relay nor apply declares.

-- Serializes changes of definitions until the end of the transaction. NO KEY UPDATE: inserts that refer to the row do
-- not wait.
CREATE OR REPLACE FUNCTION lock_definitions() RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT FROM owners o WHERE o.name = 'sql' FOR NO KEY UPDATE
$$;

-- How long a declaration counts after its relay last confirmed it.
CREATE OR REPLACE FUNCTION declared_for() RETURNS interval
LANGUAGE sql IMMUTABLE
AS $$
  SELECT interval '10 minutes'
$$;

-- The relay_id of the declarations of waybill apply.
CREATE OR REPLACE FUNCTION applied_id() RETURNS uuid
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '00000000-0000-0000-0000-000000000000'::uuid
$$;

-- Refuses malformed definitions and application names.
CREATE OR REPLACE FUNCTION check_definitions(p_definitions jsonb, p_application text) RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  IF jsonb_typeof(p_definitions -> 'destinations') IS DISTINCT FROM 'array'
     OR jsonb_typeof(p_definitions -> 'routes') IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_definitions is %s: give {"destinations": [...], "routes": [...]}',
                       coalesce(left(p_definitions::text, 60), 'null'));
  END IF;
  IF p_application IS NULL OR p_application !~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_application is %s: use letters, digits, _ - and ., at most 63',
                       coalesce('"' || left(p_application, 60) || '"', 'null'));
  END IF;
  IF p_application IN ('sql', 'endpoints') THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_application is "%s", a reserved name: choose another', p_application);
  END IF;
END $$;

-- Whether a relay is living: it has not missed three heartbeats. A heartbeat in the future was written by a clock that
-- ran ahead, and does not count.
CREATE OR REPLACE FUNCTION is_living(p_relay_id uuid) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM relays r
     WHERE r.id = p_relay_id
       AND r.heartbeat_at BETWEEN clock_timestamp() - interval '15 seconds' AND clock_timestamp() + clock_tolerance())
$$;

-- Whether the relay of a declaration is living or starting: it declares its configuration before its first heartbeat.
CREATE OR REPLACE FUNCTION is_running(p_declaration declarations) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT is_living(p_declaration.relay_id)
      OR (NOT p_declaration.signed_off
          AND p_declaration.relay_id <> applied_id()
          AND p_declaration.seen_at > clock_timestamp() - declared_for()
          AND NOT EXISTS (SELECT FROM relays r WHERE r.id = p_declaration.relay_id))
$$;

-- Whether a relay may still be running: it has not signed off, and its last heartbeat is at most ten minutes old.
CREATE OR REPLACE FUNCTION may_be_living(p_relay_id uuid) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM relays r
     WHERE r.id = p_relay_id
       AND r.heartbeat_at BETWEEN clock_timestamp() - declared_for() AND clock_timestamp() + clock_tolerance())
$$;

-- Whether a declaration takes precedence: one of waybill apply, or of a running relay that is not a drain. p_relay_id:
-- the calling relay, which counts as living.
CREATE OR REPLACE FUNCTION has_last_word(p_declaration declarations, p_relay_id uuid) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT p_declaration.relay_id = applied_id()
      OR (NOT p_declaration.is_drain AND (p_declaration.relay_id = p_relay_id OR is_running(p_declaration)))
$$;

-- Corrects declarations whose times are in the future because the clock ran ahead: the times become now, and keep their
-- order. The caller holds the lock of the definitions.
CREATE OR REPLACE FUNCTION correct_declarations() RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  UPDATE declarations d
     SET made_at = least(d.made_at, x.now - x.place * interval '1 microsecond'),
         seen_at = CASE d.seen_at WHEN 'infinity' THEN d.seen_at ELSE least(d.seen_at, x.now) END,
         steady_since = least(d.steady_since, x.now)
    FROM (SELECT c.owner, c.relay_id, n.now, row_number() OVER (ORDER BY c.made_at DESC) AS place
            FROM declarations c
           CROSS JOIN (SELECT clock_timestamp() AS now) n
           WHERE greatest(c.made_at, c.steady_since, nullif(c.seen_at, 'infinity')) > n.now + clock_tolerance()) x
   WHERE d.owner = x.owner
     AND d.relay_id = x.relay_id
$$;

-- The definitions that an owner wants, {"destinations", "routes"}: the union of its declarations. Where they differ,
-- the newest declaration of a living relay or of waybill apply counts; without one, the newest of all. A destination
-- with the mode stream has "cursor": {"from", "filters"} and no routes; the filters are its routes. While declarations
-- differ on the mode, filters become routes, and routes become filters.
-- p_relay_id: the calling relay, which counts as living. p_living: ignore declarations of drains, and of relays that
-- have signed off or sent no heartbeat for ten minutes.
CREATE OR REPLACE FUNCTION declared_definitions(p_owner text, p_relay_id uuid, p_living boolean DEFAULT false)
RETURNS jsonb
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  WITH counted AS MATERIALIZED (
    SELECT d.definitions, d.made_at, has_last_word(d, p_relay_id) AS living
      FROM declarations d
     WHERE d.owner = p_owner
       AND (d.seen_at > clock_timestamp() - declared_for() OR is_living(d.relay_id))
       AND (NOT p_living OR has_last_word(d, p_relay_id) OR (NOT d.is_drain AND may_be_living(d.relay_id)))),
  wanted AS (
    SELECT DISTINCT ON (e.value ->> 'name') e.value
      FROM counted c
     CROSS JOIN LATERAL jsonb_array_elements(c.definitions -> 'destinations') e
     ORDER BY e.value ->> 'name', c.living DESC, c.made_at DESC),
  led AS MATERIALIZED (
    SELECT DISTINCT ON (e.value -> 'topic', e.value -> 'to', e.value -> 'namespace', e.value -> 'tenantId') e.value
      FROM counted c
     CROSS JOIN LATERAL (
            SELECT r.value FROM jsonb_array_elements(c.definitions -> 'routes') r
            UNION ALL
            SELECT f.value || jsonb_build_object('to', d.value -> 'name')
              FROM jsonb_array_elements(c.definitions -> 'destinations') d
             CROSS JOIN LATERAL jsonb_array_elements(
                    CASE WHEN jsonb_typeof(d.value -> 'cursor') = 'object' THEN d.value #> '{cursor,filters}' END) f) e
     ORDER BY e.value -> 'topic', e.value -> 'to', e.value -> 'namespace', e.value -> 'tenantId',
              c.living DESC, c.made_at DESC),
  streams AS MATERIALIZED (
    SELECT w.value ->> 'name' AS name,
           jsonb_set(w.value, '{cursor,filters}', (
             SELECT coalesce(jsonb_agg(l.value - 'to'), '[]')
               FROM led l
              WHERE l.value -> 'to' = w.value -> 'name'
                AND l.value ->> 'rollout' IS NULL)) AS value
      FROM wanted w
     WHERE jsonb_typeof(w.value -> 'cursor') = 'object')
  SELECT jsonb_build_object(
           'destinations', (
             SELECT coalesce(jsonb_agg(coalesce(s.value, w.value)), '[]')
               FROM wanted w
               LEFT JOIN streams s ON s.name = w.value ->> 'name'),
           'routes', (
             SELECT coalesce(jsonb_agg(l.value), '[]')
               FROM led l
              WHERE l.value ->> 'to' NOT IN (SELECT s.name FROM streams s)))
$$;

-- Stores the destinations of an owner that are new or changed; returns the changes.
-- p_destinations: [{name, kind, maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs, whenDead, fairness, ratePerSecond,
-- hasBreaker, fingerprint, cursor}]; cursor: see reconcile_cursors.
CREATE OR REPLACE FUNCTION reconcile_destinations(p_owner text, p_destinations jsonb) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_changes jsonb;
BEGIN
  SELECT coalesce(jsonb_agg(jsonb_build_object('change', x.change, 'destination', x.name) ORDER BY x.name), '[]')
    INTO v_changes
    FROM (SELECT d.name,
                 CASE WHEN o.owner IS NULL THEN 'add' ELSE 'change' END AS change,
                 store_destination(p_owner, d.fingerprint, d.name, d.kind, d."maxAttempts", d."retryBaseMs",
                                   d."retryMaxMs", d."retryDelaysMs", coalesce(d."whenDead", 'continue'),
                                   coalesce(d.fairness, 'none'), d."ratePerSecond", coalesce(d."hasBreaker", false))
            FROM jsonb_to_recordset(p_destinations) AS d(
                   name text, kind text, "maxAttempts" int, "retryBaseMs" bigint, "retryMaxMs" bigint,
                   "retryDelaysMs" bigint[], "whenDead" text, fairness text, "ratePerSecond" float8,
                   "hasBreaker" boolean, fingerprint text)
            LEFT JOIN destinations k ON k.name = d.name
            LEFT JOIN destination_owners o ON o.destination_id = k.id AND o.owner = p_owner
           WHERE o.owner IS NULL
              OR (k.kind, k.max_attempts, k.retry_base_ms, k.retry_max_ms, k.retry_delays_ms, k.when_dead,
                  k.fairness, k.configured, k.rate_per_second, k.has_breaker, o.fingerprint) IS DISTINCT FROM
                 (d.kind, coalesce(cardinality(d."retryDelaysMs") + 1, d."maxAttempts"), d."retryBaseMs",
                  d."retryMaxMs", d."retryDelaysMs", coalesce(d."whenDead", 'continue'),
                  coalesce(d.fairness, 'none'), true, d."ratePerSecond", coalesce(d."hasBreaker", false),
                  d.fingerprint)
           ORDER BY d.name
          OFFSET 0) x;
  RETURN v_changes;
END $$;

-- Converts declared routes, [{topic, to, namespace, tenantId, rollout}], to rows. A rollout splits its route.
CREATE OR REPLACE FUNCTION declared_routes(p_owner text, p_routes jsonb) RETURNS routes[]
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT ARRAY (
    SELECT ROW(w.*)::routes
      FROM (SELECT DISTINCT d.id, r.topic, r.namespace, r."tenantId", r.rollout, p_owner, now()
              FROM jsonb_to_recordset(p_routes)
                   AS r(topic text, "to" text, namespace text, "tenantId" text, rollout text)
              JOIN destinations d ON d.name = r."to" AND d.origin = 'file') w)
$$;

-- Routes in the form that operators and the audit read.
CREATE OR REPLACE FUNCTION shown_routes(p_routes routes[]) RETURNS jsonb
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT coalesce(jsonb_agg(
           jsonb_strip_nulls(jsonb_build_object('topic', r.topic, 'to', d.name, 'namespace', r.namespace,
                                                'tenantId', r.tenant_id, 'rollout', r.split_by))
           ORDER BY d.name, r.topic), '[]')
    FROM unnest(p_routes) r
    JOIN destinations d ON d.id = r.destination_id
$$;

-- Makes the stored destinations and routes of an owner match its declarations. Returns the changes, as
-- [{"change": "add" | "change" | "remove" | "leave", "destination": name} or {..., "route": {...}}]. Without p_remove,
-- definitions that are no longer declared stay, and are returned as "leave". Split routes stay only with p_keep.
-- A destination with the mode stream has filters instead of routes, which are added and removed by the same rules.
-- p_relay_id: the calling relay. p_horizon: see route_first.
CREATE OR REPLACE FUNCTION reconcile_definitions(
  p_owner    text,
  p_relay_id uuid,
  p_remove   boolean,
  p_horizon  xid8,
  p_dry_run  boolean DEFAULT false,
  p_keep     boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_wanted         jsonb := declared_definitions(p_owner, p_relay_id);
  v_changes        jsonb := reconcile_destinations(p_owner, v_wanted -> 'destinations');
  v_routes         routes[] := declared_routes(p_owner, v_wanted -> 'routes');
  v_living         routes[] := v_routes;
  v_new            routes[];
  v_gone           routes[];
  v_leaving        routes[];
  v_left           text[];
  v_hook           text;
  v_in_stream_mode int[] := ARRAY (
    SELECT d.id
      FROM jsonb_array_elements(v_wanted -> 'destinations') w
      JOIN destinations d ON d.name = w.value ->> 'name'
     WHERE jsonb_typeof(w.value -> 'cursor') = 'object');
BEGIN
  IF p_keep THEN
    v_living := v_routes || ARRAY (
      SELECT r
        FROM routes r
       WHERE r.owner = p_owner
         AND r.split_by IS NOT NULL
         AND NOT EXISTS (SELECT FROM unnest(v_routes) w WHERE route_key(w) = route_key(r)));
  ELSIF EXISTS (SELECT FROM unnest(v_routes) w WHERE w.split_by IS NOT NULL)
     OR EXISTS (SELECT FROM routes r WHERE r.owner = p_owner AND r.split_by IS NOT NULL) THEN
    v_living := declared_routes(p_owner, declared_definitions(p_owner, p_relay_id, true) -> 'routes');
  END IF;
  FOR v_hook IN SELECT hooks('routes') LOOP
    EXECUTE format('SELECT %s($1, $2, $3)', v_hook) USING p_owner, v_routes, v_living;
  END LOOP;
  v_new := ARRAY (
    SELECT w
      FROM unnest(v_routes) w
     WHERE NOT EXISTS (
             SELECT FROM routes r
              WHERE r.owner = p_owner
                AND route_key(r) = route_key(w)
                AND r.split_by IS NOT DISTINCT FROM w.split_by));
  -- split routes are removed at once: the hook that splits them has just checked what replaces them
  v_gone := ARRAY (
    SELECT r
      FROM routes r
     WHERE r.owner = p_owner
       AND (p_remove OR r.destination_id = ANY (v_in_stream_mode))
       AND r.split_by IS NULL
       AND NOT EXISTS (SELECT FROM unnest(v_routes) w WHERE route_key(w) = route_key(r))
    UNION ALL
    SELECT r
      FROM routes r
     WHERE r.owner = p_owner
       AND r.split_by IS NOT NULL
       AND NOT EXISTS (SELECT FROM unnest(v_living) w WHERE route_key(w) = route_key(r)));
  v_leaving := ARRAY (
    SELECT r
      FROM routes r
     WHERE r.owner = p_owner
       AND NOT (p_remove OR r.destination_id = ANY (v_in_stream_mode))
       AND r.split_by IS NULL
       AND NOT EXISTS (SELECT FROM unnest(v_routes) w WHERE route_key(w) = route_key(r)));
  v_changes := v_changes || route_changes('add', v_new) || route_changes('remove', v_gone)
            || route_changes('leave', v_leaving);
  IF NOT p_dry_run THEN PERFORM route_first(p_owner, v_routes, p_horizon); END IF;
  INSERT INTO routes
  SELECT w.*
    FROM unnest(v_new) w
  ON CONFLICT (destination_id, topic, namespace, tenant_id, owner) DO UPDATE
    SET split_by = excluded.split_by,
        added_at = excluded.added_at;
  DELETE FROM routes r
   USING unnest(v_gone) g
   WHERE r.owner = g.owner
     AND route_key(r) = route_key(g);
  PERFORM record_routes(p_owner, v_new, v_gone);
  v_changes := v_changes || reconcile_cursors(p_owner, v_wanted -> 'destinations', v_gone, p_remove);

  v_left := ARRAY (
    SELECT d.name
      FROM destination_owners o
      JOIN destinations d ON d.id = o.destination_id
     WHERE o.owner = p_owner
       AND NOT EXISTS (
             SELECT FROM jsonb_array_elements(v_wanted -> 'destinations') w
              WHERE w.value ->> 'name' = d.name)
     ORDER BY d.name);
  IF p_remove AND cardinality(v_left) > 0 THEN
    DELETE FROM destination_owners o
     USING destinations d
     WHERE d.id = o.destination_id
       AND o.owner = p_owner
       AND d.name = ANY (v_left);
    PERFORM leave_destinations();
  END IF;
  RETURN v_changes || (
    SELECT coalesce(jsonb_agg(jsonb_build_object('change', CASE WHEN p_remove THEN 'remove' ELSE 'leave' END,
                                                 'destination', l.name)), '[]')
      FROM unnest(v_left) l(name));
END $$;

-- The identity of a route of an owner as one value in which nulls are equal, so that joins on it can use a hash.
CREATE OR REPLACE FUNCTION route_key(p_route routes) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
  SELECT jsonb_build_array(p_route.destination_id, p_route.topic, p_route.namespace, p_route.tenant_id)
$$;

-- The changes of routes, in the form that reconcile_definitions returns.
CREATE OR REPLACE FUNCTION route_changes(p_change text, p_routes routes[]) RETURNS jsonb
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT coalesce(jsonb_agg(jsonb_build_object('change', p_change, 'route', r.value)), '[]')
    FROM jsonb_array_elements(shown_routes(p_routes)) r
$$;

-- Declares the configuration of a relay that starts, and adds the missing definitions. Returns the ids of its
-- destinations by name. p_version: the version of the application, for display. p_as: 'start', 'drain', or 'again' for
-- a running relay that could not confirm its declaration; only a start removes split routes. p_made_at: for
-- 'again', when the relay first declared it; the declaration may be gone by now, and must not count as the newest.
CREATE OR REPLACE FUNCTION sync_definitions(
  p_definitions jsonb,
  p_application text,
  p_version     text,
  p_relay_id    uuid,
  p_horizon     xid8 DEFAULT NULL,
  p_as          text DEFAULT 'start',
  p_made_at     timestamptz DEFAULT NULL)
RETURNS TABLE (name text, id int, made_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
  PERFORM check_definitions(p_definitions, p_application);
  IF p_as IS NULL OR p_as NOT IN ('start', 'drain', 'again') THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_as is %s: use start, drain or again', coalesce(left(p_as, 60), 'null'));
  END IF;
  PERFORM lock_definitions();
  PERFORM correct_declarations();
  PERFORM store_declaration(p_application, p_relay_id, p_version, p_definitions, clock_timestamp(), p_as = 'drain',
                            p_made_at);
  IF p_as <> 'start' THEN PERFORM check_destinations(p_application, p_definitions -> 'destinations'); END IF;
  PERFORM reconcile_definitions(p_application, p_relay_id, false, p_horizon, p_keep => p_as <> 'start');
  RETURN QUERY
    SELECT d.name, d.id, o.made_at
      FROM destinations d
      JOIN declarations o ON o.owner = p_application AND o.relay_id = p_relay_id
     WHERE d.name IN (
             SELECT x ->> 'name'
               FROM jsonb_array_elements(p_definitions -> 'destinations') x);
END $$;

-- Refuses destinations that could not be stored, even while another declaration decides their settings. Otherwise the
-- error would reach another relay of the application later, when that declaration no longer counts.
CREATE OR REPLACE FUNCTION check_destinations(p_owner text, p_destinations jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM reconcile_destinations(p_owner, p_destinations);
  RAISE SQLSTATE 'WB001';
EXCEPTION WHEN SQLSTATE 'WB001' THEN
  NULL;
END $$;

-- Stores a declaration, and deletes those that were not confirmed for an hour.
CREATE OR REPLACE FUNCTION store_declaration(
  p_owner       text,
  p_relay_id    uuid,
  p_version     text,
  p_definitions jsonb,
  p_seen_at     timestamptz,
  p_drain       boolean DEFAULT false,
  p_made_at     timestamptz DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  INSERT INTO owners (name) VALUES (p_owner) ON CONFLICT DO NOTHING;
  INSERT INTO declarations AS d (owner, relay_id, version, definitions, made_at, seen_at, is_drain)
  VALUES (p_owner, p_relay_id, p_version, p_definitions, least(p_made_at, clock_timestamp()), p_seen_at, p_drain)
  ON CONFLICT (owner, relay_id) DO UPDATE
    SET version = excluded.version,
        definitions = excluded.definitions,
        seen_at = excluded.seen_at,
        steady_since = excluded.steady_since,
        signed_off = false,
        made_at = CASE WHEN d.relay_id = applied_id() THEN excluded.made_at ELSE d.made_at END;
  DELETE FROM declarations d
   WHERE d.seen_at < clock_timestamp() - interval '1 hour'
     AND NOT is_living(d.relay_id);
END $$;

-- Confirms a relay's declaration; writes at most once in 30 seconds. A relay that has not confirmed for three minutes
-- was cut off from the database. Other relays may have been, too, so its ten minutes start again. Returns false if the
-- declaration no longer counts: the relay then declares its configuration again.
CREATE OR REPLACE FUNCTION confirm_declaration(p_relay_id uuid) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE declarations d
     SET seen_at = clock_timestamp(),
         steady_since = CASE
           WHEN d.seen_at < clock_timestamp() - interval '3 minutes' THEN clock_timestamp()
           ELSE d.steady_since
         END
   WHERE d.relay_id = p_relay_id
     AND (d.seen_at BETWEEN clock_timestamp() - declared_for() AND clock_timestamp() - interval '30 seconds'
          OR d.seen_at > clock_timestamp() + clock_tolerance());
  RETURN EXISTS (
    SELECT FROM declarations d
     WHERE d.relay_id = p_relay_id
       AND d.seen_at > clock_timestamp() - declared_for());
END $$;

-- Reconciles the definitions of a running relay's application; relays call it every minute. A relay with an old
-- configuration may have started in between, so it restores what the newest living declaration says. If the calling
-- relay has run for ten minutes without interruption, it also removes definitions that were not declared for ten
-- minutes. problem: why split routes that no running relay declares were not removed; all else was reconciled.
CREATE OR REPLACE FUNCTION tend_definitions(p_relay_id uuid, OUT changes jsonb, OUT problem text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_own    declarations;
  v_steady boolean;
BEGIN
  PERFORM lock_definitions();
  PERFORM correct_declarations();
  SELECT *
    INTO v_own
    FROM declarations d
   WHERE d.relay_id = p_relay_id
     AND d.seen_at > clock_timestamp() - declared_for();
  changes := '[]';
  IF NOT FOUND THEN RETURN; END IF;
  v_steady := v_own.steady_since < clock_timestamp() - declared_for();
  BEGIN
    changes := reconcile_definitions(v_own.owner, p_relay_id, v_steady, NULL, p_keep => NOT v_steady);
  EXCEPTION WHEN invalid_parameter_value THEN
    problem := SQLERRM;
    changes := reconcile_definitions(v_own.owner, p_relay_id, v_steady, NULL, p_keep => true);
  END;
END $$;

-- Declares a configuration without a relay, until the next call, as waybill apply does; it is applied completely or not
-- at all. p_prune: removes at once what neither this configuration nor a running relay declares. p_dry_run: changes
-- nothing. p_beside: what features declare beside destinations and routes, as {"watches": …}, which is described at
-- sync_watches; what it leaves out stays as it is. Returns what changed or would change.
CREATE OR REPLACE FUNCTION apply_definitions(
  p_definitions jsonb,
  p_application text DEFAULT 'default',
  p_version     text DEFAULT NULL,
  p_prune       boolean DEFAULT false,
  p_dry_run     boolean DEFAULT false,
  p_horizon     xid8 DEFAULT NULL,
  p_beside      jsonb DEFAULT '{}')
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_changes jsonb;
  v_more    jsonb;
  v_hook    text;
BEGIN
  v_changes := declare_applied(p_definitions, p_application, p_version, p_prune, p_dry_run, p_horizon);
  -- outside declare_applied, with the rights of the caller, which may be wider
  FOR v_hook IN SELECT hooks('applied') LOOP
    EXECUTE format('SELECT %s($1, $2, $3, $4)', v_hook) INTO v_more USING p_beside, p_application, p_prune, p_dry_run;
    v_changes := v_changes || v_more;
  END LOOP;
  IF p_dry_run THEN RAISE SQLSTATE 'WB001'; END IF;
  RETURN v_changes;
EXCEPTION WHEN SQLSTATE 'WB001' THEN
  RETURN v_changes;
END $$;

-- The part of apply_definitions that needs the rights of the owner. p_dry_run: no earlier messages are routed; the
-- caller undoes everything else.
CREATE OR REPLACE FUNCTION declare_applied(
  p_definitions jsonb,
  p_application text,
  p_version     text,
  p_prune       boolean,
  p_dry_run     boolean,
  p_horizon     xid8)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM check_definitions(p_definitions, p_application);
  PERFORM lock_definitions();
  PERFORM correct_declarations();
  PERFORM store_declaration(p_application, applied_id(), p_version, p_definitions, 'infinity');
  IF p_prune THEN
    DELETE FROM declarations d
     WHERE d.owner = p_application
       AND d.relay_id <> applied_id()
       AND NOT is_running(d);
  END IF;
  RETURN reconcile_definitions(p_application, applied_id(), p_prune, p_horizon, p_dry_run);
END $$;

-- Removes all definitions of a retired application. It is refused while one of the application's relays runs, and while
-- there is something of a feature that the caller may not end. Pending deliveries at its destinations stay, and waybill
-- status shows them. Returns what it removed.
CREATE OR REPLACE FUNCTION remove_application(application text) RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_living  text;
  v_changes jsonb;
  v_hook    text;
BEGIN
  IF application IN ('sql', 'endpoints')
     OR NOT EXISTS (SELECT FROM owners o WHERE o.name = application) THEN
    PERFORM refuse_unknown('application', application, ARRAY (
      SELECT o.name
        FROM owners o
       WHERE o.name NOT IN ('sql', 'endpoints')
       ORDER BY o.name
       LIMIT 50));
  END IF;
  PERFORM lock_definitions();
  SELECT coalesce(r.name, d.relay_id::text)
    INTO v_living
    FROM declarations d
    LEFT JOIN relays r ON r.id = d.relay_id
   WHERE d.owner = application
     AND is_running(d)
   ORDER BY 1
   LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('the application "%s" is not removed: its relay %s is running; stop its relays first',
                       application, v_living);
  END IF;
  DELETE FROM declarations d WHERE d.owner = application;
  v_changes := reconcile_definitions(application, applied_id(), true, NULL);
  FOR v_hook IN SELECT hooks('removal') LOOP
    EXECUTE format('SELECT %s($1)', v_hook) USING application;
  END LOOP;
  DELETE FROM owners o WHERE o.name = application;
  PERFORM record_action(NULL, 'remove_application', jsonb_build_object('application', application), 1);
  RETURN v_changes;
END $$;
