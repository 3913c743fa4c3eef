-- Mode changes: turn a destination from deliveries to stream mode and back, without losing a message and without
-- leaving a cursor behind:
--
--   deliver to stream  The transaction that removes the routes creates the cursor, which starts there. A producer sees
--                      either the routes or the cursor. Pending deliveries are still delivered.
--   stream to deliver  The transaction that adds the routes closes the cursor: no reader gets its lease any more.
--                      hand_over_cursors creates deliveries for unread messages. It deletes the cursor when all
--                      transactions that may have relied on it have ended.
--
-- A transaction that is open during the change may have its messages sent twice.

-- Creates, changes and closes the cursors of an owner; returns the changes of their filters, as reconcile_definitions
-- does. p_destinations: the destinations of the owner, as in declared_definitions. p_gone: the routes that the caller
-- has removed, among them all routes to destinations with the mode stream. Without p_remove, the filters of a cursor
-- stay when they are no longer declared, and the removed routes become filters.
CREATE OR REPLACE FUNCTION reconcile_cursors(p_owner text, p_destinations jsonb, p_gone routes[], p_remove boolean)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_wanted   record;
  v_declared routes[];
  v_stored   routes[];
  v_filters  routes[];
  v_added    routes[] := '{}';
  v_removed  routes[] := '{}';
  v_left     routes[] := '{}';
BEGIN
  FOR v_wanted IN
    SELECT d.id, d.name,
           w.value #>> '{cursor,from}' AS start_from,
           w.value #> '{cursor,filters}' AS filters,
           coalesce((w.value #>> '{cursor,partitions}')::int, 1) AS partitions,
           c.name IS NOT NULL AS is_known,
           c.topics, c.namespaces, c.tenant_ids
      FROM jsonb_array_elements(p_destinations) w
      JOIN destinations d ON d.name = w.value ->> 'name'
      LEFT JOIN cursors c ON c.name = d.name AND is_first(c)
     WHERE jsonb_typeof(w.value -> 'cursor') = 'object'
  LOOP
    -- filters as rows of routes, with one owner and time, so that equal filters are equal rows
    v_declared := ARRAY (
      SELECT ROW(v_wanted.id, f.topic, f.namespace, f."tenantId", NULL, p_owner, now())::routes
        FROM jsonb_to_recordset(v_wanted.filters) f(topic text, namespace text, "tenantId" text));
    v_stored := ARRAY (
      SELECT ROW(v_wanted.id, f.topic, f.namespace, f.tenant_id, NULL, p_owner, now())::routes
        FROM unnest(v_wanted.topics, v_wanted.namespaces, v_wanted.tenant_ids) f(topic, namespace, tenant_id));
    v_filters := ARRAY (
      SELECT x FROM unnest(v_declared) x
      UNION
      SELECT x FROM unnest(v_stored) x WHERE NOT p_remove
      UNION
      SELECT ROW(g.destination_id, g.topic, g.namespace, g.tenant_id, NULL, p_owner, now())::routes
        FROM unnest(p_gone) g
       WHERE g.destination_id = v_wanted.id
         AND g.split_by IS NULL
         AND NOT p_remove
       ORDER BY 1);
    PERFORM define_cursor(
      v_wanted.name,
      CASE
        WHEN EXISTS (SELECT FROM unnest(p_gone) g WHERE g.destination_id = v_wanted.id) THEN 'now'
        ELSE v_wanted.start_from
      END,
      ARRAY (SELECT f.topic FROM unnest(v_filters) f),
      ARRAY (SELECT f.namespace FROM unnest(v_filters) f),
      ARRAY (SELECT f.tenant_id FROM unnest(v_filters) f),
      v_wanted.partitions);
    CONTINUE WHEN NOT v_wanted.is_known;
    v_added := v_added || ARRAY (
      SELECT x FROM unnest(v_filters) x
      EXCEPT
      SELECT x FROM unnest(v_stored) x);
    v_removed := v_removed || ARRAY (
      SELECT x FROM unnest(v_stored) x
      EXCEPT
      SELECT x FROM unnest(v_filters) x);
    v_left := v_left || ARRAY (
      SELECT x FROM unnest(v_filters) x
      EXCEPT
      SELECT x FROM unnest(v_declared) x);
  END LOOP;
  PERFORM record_routes(p_owner, v_added, v_removed);

  PERFORM close_cursor(c.name)
     FROM cursors c
     JOIN destinations d ON d.id = c.destination_id
     JOIN jsonb_array_elements(p_destinations) w ON w.value ->> 'name' = d.name
    WHERE c.closing_since IS NULL
      AND is_first(c)
      AND jsonb_typeof(w.value -> 'cursor') IS DISTINCT FROM 'object';
  RETURN route_changes('add', v_added) || route_changes('remove', v_removed) || route_changes('leave', v_left);
END $$;

-- Closes a cursor whose destination gets deliveries from now on.
CREATE OR REPLACE FUNCTION close_cursor(p_name text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET lock_timeout = '500ms'
AS $$
BEGIN
  PERFORM end_older_snapshots(format('the mode of the destination "%s" is not changed', p_name));
  PERFORM lock_cursor(p_name);
  PERFORM revoke_cursor(p_name);
  UPDATE cursors c
     SET closing_since = clock_timestamp(),
         closes_at = NULL,
         batch_in_flight = false
   WHERE c.name = p_name;
  PERFORM record_action(NULL, 'close_cursor', jsonb_build_object('name', p_name), 1);
END $$;

-- Makes producers in REPEATABLE READ with a snapshot from before this transaction fail with a serialization error, so
-- that they retry: they would not see that a cursor no longer wants their messages. It waits for those that have
-- enqueued already. p_failed: what is not done if one of them stays open, for the error.
CREATE OR REPLACE FUNCTION end_older_snapshots(p_failed text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET lock_timeout = '500ms'
AS $$
BEGIN
  UPDATE owners o SET routed_at = clock_timestamp() WHERE o.name = 'endpoints';
EXCEPTION WHEN lock_not_available THEN
  RAISE EXCEPTION USING ERRCODE = '55P03',
    MESSAGE = p_failed || ': a transaction of a producer is still open',
    HINT = 'Try again, or end that transaction.';
END $$;

-- Creates deliveries for messages that closing cursors have not read, at most p_max_count for each cursor, and deletes
-- cursors that are done. Messages of a remainder become unrouted instead (cursor_remainders.sql). Returns true if the
-- caller should call again at once. A cursor that waits for open transactions needs a later call.
CREATE OR REPLACE FUNCTION hand_over_cursors(p_max_count int DEFAULT 1000) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_cursor cursors;
  v_more   boolean := false;
BEGIN
  PERFORM checked_number('p_max_count', p_max_count, 1, 1000000);
  IF NOT EXISTS (SELECT FROM cursors c WHERE c.closing_since IS NOT NULL) THEN RETURN false; END IF;
  PERFORM assert_read_committed('hand_over_cursors');
  FOR v_cursor IN
    SELECT *
      FROM cursors c
     -- not a cursor that this transaction has closed: producers do not see its routes yet
     WHERE c.closing_since < now()
     ORDER BY c.name, c.generation, c.hash_from
       FOR UPDATE SKIP LOCKED
  LOOP
    CONTINUE WHEN cursor_problem(v_cursor) IS NOT NULL;
    v_more := hand_over_cursor(v_cursor, p_max_count) OR v_more;
  END LOOP;
  RETURN v_more;
END $$;

-- Does one step for one row of a closing cursor. closes_at: every producer that has not seen the routes has a lower
-- transaction id. A row that is done stays until all rows of its cursor are: the cursor may be reopened.
CREATE OR REPLACE FUNCTION hand_over_cursor(p_cursor cursors, p_max_count int) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_closes_at xid8 := coalesce(p_cursor.closes_at, pg_snapshot_xmax(pg_current_snapshot()));
  v_window    record;
  v_page      record;
  v_ids       uuid[];
BEGIN
  SELECT * INTO v_window FROM open_window(p_cursor.seen, p_cursor.target, p_cursor.until);
  IF v_window.waiting THEN
    SELECT *
      INTO v_page
      FROM plan_window(p_cursor.seen, v_window.target, p_cursor.position, v_window.lowest, p_max_count,
                       9223372036854775807, 1, p_cursor.topics, p_cursor.namespaces, p_cursor.tenant_ids,
                       p_cursor.hash_from, p_cursor.hash_to)
     LIMIT 1;
    v_ids := ARRAY (
      SELECT p.message_id
        FROM read_page(p_cursor.seen, v_window.target, v_page.after, v_page.until, v_page.ids,
                       p_cursor.topics, p_cursor.namespaces, p_cursor.tenant_ids,
                       p_cursor.hash_from, p_cursor.hash_to) p
       ORDER BY p.message_id);
    IF p_cursor.kept IS NULL THEN
      PERFORM deliver_unread(p_cursor.destination_id, v_ids);
    ELSE
      PERFORM unroute_unread(p_cursor.kept, v_ids);
    END IF;
    IF NOT v_page.finished THEN
      UPDATE cursors c
         SET target = v_window.target,
             position = v_page.until,
             closes_at = v_closes_at
       WHERE c.name = p_cursor.name
         AND c.generation = p_cursor.generation
         AND c.hash_from = p_cursor.hash_from;
      RETURN true;
    END IF;
  END IF;
  IF v_window.target::text = p_cursor.until::text THEN
    DELETE FROM cursors c
     WHERE c.name = p_cursor.name
       AND c.generation = p_cursor.generation
       AND c.hash_from = p_cursor.hash_from;
    RETURN false;
  END IF;
  UPDATE cursors c
     SET seen = v_window.target,
         seen_at = clock_timestamp(),
         target = NULL,
         position = NULL,
         closes_at = v_closes_at
   WHERE c.name = p_cursor.name
     AND c.generation = p_cursor.generation
     AND c.hash_from = p_cursor.hash_from;
  IF v_window.is_last AND pg_snapshot_xmin(v_window.target) >= v_closes_at THEN
    DELETE FROM cursors c
     WHERE c.name = p_cursor.name
       AND NOT EXISTS (
             SELECT FROM cursors o
              WHERE o.name = p_cursor.name
                AND (o.closes_at IS NULL OR o.target IS NOT NULL OR pg_snapshot_xmin(o.seen) < o.closes_at));
    RETURN false;
  END IF;
  -- after the first step, call again: the transaction of this step is itself older than closes_at
  RETURN p_cursor.closes_at IS NULL OR NOT v_window.is_last;
END $$;

-- Creates deliveries for messages that a cursor has not read; p_ids is sorted. It skips messages for which the
-- destination has a delivery already, or had one, because the producer saw the routes.
CREATE OR REPLACE FUNCTION deliver_unread(p_destination_id int, p_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_keys bigint[];
BEGIN
  WITH delivered AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, bytes, namespace, tenant_id, key_id, sequence)
    SELECT m.id, t.id, now(), m.bytes, m.namespace, fair_tenant(t.fairness, m.tenant_id), m.key_id, m.sequence
      FROM unnest(p_ids) i(id)
     CROSS JOIN LATERAL (
            -- FOR SHARE: retention sees the lock and keeps the partition
            SELECT *
              FROM messages x
             WHERE x.id = i.id
               AND x.id BETWEEN p_ids[1] AND p_ids[cardinality(p_ids)]
            OFFSET 0
               FOR SHARE) m
      JOIN destinations t ON t.id = p_destination_id
     WHERE NOT is_at_destination(i.id, p_destination_id)
     ORDER BY m.id
    RETURNING key_id)
  SELECT array_agg(d.key_id)
    INTO v_keys
    FROM delivered d;
  -- a cursor that began later may have wanted them, too
  DELETE FROM unrouted_messages u WHERE u.message_id = ANY (p_ids);
  IF v_keys IS NULL THEN RETURN; END IF;
  PERFORM recheck_lanes(array_fill(p_destination_id, ARRAY[cardinality(v_keys)]), v_keys);
  PERFORM notify_relays(ARRAY[p_destination_id]);
END $$;
