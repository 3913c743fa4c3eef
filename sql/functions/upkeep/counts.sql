-- Counts of pending and dead deliveries per destination. A count is exact up to 10,000 and estimated above, so it costs
-- the same on a large outbox as on a small one. An estimate is never below 10,000, so readers can tell it from a count.
--
-- There are three functions of the same form. A function that takes the query as text would plan it at each call, which
-- takes many times as long as a small count, and each reading of the overview calls all three for every destination.

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

-- Unrouted messages, counted up to 10,000; operators need no larger number.
CREATE OR REPLACE FUNCTION count_unrouted() RETURNS int
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
  RETURN (SELECT count(*) FROM (SELECT FROM unrouted_messages LIMIT 10000) x);
END $$;

-- Dead letters.
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
