-- Routes: which topics go to which destination. This file has the routes defined in SQL, and the routing of messages
-- that were enqueued before the first routes of an owner. Routes of configurations are in definitions.sql.

-- Whether a route matches a message. The topic of a route is exact, 'user.*' (everything that begins with 'user.') or
-- '*'. A route without a namespace or tenant matches all of them.
CREATE OR REPLACE FUNCTION route_matches(
  p_route_topic     text,
  p_route_namespace text,
  p_route_tenant_id text,
  p_topic           text,
  p_namespace       text,
  p_tenant_id       text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT (p_route_topic = p_topic
          OR p_route_topic = '*'
          OR (p_route_topic LIKE '%.*' AND starts_with(p_topic, left(p_route_topic, -1))))
     AND (p_route_namespace IS NULL OR p_route_namespace = p_namespace)
     AND (p_route_tenant_id IS NULL OR p_route_tenant_id = p_tenant_id)
$$;

-- Returns the topic of a route, or refuses a malformed one.
CREATE OR REPLACE FUNCTION checked_route_topic(p_topic text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  IF p_topic ~ '^(\*|[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*(\.\*)?)$' THEN RETURN p_topic; END IF;
  RAISE EXCEPTION USING ERRCODE = '22023',
    MESSAGE = format('topic is %s: give an exact topic, user.* or *',
                     coalesce('"' || left(p_topic, 60) || '"', 'null'));
END $$;

-- Adds a route in SQL, for example for a worker in another language. Its owner is 'sql', so no configuration removes
-- it. Adding the same route again changes nothing. Returns whether it is new.
CREATE OR REPLACE FUNCTION define_route(
  topic       text,
  destination text,
  namespace   text DEFAULT NULL,
  tenant_id   text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_destination destinations;
  v_route       routes;
BEGIN
  PERFORM lock_definitions();
  v_destination := find_destination(define_route.destination);
  IF v_destination.origin = 'database' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('destination is "%s", an endpoint: change its topics instead (change_endpoint)',
                       v_destination.name);
  END IF;
  v_route.destination_id := v_destination.id;
  v_route.topic := checked_route_topic(define_route.topic);
  v_route.namespace := define_route.namespace;
  v_route.tenant_id := define_route.tenant_id;
  v_route.owner := 'sql';
  v_route.added_at := now();
  PERFORM route_first('sql', ARRAY[v_route], NULL);
  INSERT INTO routes AS r SELECT v_route.* ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM record_routes('sql', ARRAY[v_route], '{}');
  RETURN true;
END $$;

-- Removes a route that was defined in SQL. Returns whether it existed.
CREATE OR REPLACE FUNCTION remove_route(
  topic       text,
  destination text,
  namespace   text DEFAULT NULL,
  tenant_id   text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_id    int;
  v_route routes;
BEGIN
  PERFORM lock_definitions();
  v_id := (find_destination(remove_route.destination)).id;
  DELETE FROM routes r
   WHERE r.owner = 'sql'
     AND r.destination_id = v_id
     AND r.topic = remove_route.topic
     AND r.namespace IS NOT DISTINCT FROM remove_route.namespace
     AND r.tenant_id IS NOT DISTINCT FROM remove_route.tenant_id
  RETURNING *
    INTO v_route;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM record_routes('sql', '{}', ARRAY[v_route]);
  RETURN true;
END $$;

-- Records added and removed routes in the audit.
CREATE OR REPLACE FUNCTION record_routes(p_owner text, p_added routes[], p_removed routes[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF cardinality(p_added) + cardinality(p_removed) = 0 THEN RETURN; END IF;
  PERFORM record_action(NULL, 'change_routes', jsonb_build_object(
    'owner', p_owner,
    'added', CASE WHEN cardinality(p_added) > 0 THEN shown_routes(p_added) END,
    'removed', CASE WHEN cardinality(p_removed) > 0 THEN shown_routes(p_removed) END),
    cardinality(p_added) + cardinality(p_removed));
END $$;

-- The first routes of an owner also route unrouted messages up to this age. Older ones need route_unrouted.
CREATE OR REPLACE FUNCTION routed_age() RETURNS interval
LANGUAGE sql IMMUTABLE
AS $$
  SELECT interval '7 days'
$$;

-- Locks a batch of unrouted messages for routing, the oldest first. p_oldest: take none from before. A lock serializes
-- routing, so that two operators cannot route the later messages of a key first. After a clock stepped back, a message
-- may have a higher id than later messages of its key: such messages are added to the batch, and do not count in seen.
CREATE OR REPLACE FUNCTION lock_unrouted(
  p_after     uuid,
  p_oldest    uuid,
  p_max_count int,
  OUT ids     uuid[],
  OUT seen    int,
  OUT last    uuid)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_from uuid := greatest(p_after, p_oldest);
BEGIN
  PERFORM take_lock('unrouted');
  ids := ARRAY (
    SELECT u.message_id
      FROM unrouted_messages u
     WHERE v_from IS NULL OR u.message_id > v_from
     ORDER BY u.message_id
     LIMIT p_max_count
       FOR UPDATE);
  seen := cardinality(ids);
  last := coalesce(ids[seen], p_after);
  IF seen < p_max_count THEN RETURN; END IF;
  ids := ids || ARRAY (
    SELECT u.message_id
      FROM (SELECT k.key_id, max(k.sequence) AS sequence
              FROM unrouted_messages k
             WHERE k.message_id = ANY (ids)
               AND k.key_id IS NOT NULL
             GROUP BY k.key_id) b
      JOIN unrouted_messages u ON u.key_id = b.key_id AND u.sequence < b.sequence
     WHERE u.message_id > last
     ORDER BY u.message_id
       FOR UPDATE OF u);
END $$;

-- Whether a message is, or was, at a destination: pending, held, dead or ended. It must not be added there again.
CREATE OR REPLACE FUNCTION is_at_destination(p_message_id uuid, p_destination_id int)
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
           SELECT FROM deliveries d
            WHERE d.message_id = p_message_id
              AND d.destination_id = p_destination_id)
      OR EXISTS (
           SELECT FROM attempts a
            WHERE a.message_id = p_message_id
              AND a.destination_id = p_destination_id)
      OR EXISTS (
           SELECT FROM dead_letters l
            WHERE l.message_id = p_message_id
              AND l.destination_id = p_destination_id)
      OR EXISTS (
           SELECT FROM leases l
            WHERE l.destination_id = p_destination_id
              AND p_message_id = ANY (l.message_ids))
$$;

-- Creates deliveries for unrouted messages. The caller has locked them, and p_ids is sorted. It uses p_routes, or the
-- stored routes if that is null, but no split route: it is not decided which system sends these messages. Returns how
-- many messages were routed. A message whose producer gave a time keeps it, and a delayed message is due at its time.
-- All others of one call are due at the same time, so that the oldest message is claimed first.
CREATE OR REPLACE FUNCTION deliver_unrouted(p_ids uuid[], p_routes routes[]) RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_routed  int;
  v_targets int[];
  v_keys    bigint[];
BEGIN
  WITH wanted AS MATERIALIZED (
    SELECT DISTINCT m.id, r.destination_id, m.namespace, m.key_id, m.sequence,
           fair_tenant(t.fairness, m.tenant_id) AS tenant_id,
           m.bytes, coalesce(m.available_at, greatest(u.available_at, now())) AS available_at,
           CASE WHEN m.available_at IS NOT NULL THEN -1 WHEN u.available_at > now() THEN u.delay_ms END AS delay_ms,
           is_wanted(m.payload, t.filter) AS is_wanted
      FROM unnest(p_ids) i(id)
     CROSS JOIN LATERAL (SELECT * FROM unrouted_messages x WHERE x.message_id = i.id OFFSET 0) u
     CROSS JOIN LATERAL (
            -- FOR SHARE: retention sees the lock and keeps the partition
            SELECT *
              FROM messages x
             WHERE x.id = i.id
               AND x.id BETWEEN p_ids[1] AND p_ids[cardinality(p_ids)]
            OFFSET 0
               FOR SHARE) m
      -- two halves, each an index scan: no plan reads the routes of other tenants, even before the table is analyzed
      JOIN LATERAL (
            SELECT x.destination_id
              FROM routes x
             WHERE p_routes IS NULL
               AND x.split_by IS NULL
               AND x.tenant_id IS NULL
               AND route_matches(x.topic, x.namespace, NULL, m.topic, m.namespace, m.tenant_id)
            UNION ALL
            SELECT x.destination_id
              FROM routes x
             WHERE p_routes IS NULL
               AND x.split_by IS NULL
               AND x.tenant_id = m.tenant_id
               AND route_matches(x.topic, x.namespace, NULL, m.topic, m.namespace, m.tenant_id)
            UNION ALL
            SELECT x.destination_id
              FROM unnest(p_routes) x
             WHERE x.split_by IS NULL
               AND route_matches(x.topic, x.namespace, x.tenant_id, m.topic, m.namespace, m.tenant_id)) r ON true
      JOIN destinations t ON t.id = r.destination_id),
  delivered AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, delay_ms, bytes, namespace, tenant_id, key_id,
                            sequence)
    SELECT w.id, w.destination_id, w.available_at, w.delay_ms, w.bytes, w.namespace, w.tenant_id, w.key_id,
           w.sequence
      FROM wanted w
     WHERE w.is_wanted
       AND NOT is_at_destination(w.id, w.destination_id)
     ORDER BY w.id
    RETURNING destination_id, key_id),
  gone AS (
    DELETE FROM unrouted_messages u
     USING (SELECT DISTINCT id FROM wanted) w
     WHERE u.message_id = w.id
    RETURNING 1)
  SELECT (SELECT count(*) FROM gone),
         (SELECT array_agg(destination_id) FROM delivered),
         (SELECT array_agg(key_id) FROM delivered)
    INTO v_routed, v_targets, v_keys;
  IF v_targets IS NOT NULL THEN
    PERFORM recheck_lanes(v_targets, v_keys);
    PERFORM notify_relays(ARRAY (SELECT DISTINCT t FROM unnest(v_targets) t));
  END IF;
  RETURN v_routed;
END $$;

-- Routes earlier unrouted messages for a new owner, one batch per call, before its routes are added. It stores missing
-- destinations first. Messages of one key stay in order, because later ones are unrouted too until the routes exist.
-- Pass last as p_after in the next call until seen is less than p_max_count; then pass horizon to the call that adds
-- the routes.
CREATE OR REPLACE FUNCTION route_earlier(
  p_definitions jsonb,
  p_application text,
  p_after       uuid DEFAULT NULL,
  p_max_count   int DEFAULT 1000,
  OUT routed    int,
  OUT seen      int,
  OUT last      uuid,
  OUT horizon   xid8)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_batch record;
BEGIN
  PERFORM checked_number('p_max_count', p_max_count, 1, 1000000);
  PERFORM check_definitions(p_definitions, p_application);
  routed := 0;
  seen := 0;
  IF is_routed(p_application) OR p_definitions -> 'routes' = '[]' THEN RETURN; END IF;
  PERFORM lock_definitions();
  horizon := pg_snapshot_xmin(pg_current_snapshot());
  SELECT *
    INTO v_batch
    FROM lock_unrouted(p_after, id_at(clock_timestamp() - routed_age()), p_max_count);
  seen := v_batch.seen;
  last := v_batch.last;
  IF seen = 0 THEN RETURN; END IF;
  INSERT INTO owners (name) VALUES (p_application) ON CONFLICT DO NOTHING;
  PERFORM reconcile_destinations(p_application, (
    SELECT coalesce(jsonb_agg(w.value), '[]')
      FROM jsonb_array_elements(p_definitions -> 'destinations') w
     WHERE NOT EXISTS (
             SELECT FROM destinations d
               JOIN destination_owners o ON o.destination_id = d.id
              WHERE d.name = w.value ->> 'name'
                AND o.owner = p_application)));
  routed := deliver_unrouted(v_batch.ids, declared_routes(p_application, p_definitions -> 'routes'));
  IF routed > 0 THEN
    PERFORM record_action(NULL, 'route_unrouted', jsonb_build_object('owner', p_application), routed);
  END IF;
END $$;

-- Whether an owner has ever had routes.
CREATE OR REPLACE FUNCTION is_routed(p_owner text) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM owners o WHERE o.name = p_owner AND o.routed_at IS NOT NULL)
$$;

-- Routes the remaining earlier unrouted messages, in the transaction that adds the first routes of an owner. Producers
-- whose messages have no route wait for this transaction and then look for routes again (route_now), so that the
-- messages of a key stay in order. p_horizon: route_earlier has routed the messages of transactions before this one;
-- null if it was not called.
CREATE OR REPLACE FUNCTION route_first(p_owner text, p_routes routes[], p_horizon xid8) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_timeout text := current_setting('lock_timeout');
  v_oldest  uuid := id_at(clock_timestamp() - routed_age());
  v_ids     uuid[];
  v_routed  int;
BEGIN
  IF is_routed(p_owner) OR cardinality(p_routes) = 0 THEN RETURN; END IF;
  PERFORM assert_read_committed('route_first');
  BEGIN
    PERFORM set_config('lock_timeout', '500ms', true);
    PERFORM take_lock('unrouted');
    LOCK TABLE unrouted_messages IN SHARE ROW EXCLUSIVE MODE;
    -- makes producers in REPEATABLE READ, which would not see the routes, fail with a serialization error and retry
    UPDATE owners o SET routed_at = clock_timestamp() WHERE o.name IN (p_owner, 'endpoints');
    PERFORM set_config('lock_timeout', v_timeout, true);
  EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = '55P03',
      MESSAGE = 'the first routes are not added: '
                'a transaction that has enqueued or routed a message without a route is still open',
      HINT = 'Try again, or end that transaction.';
  END;
  v_ids := CASE
    WHEN p_horizon IS NULL THEN ARRAY (
      SELECT u.message_id
        FROM unrouted_messages u
       WHERE u.message_id > v_oldest
       ORDER BY u.message_id)
    ELSE ARRAY (
      SELECT u.message_id
        FROM messages m
        JOIN unrouted_messages u ON u.message_id = m.id
       WHERE m.transaction_id >= p_horizon
         AND m.id > v_oldest
       ORDER BY u.message_id)
  END;
  IF cardinality(v_ids) > 0 THEN
    v_routed := deliver_unrouted(v_ids, p_routes);
    IF v_routed > 0 THEN
      PERFORM record_action(NULL, 'route_unrouted', jsonb_build_object('owner', p_owner), v_routed);
    END IF;
  END IF;
END $$;

-- Looks for routes a second time for messages that enqueue has just found unrouted, because the first routes of an
-- owner may have been added meanwhile. Returns the destinations.
CREATE OR REPLACE FUNCTION route_now(p_messages messages[], p_ids uuid[], p_available timestamptz[], p_delays bigint[])
RETURNS int[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_places int[];
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    PERFORM FROM owners o WHERE o.name = 'endpoints' FOR SHARE;
  END IF;
  v_places := ARRAY (
    SELECT i
      FROM generate_subscripts(p_messages, 1) i
     WHERE (p_messages[i]).id = ANY (p_ids)
       AND EXISTS (
             SELECT FROM targets_of((p_messages[i]).topic, (p_messages[i]).namespace, (p_messages[i]).tenant_id))
     ORDER BY i);
  IF cardinality(v_places) = 0 THEN RETURN NULL; END IF;
  DELETE FROM unrouted_messages u
   USING unnest(v_places) i
   WHERE u.message_id = (p_messages[i]).id;
  RETURN (add_deliveries(
    ARRAY (SELECT p_messages[i] FROM unnest(v_places) i ORDER BY i),
    ARRAY (SELECT p_available[i] FROM unnest(v_places) i ORDER BY i),
    ARRAY (SELECT p_delays[i] FROM unnest(v_places) i ORDER BY i))).targets;
END $$;
