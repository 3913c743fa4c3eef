-- Counts of pending and dead deliveries, of one destination and of all. A count is exact up to 10,000 and estimated
-- above, so it costs the same on a large outbox as on a small one. An estimate is never below 10,000, so readers can
-- tell it from a count.
--
-- count_waiting, count_retrying and count_dead have the same form. A function that takes the query as text would plan
-- it at each call, which takes many times as long as a small count, and lists of destinations, metrics and alerts call
-- them for each destination that they read. counted_rows does that, but once for all destinations.

-- The number of rows of a query, as the planner estimates it. Volatile only because EXPLAIN is not allowed in other
-- functions.
CREATE OR REPLACE FUNCTION estimated_rows(p_query text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_plan json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON) ' || p_query INTO v_plan;
  RETURN (v_plan -> 0 -> 'Plan' ->> 'Plan Rows')::numeric;
END $$;

-- The number of rows of a query over all destinations: exact up to p_most, and estimated above.
CREATE OR REPLACE FUNCTION counted_rows(p_query text, p_most int) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET jit = off
AS $$
DECLARE
  v_count bigint;
BEGIN
  EXECUTE format('SELECT count(*) FROM (%s LIMIT %s) x', p_query, p_most) INTO v_count;
  RETURN CASE WHEN v_count < p_most THEN v_count ELSE greatest(v_count, estimated_rows(p_query)) END;
END $$;

-- The destinations that have pending deliveries. It steps through the indexes from one destination with deliveries to
-- the next, so those without any cost nothing, however many there are.
CREATE OR REPLACE FUNCTION waiting_destinations() RETURNS SETOF int
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
  RETURN QUERY
    WITH RECURSIVE queued AS (
      SELECT (SELECT d.destination_id
                FROM deliveries d
               WHERE d.key_id IS NULL
               ORDER BY d.destination_id, d.available_at, d.message_id
               LIMIT 1) AS id
      UNION ALL
      SELECT (SELECT d.destination_id
                FROM deliveries d
               WHERE d.key_id IS NULL
                 AND d.destination_id > q.id
               ORDER BY d.destination_id, d.available_at, d.message_id
               LIMIT 1)
        FROM queued q
       WHERE q.id IS NOT NULL),
    keyed AS (
      SELECT (SELECT d.destination_id
                FROM deliveries d
               WHERE d.key_id IS NOT NULL
               ORDER BY d.destination_id, d.key_id, d.sequence
               LIMIT 1) AS id
      UNION ALL
      SELECT (SELECT d.destination_id
                FROM deliveries d
               WHERE d.key_id IS NOT NULL
                 AND d.destination_id > k.id
               ORDER BY d.destination_id, d.key_id, d.sequence
               LIMIT 1)
        FROM keyed k
       WHERE k.id IS NOT NULL)
    SELECT q.id FROM queued q WHERE q.id IS NOT NULL
    UNION
    SELECT k.id FROM keyed k WHERE k.id IS NOT NULL;
END $$;

-- The waiting destinations that health and alerts look at one by one: all of configurations, and of endpoints the 250
-- running and the 250 paused ones whose first delivery has been due longest. Deliveries of blocked keys do not count.
-- So the time that both take is limited, however many endpoints of customers wait.
CREATE OR REPLACE FUNCTION urgent_destinations() RETURNS SETOF int
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 100
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off
AS $$
BEGIN
  RETURN QUERY
    SELECT t.id
      FROM destinations t
     WHERE t.origin = 'file'
       AND (EXISTS (
              SELECT FROM deliveries d
               WHERE d.destination_id = t.id
                 AND d.key_id IS NULL)
            OR EXISTS (
              SELECT FROM deliveries d
               WHERE d.destination_id = t.id
                 AND d.key_id IS NOT NULL))
    UNION ALL
    SELECT x.id
      FROM (SELECT t.id,
                   row_number() OVER (PARTITION BY t.paused_at IS NULL
                                          ORDER BY least(f.due_at, h.available_at), t.id) AS place
              FROM first_due() f
                   -- OFFSET 0 makes it a look-up for each, instead of a scan of all endpoints
             CROSS JOIN LATERAL (
                    SELECT d.id, d.origin, d.paused_at
                      FROM destinations d
                     WHERE d.id = f.destination_id
                    OFFSET 0) t
                   -- first_due calls keys that no relay has looked at due now, however long they have waited
              LEFT JOIN LATERAL (
                    SELECT k.key_id
                      FROM lane_tickets k
                     WHERE k.destination_id = f.destination_id
                     ORDER BY k.id
                     LIMIT 1) k ON true
              LEFT JOIN LATERAL (
                    SELECT d.available_at
                      FROM deliveries d
                     WHERE d.destination_id = f.destination_id
                       AND d.key_id = k.key_id
                     ORDER BY d.sequence
                     LIMIT 1) h ON true
             WHERE t.origin = 'database') x
     WHERE x.place <= 250;
END $$;

-- The destinations that have dead letters, found by steps through their index.
CREATE OR REPLACE FUNCTION dead_destinations() RETURNS SETOF int
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
  RETURN QUERY
    WITH RECURSIVE dead AS (
      SELECT (SELECT d.destination_id FROM dead_letters d ORDER BY d.destination_id LIMIT 1) AS id
      UNION ALL
      SELECT (SELECT d.destination_id
                FROM dead_letters d
               WHERE d.destination_id > x.id
               ORDER BY d.destination_id
               LIMIT 1)
        FROM dead x
       WHERE x.id IS NOT NULL)
    SELECT x.id FROM dead x WHERE x.id IS NOT NULL;
END $$;

-- The destinations of configurations, and the endpoints that have pending, claimed or dead deliveries.
CREATE OR REPLACE FUNCTION loaded_destinations() RETURNS SETOF int
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
BEGIN
  RETURN QUERY
    SELECT d.id FROM destinations d WHERE d.origin = 'file'
    UNION
    SELECT waiting_destinations()
    UNION
    SELECT dead_destinations()
    UNION
    SELECT l.destination_id FROM leases l;
END $$;

-- Pending deliveries, including those that wait for a retry. Two scans, because keyed and unkeyed deliveries have
-- separate indexes.
CREATE OR REPLACE FUNCTION count_waiting(p_destination_id int) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  v_most  int := 10000;
  v_count bigint;
BEGIN
  SELECT count(*)
    INTO v_count
    FROM ((SELECT FROM deliveries d
            WHERE d.destination_id = p_destination_id
              AND d.key_id IS NULL
            LIMIT v_most)
          UNION ALL
          (SELECT FROM deliveries d
            WHERE d.destination_id = p_destination_id
              AND d.key_id IS NOT NULL
            LIMIT v_most)
          LIMIT v_most) x;
  RETURN CASE
    WHEN v_count < v_most THEN v_count
    ELSE greatest(
      v_count, estimated_rows(format('SELECT FROM deliveries WHERE destination_id = %s', p_destination_id)))
  END;
END $$;

-- Deliveries that wait for a retry.
CREATE OR REPLACE FUNCTION count_retrying(p_destination_id int) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  v_most  int := 10000;
  v_count bigint;
BEGIN
  SELECT count(*)
    INTO v_count
    FROM (SELECT FROM deliveries d
           WHERE d.destination_id = p_destination_id
             AND d.tries > 0
           LIMIT v_most) x;
  RETURN CASE
    WHEN v_count < v_most THEN v_count
    ELSE greatest(
      v_count,
      estimated_rows(format('SELECT FROM deliveries WHERE destination_id = %s AND tries > 0', p_destination_id)))
  END;
END $$;

-- Pending deliveries of all destinations. Above 10,000 in all, an estimate, so the cost does not grow with the number
-- of destinations.
CREATE OR REPLACE FUNCTION count_all_waiting() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
  SELECT counted_rows('SELECT FROM deliveries', 10000)
$$;

-- Deliveries of all destinations that wait for a retry; above 10,000 in all, an estimate.
CREATE OR REPLACE FUNCTION count_all_retrying() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
  SELECT counted_rows('SELECT FROM deliveries WHERE tries > 0', 10000)
$$;

-- Unrouted messages, counted up to 10,000; operators need no larger number.
CREATE OR REPLACE FUNCTION count_unrouted() RETURNS int
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
  RETURN (SELECT count(*) FROM (SELECT FROM unrouted_messages LIMIT 10000) x);
END $$;

-- The number of dead letters of a destination: exact up to 10,000.
CREATE OR REPLACE FUNCTION count_dead(p_destination_id int) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  v_most  int := 10000;
  v_count bigint;
BEGIN
  SELECT count(*)
    INTO v_count
    FROM (SELECT FROM dead_letters d WHERE d.destination_id = p_destination_id LIMIT v_most) x;
  RETURN CASE
    WHEN v_count < v_most THEN v_count
    ELSE greatest(
      v_count, estimated_rows(format('SELECT FROM dead_letters WHERE destination_id = %s', p_destination_id)))
  END;
END $$;

-- Dead letters of all destinations: the sum of count_dead, without a call for each of thousands of endpoints. It reads
-- the letters in the order of their destinations, 1,000 at a time. Only a destination that fills such a read is
-- counted with count_dead, and passed over. The last destination of any other read may have more letters, and begins
-- the next read. From 100,000 letters on, the rest is the planner's estimate, so the cost stays the same.
CREATE OR REPLACE FUNCTION count_all_dead() RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
  v_most  int := 1000;
  v_after int := -1;
  v_read  int;
  v_last  int;
  v_begun int;
  v_total bigint := 0;
BEGIN
  WHILE v_total < 100000 LOOP
    WITH letters AS MATERIALIZED (
      SELECT d.destination_id
        FROM dead_letters d
       WHERE d.destination_id > v_after
       ORDER BY d.destination_id
       LIMIT v_most)
    SELECT count(*), max(l.destination_id),
           count(*) FILTER (WHERE l.destination_id = (SELECT max(x.destination_id) FROM letters x))
      INTO v_read, v_last, v_begun
      FROM letters l;
    IF v_read < v_most THEN RETURN v_total + v_read; END IF;
    IF v_begun = v_most THEN
      v_total := v_total + count_dead(v_last);
      v_after := v_last;
    ELSE
      v_total := v_total + v_read - v_begun;
      v_after := v_last - 1;
    END IF;
  END LOOP;
  RETURN greatest(v_total, estimated_rows('SELECT FROM dead_letters'));
END $$;

-- Since when the oldest due delivery of a destination has been due; null if none waits. A time that a producer gave
-- counts from the enqueue, if that is later: an old row that was moved here a second ago has waited for a second.
-- Deliveries are read in the order of their due times until no later one can be older: usually two rows; behind many
-- given times, at most 10,000. For keys, the same with the first message of each. Keys that no relay has looked at,
-- because their destination is paused or no relay runs, are found by their tickets: in the order of their enqueue,
-- until no later one can be older, at most 1,000.
CREATE OR REPLACE FUNCTION oldest_due_at(p_destination_id int) RETURNS timestamptz
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
DECLARE
  v_most   int := 10000;
  v_due_at timestamptz;
  v_since  timestamptz;
  v_oldest timestamptz;
BEGIN
  FOR v_due_at, v_since IN
    SELECT d.available_at, due_since(d.available_at, d.delay_ms, d.message_id)
      FROM deliveries d
     WHERE d.destination_id = p_destination_id
       AND d.key_id IS NULL
     ORDER BY d.available_at, d.message_id
     LIMIT v_most
  LOOP
    EXIT WHEN v_due_at >= v_oldest;
    v_oldest := least(v_oldest, v_since);
  END LOOP;
  FOR v_due_at, v_since IN
    SELECT l.available_at, due_since(l.available_at, h.delay_ms, h.message_id)
      FROM lanes l
      LEFT JOIN LATERAL (
            SELECT d.delay_ms, d.message_id
              FROM deliveries d
             WHERE d.destination_id = p_destination_id
               AND d.key_id = l.key_id
             ORDER BY d.sequence
             LIMIT 1) h ON true
     WHERE l.destination_id = p_destination_id
       AND l.available_at IS NOT NULL
       AND l.blocked_by IS NULL
     ORDER BY l.available_at, l.key_id
     LIMIT v_most
  LOOP
    EXIT WHEN v_due_at >= v_oldest;
    v_oldest := least(v_oldest, v_since);
  END LOOP;
  -- no message is due before its enqueue
  FOR v_due_at, v_since IN
    SELECT id_time(h.message_id), due_since(h.available_at, h.delay_ms, h.message_id)
      FROM (SELECT t.id, t.key_id
              FROM lane_tickets t
             WHERE t.destination_id = p_destination_id
             ORDER BY t.id
             LIMIT 1000) t
      LEFT JOIN lanes l ON l.destination_id = p_destination_id
                       AND l.key_id = t.key_id
     CROSS JOIN LATERAL (
            SELECT d.available_at, d.delay_ms, d.message_id
              FROM deliveries d
             WHERE d.destination_id = p_destination_id
               AND d.key_id = t.key_id
             ORDER BY d.sequence
             LIMIT 1) h
     WHERE l.available_at IS NULL
       AND l.lease_id IS NULL
       AND l.blocked_by IS NULL
     ORDER BY t.id
  LOOP
    EXIT WHEN v_due_at >= v_oldest;
    v_oldest := least(v_oldest, v_since);
  END LOOP;
  RETURN v_oldest;
END $$;

-- Since when one delivery has been due: its due time, or the enqueue if the producer gave an earlier time.
CREATE OR REPLACE FUNCTION due_since(p_available_at timestamptz, p_delay_ms bigint, p_message_id uuid)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN p_delay_ms = -1 THEN greatest(p_available_at, id_time(p_message_id)) ELSE p_available_at END
$$;
