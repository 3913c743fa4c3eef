-- Wake-up: a producer notifies relays only if one listens and none polls already. NOTIFY takes a database-wide lock
-- until after the commit and halves the throughput of many producers, so it is avoided while a relay is active.
--
-- A relay that becomes idle must not miss a late commit. Both sides take care of this race:
--   producer  gets its transaction id (by inserting) before it reads listeners
--   relay     marks itself idle in listeners (register_listener with 0 ms), takes a transaction id, and goes on
--             polling until no older transaction runs (idle_is_safe)
-- So a producer that still saw the relay active commits before the last poll, and that poll finds its message.
-- Endpoints are served by every relay that serves any, so such a relay listens for all of them at once: with one row
-- for destination 0. An endpoint has a row of its own only while a relay polls it.
-- Under REPEATABLE READ a producer may read listeners as they were before it got its transaction id, so it always
-- notifies. A two-phase producer cannot NOTIFY: it sets waybill.notify to off, and relies on the fallback poll.

-- The NOTIFY channel of this schema. A channel name has at most 63 bytes, so a long schema name is hashed.
CREATE OR REPLACE FUNCTION notification_channel()
RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT 'waybill:' || CASE
    WHEN octet_length(current_schema()) <= 55 THEN current_schema()
    ELSE md5(current_schema())
  END
$$;

-- Notifies relays of new work at these destinations, where a relay listens and none is active.
CREATE OR REPLACE FUNCTION notify_relays(p_destination_ids int[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
  v_now      timestamptz := clock_timestamp();
  v_is_exact boolean := current_setting('transaction_isolation') = 'read committed';
  v_heard    int[];
  v_active   int[];
BEGIN
  IF current_setting('waybill.notify', true) = 'off' THEN RETURN; END IF;
  SELECT array_agg(b.destination_id) FILTER (WHERE b.listening_until > v_now),
         coalesce(array_agg(b.destination_id) FILTER (WHERE b.active_until > v_now AND v_is_exact), '{}')
    INTO v_heard, v_active
    FROM listeners b
   WHERE b.destination_id = ANY (p_destination_ids || 0);
  IF v_heard IS NULL THEN RETURN; END IF;
  PERFORM pg_notify(notification_channel(), t.id::text)
     FROM (SELECT DISTINCT unnest(p_destination_ids)) t(id)
    WHERE t.id <> ALL (v_active)
      AND (t.id = ANY (v_heard) OR (0 = ANY (v_heard) AND is_endpoint(t.id)));
END $$;

-- Whether the destination is an endpoint that is not removed.
CREATE OR REPLACE FUNCTION is_endpoint(p_destination_id int)
RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM destinations d
     WHERE d.id = p_destination_id
       AND d.kind = 'endpoint'
       AND d.configured)
$$;

-- Registers a relay as a listener of these destinations, and as active if it polls them. A relay with a tenant or
-- namespace filter is never active: it would keep producers from notifying others of messages that it does not take. A
-- relay that neither listens nor polls has no row, because a row would outlive a relay that died.
CREATE OR REPLACE FUNCTION register_listener(
  p_relay_id        uuid,
  p_destination_ids int[],
  p_active_ms       int,
  p_listening_ms    int)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT checked_number('p_active_ms', p_active_ms, 0, 3600000),
         checked_number('p_listening_ms', p_listening_ms, 0, 3600000);
  DELETE FROM listeners
   WHERE p_active_ms <= 0
     AND p_listening_ms <= 0
     AND relay_id = p_relay_id
     AND destination_id = ANY (p_destination_ids);
  INSERT INTO listeners AS b (destination_id, relay_id, listening_until, active_until)
  SELECT d, p_relay_id,
         CASE WHEN p_listening_ms > 0 THEN clock_timestamp() + interval '1 ms' * p_listening_ms ELSE '-infinity' END,
         CASE WHEN p_active_ms > 0 THEN clock_timestamp() + interval '1 ms' * p_active_ms ELSE '-infinity' END
    FROM unnest(p_destination_ids) d
   WHERE p_active_ms > 0
      OR p_listening_ms > 0
   ORDER BY d
  ON CONFLICT (destination_id, relay_id) DO UPDATE
     SET listening_until = excluded.listening_until, active_until = excluded.active_until
$$;

-- Removes relays that have not registered again in time. While a dead relay counted as active, producers did not send
-- notifications. So its destinations are notified now, and returned, because the caller may serve them too.
CREATE OR REPLACE FUNCTION remove_stale_listeners()
RETURNS int[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_unattended int[];
BEGIN
  WITH stale AS (
    DELETE FROM listeners
     WHERE ctid = ANY (ARRAY (
             SELECT ctid
               FROM listeners
              WHERE (listening_until < clock_timestamp() AND active_until < clock_timestamp())
                 -- relays register for less than a minute: a later time was written before the clock was set back
                 OR greatest(listening_until, active_until) > clock_timestamp() + clock_tolerance()
                FOR UPDATE SKIP LOCKED))
    RETURNING destination_id, active_until)
  SELECT coalesce(array_agg(DISTINCT destination_id) FILTER (WHERE active_until > '-infinity'), '{}')
    INTO v_unattended
    FROM stale;
  IF v_unattended <> '{}' THEN PERFORM notify_relays(v_unattended); END IF;
  RETURN v_unattended;
END $$;

-- Takes the next transaction id: every transaction that has an id now has a lower one, and later ones get a higher one.
-- The end of a snapshot (pg_snapshot_xmax) would not do: it is one more than the newest id that has ended, and
-- running transactions may have higher ids.
CREATE OR REPLACE FUNCTION next_transaction()
RETURNS xid8
LANGUAGE sql VOLATILE
AS $$
  SELECT pg_current_xact_id()
$$;

-- Whether all transactions older than this id have ended, so an idle relay can stop polling.
CREATE OR REPLACE FUNCTION idle_is_safe(p_idle_since xid8)
RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
  SELECT pg_snapshot_xmin(pg_current_snapshot()) >= p_idle_since
$$;

-- When the first pending delivery of each destination is due. A destination with lane tickets is due at once. One query
-- serves any number of destinations: it steps through the index from one destination with work to the next, so
-- destinations without work cost nothing.
CREATE OR REPLACE FUNCTION first_due()
RETURNS TABLE (destination_id int, due_at timestamptz)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
    WITH RECURSIVE queued AS (
      (SELECT d.destination_id, d.available_at
         FROM deliveries d
        WHERE d.key_id IS NULL
        ORDER BY d.destination_id, d.available_at, d.message_id
        LIMIT 1)
      UNION ALL
      SELECT n.*
        FROM queued q
       CROSS JOIN LATERAL (
              SELECT d.destination_id, d.available_at
                FROM deliveries d
               WHERE d.key_id IS NULL
                 AND d.destination_id > q.destination_id
               ORDER BY d.destination_id, d.available_at, d.message_id
               LIMIT 1) n),
    in_lanes AS (
      (SELECT l.destination_id, l.available_at
         FROM lanes l
        WHERE l.available_at IS NOT NULL
          AND l.blocked_by IS NULL
        ORDER BY l.destination_id, l.available_at, l.key_id
        LIMIT 1)
      UNION ALL
      SELECT n.*
        FROM in_lanes q
       CROSS JOIN LATERAL (
              SELECT l.destination_id, l.available_at
                FROM lanes l
               WHERE l.available_at IS NOT NULL
                 AND l.blocked_by IS NULL
                 AND l.destination_id > q.destination_id
               ORDER BY l.destination_id, l.available_at, l.key_id
               LIMIT 1) n),
    ticketed AS (
      (SELECT t.destination_id FROM lane_tickets t ORDER BY t.destination_id, t.id LIMIT 1)
      UNION ALL
      SELECT n.*
        FROM ticketed q
       CROSS JOIN LATERAL (
              SELECT t.destination_id
                FROM lane_tickets t
               WHERE t.destination_id > q.destination_id
               ORDER BY t.destination_id, t.id
               LIMIT 1) n)
    SELECT x.destination_id, min(x.available_at)
      FROM (SELECT * FROM queued
            UNION ALL
            SELECT * FROM in_lanes
            UNION ALL
            SELECT t.destination_id, clock_timestamp() FROM ticketed t) x
     GROUP BY x.destination_id;
END $$;

-- The same without paused destinations.
CREATE OR REPLACE FUNCTION next_due()
RETURNS TABLE (destination_id int, due_at timestamptz, is_endpoint boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
    SELECT f.destination_id, f.due_at, d.kind = 'endpoint' AND d.configured
      FROM first_due() f
      JOIN destinations d ON d.id = f.destination_id
     WHERE d.paused_at IS NULL;
END $$;

-- The same for these destinations only, without paused ones.
CREATE OR REPLACE FUNCTION next_due_of(p_destination_ids int[])
RETURNS TABLE (destination_id int, due_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_sort = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
    SELECT x.id, x.due_at
      FROM (SELECT u.id,
                   least(
                     (SELECT d.available_at
                        FROM deliveries d
                       WHERE d.key_id IS NULL
                         AND d.destination_id = u.id
                       ORDER BY d.available_at, d.message_id
                       LIMIT 1),
                     (SELECT l.available_at
                        FROM lanes l
                       WHERE l.available_at IS NOT NULL
                         AND l.blocked_by IS NULL
                         AND l.destination_id = u.id
                       ORDER BY l.available_at, l.key_id
                       LIMIT 1),
                     (SELECT clock_timestamp()
                        FROM lane_tickets t
                       WHERE t.destination_id = u.id
                       ORDER BY t.id
                       LIMIT 1)) AS due_at
              FROM unnest(p_destination_ids) u(id)
             WHERE (SELECT d.paused_at IS NULL FROM destinations d WHERE d.id = u.id)) x
     WHERE x.due_at IS NOT NULL;
END $$;
