-- How much waits and how much is dead at a destination. Whatever grows is counted up to 10,000 and estimated above, so
-- that it costs the same on a large outbox as on a small one; an estimate is never below 10,000, and so shows itself.
-- Three functions of one shape: one that takes the query as text would plan it at each call, which takes many times as
-- long as counting little does, and every look at the overview calls all three for each destination.

-- About how many rows a query gives, as the planner knows it. Volatile only because a plan may not be asked for in any
-- other function.
CREATE OR REPLACE FUNCTION estimated_rows(p_query text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_plan json;
BEGIN
  EXECUTE 'EXPLAIN (FORMAT JSON) ' || p_query INTO v_plan;
  RETURN (v_plan -> 0 -> 'Plan' ->> 'Plan Rows')::numeric;
END $$;

-- What waits there, retrying ones included. Both kinds have an index of their own; together they have none.
CREATE OR REPLACE FUNCTION count_waiting(p_destination_id smallint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
  v_most  int := 10000;
  v_count bigint;
BEGIN
  SELECT count(*) INTO v_count FROM (
    (SELECT FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL LIMIT v_most)
    UNION ALL
    (SELECT FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NOT NULL LIMIT v_most) LIMIT v_most) x;
  RETURN CASE WHEN v_count < v_most THEN v_count
              ELSE greatest(v_count, estimated_rows(format('SELECT FROM deliveries WHERE destination_id = %s', p_destination_id))) END;
END $$;

-- What waits there for another try.
CREATE OR REPLACE FUNCTION count_retrying(p_destination_id smallint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
  v_most  int := 10000;
  v_count bigint;
BEGIN
  SELECT count(*) INTO v_count FROM (SELECT FROM deliveries d WHERE d.destination_id = p_destination_id AND d.tries > 0 LIMIT v_most) x;
  RETURN CASE WHEN v_count < v_most THEN v_count
              ELSE greatest(v_count, estimated_rows(format('SELECT FROM deliveries WHERE destination_id = %s AND tries > 0', p_destination_id))) END;
END $$;

-- Dead letters there.
CREATE OR REPLACE FUNCTION count_dead(p_destination_id smallint) RETURNS bigint
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off SET enable_seqscan = off AS $$
DECLARE
  v_most  int := 10000;
  v_count bigint;
BEGIN
  SELECT count(*) INTO v_count FROM (SELECT FROM dead_letters d WHERE d.destination_id = p_destination_id LIMIT v_most) x;
  RETURN CASE WHEN v_count < v_most THEN v_count
              ELSE greatest(v_count, estimated_rows(format('SELECT FROM dead_letters WHERE destination_id = %s', p_destination_id))) END;
END $$;

-- About how many dead letters there are at a destination, with one code or with any. Kept for the page of 0.1, whose
-- screens of destinations and dead letters call it while relays are rolled; nothing else does, and 0.3 goes without it.
CREATE OR REPLACE FUNCTION estimate_dead_letters(p_destination_id smallint, p_error_code text DEFAULT NULL) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT least(estimated_rows(format('SELECT FROM dead_letters WHERE destination_id = %s', p_destination_id)
           || CASE WHEN p_error_code IS NULL THEN '' ELSE format(' AND error_code = %L', p_error_code) END), 2147483647)::int
$$;
