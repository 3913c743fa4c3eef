-- The doorbell rings only when a relay listens and none is awake. A NOTIFY takes a database-wide lock
-- until after commit and halves the throughput of many producers; so while a relay polls, nobody
-- rings, and once every listener is gone, nobody rings either.
--
-- The race between falling asleep and a late commit is closed on both sides:
--   producer  takes its transaction id (by inserting) before it looks at the doorbells
--   relay     makes its sleep visible (stay_awake for 0 ms), notes the next transaction id, and goes on
--             polling until no older transaction runs (sleep_is_safe)
-- so a producer that still saw it awake has either committed before the last poll, or is waited for.
-- Under REPEATABLE READ the look may be older than the transaction id; those producers always ring.
-- A two-phase producer cannot NOTIFY at all: it says SET LOCAL waybill.doorbell = 'off' and relies on
-- the fallback poll.

-- A channel's name has at most 63 bytes.
CREATE OR REPLACE FUNCTION doorbell_channel() RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT 'waybill:' || CASE WHEN octet_length(current_schema()) <= 55 THEN current_schema() ELSE md5(current_schema()) END
$$;

CREATE OR REPLACE FUNCTION ring(p_destination_ids smallint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  IF current_setting('waybill.doorbell', true) = 'off' THEN RETURN; END IF;
  PERFORM pg_notify(doorbell_channel(), b.destination_id::text)
    FROM doorbells b
   WHERE b.destination_id = ANY (p_destination_ids)
   GROUP BY b.destination_id
  HAVING bool_or(b.listening_until > v_now)
     AND (NOT bool_or(b.awake_until > v_now)
          OR current_setting('transaction_isolation') <> 'read committed');
END $$;

-- A relay with a tenant or namespace filter is never counted as awake: it would silence the bell for
-- messages that it does not take. One that neither listens nor is awake has no row: it means nothing to
-- producers, and nobody could tell when its relay has died.
CREATE OR REPLACE FUNCTION stay_awake(p_relay_id uuid, p_destination_ids smallint[], p_awake_ms int, p_listening_ms int)
RETURNS void LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  DELETE FROM doorbells
   WHERE p_awake_ms <= 0 AND p_listening_ms <= 0 AND relay_id = p_relay_id AND destination_id = ANY (p_destination_ids);
  INSERT INTO doorbells AS b (destination_id, relay_id, listening_until, awake_until)
  SELECT d, p_relay_id,
         CASE WHEN p_listening_ms > 0 THEN clock_timestamp() + interval '1 ms' * p_listening_ms ELSE '-infinity' END,
         CASE WHEN p_awake_ms > 0 THEN clock_timestamp() + interval '1 ms' * p_awake_ms ELSE '-infinity' END
    FROM unnest(p_destination_ids) d WHERE p_awake_ms > 0 OR p_listening_ms > 0 ORDER BY d
  ON CONFLICT (destination_id, relay_id) DO UPDATE
    SET listening_until = excluded.listening_until, awake_until = excluded.awake_until
$$;

-- Forgets relays that are not heard of any more. Where one died while it counted as awake, nobody rang while
-- it was trusted: so it is rung for now, and the caller, who may be the one to come, is told.
CREATE OR REPLACE FUNCTION clear_doorbells() RETURNS smallint[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_unwatched smallint[];
BEGIN
  WITH stale AS (
    DELETE FROM doorbells
     WHERE ctid = ANY (ARRAY (
       SELECT ctid FROM doorbells
        WHERE listening_until < clock_timestamp() AND awake_until < clock_timestamp()
        FOR UPDATE SKIP LOCKED))
    RETURNING destination_id, awake_until)
  SELECT coalesce(array_agg(DISTINCT destination_id) FILTER (WHERE awake_until > '-infinity'), '{}') INTO v_unwatched FROM stale;
  IF v_unwatched <> '{}' THEN PERFORM ring(v_unwatched); END IF;
  RETURN v_unwatched;
END $$;

CREATE OR REPLACE FUNCTION next_transaction() RETURNS xid8
LANGUAGE sql VOLATILE AS $$ SELECT pg_snapshot_xmax(pg_current_snapshot()) $$;

CREATE OR REPLACE FUNCTION sleep_is_safe(p_asleep_since xid8) RETURNS boolean
LANGUAGE sql VOLATILE AS $$ SELECT pg_snapshot_xmin(pg_current_snapshot()) >= p_asleep_since $$;

-- When the next waiting delivery becomes due, for each destination at which one waits:
-- at once while there are tickets; never while the destination is paused. One query serves
-- any number of destinations: it goes from one that has work to the next, so that those without cost nothing.
CREATE OR REPLACE FUNCTION next_due() RETURNS TABLE (destination_id smallint, due_at timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_sort = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY WITH RECURSIVE queued AS (
    (SELECT d.destination_id, d.available_at FROM deliveries d WHERE d.stream_id IS NULL
      ORDER BY d.destination_id, d.available_at, d.message_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM queued q CROSS JOIN LATERAL (
      SELECT d.destination_id, d.available_at FROM deliveries d WHERE d.stream_id IS NULL AND d.destination_id > q.destination_id
       ORDER BY d.destination_id, d.available_at, d.message_id LIMIT 1) n),
  in_lanes AS (
    (SELECT l.destination_id, l.available_at FROM lanes l WHERE l.available_at IS NOT NULL AND l.blocked_by IS NULL
      ORDER BY l.destination_id, l.available_at, l.stream_id LIMIT 1)
    UNION ALL
    SELECT n.* FROM in_lanes q CROSS JOIN LATERAL (
      SELECT l.destination_id, l.available_at FROM lanes l
       WHERE l.available_at IS NOT NULL AND l.blocked_by IS NULL AND l.destination_id > q.destination_id
       ORDER BY l.destination_id, l.available_at, l.stream_id LIMIT 1) n),
  ticketed AS (
    (SELECT t.destination_id FROM lane_tickets t WHERE t.id > 0 ORDER BY t.destination_id, t.id LIMIT 1)
    UNION ALL
    SELECT n.* FROM ticketed q CROSS JOIN LATERAL (
      SELECT t.destination_id FROM lane_tickets t WHERE t.destination_id > q.destination_id AND t.id > 0
       ORDER BY t.destination_id, t.id LIMIT 1) n)
  SELECT w.destination_id, min(w.available_at)
    FROM (SELECT * FROM queued UNION ALL SELECT * FROM in_lanes UNION ALL SELECT t.destination_id, clock_timestamp() FROM ticketed t) w
   WHERE (SELECT d.paused_at IS NULL FROM destinations d WHERE d.id = w.destination_id)
   GROUP BY w.destination_id;
END $$;
