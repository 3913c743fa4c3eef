-- Windows: what a cursor reads next. A window contains the messages that are visible in a newer snapshot (the target)
-- and were not visible in the old one (seen):
--
--   fresh     transaction ids from the old snapshot's end on, visible in the target
--   returned  transactions that were running in the old snapshot and have ended in the target
--
-- A transaction that is still running is in neither, and does not delay other messages. A window is read page by page,
-- in the order of the ids; the position is the last id read. Transaction ids decide what belongs to a window, but not
-- the order of reading: of two transactions on one key, the one that began first may commit last. Because time does not
-- decide either, a clock that steps back hides no message. Nor does it change the order of a key, because a window ends
-- at such a step (clock_steps).

-- The transactions that were open in p_seen and have ended in p_target.
CREATE OR REPLACE FUNCTION returned_transactions(p_seen pg_snapshot, p_target pg_snapshot) RETURNS xid8[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT ARRAY (SELECT x FROM pg_snapshot_xip(p_seen) x WHERE pg_visible_in_snapshot(x, p_target))
$$;

-- Whether every transaction that has ended in the first snapshot has ended in the second, too; null counts as not
-- contained, unless there is no second snapshot.
CREATE OR REPLACE FUNCTION is_contained(p_snapshot pg_snapshot, p_other pg_snapshot) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
  SELECT p_other IS NULL
      OR coalesce(pg_snapshot_xmax(p_snapshot) <= pg_snapshot_xmax(p_other)
                  AND returned_transactions(p_other, p_snapshot) = '{}', false)
$$;

-- The first step back of the clock after a snapshot, or null. A window that begins at the snapshot ends at that step.
-- Of two steps with the same end, the one with more open transactions came first.
--
-- Why a cursor passes each clock step exactly once:
--   1. Never back: the step sees everything that p_seen sees. Its end is not smaller, and no transaction that is open
--      in the step is visible in p_seen (the third condition).
--   2. Always forward: the step sees more than p_seen. Its end is larger, or a transaction that was open in p_seen has
--      ended (the second condition).
--   3. So each window sees more than the one before, and a step that was reached or passed fails condition 2.
-- A step that sees less than p_seen in one part and more in another is ignored; committed_snapshot creates none.
CREATE OR REPLACE FUNCTION next_clock_step(p_seen pg_snapshot) RETURNS pg_snapshot
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT c.snapshot
    FROM clock_steps c
   WHERE c.ends >= pg_snapshot_xmax(p_seen)
     AND (c.ends > pg_snapshot_xmax(p_seen) OR returned_transactions(p_seen, c.snapshot) <> '{}')
     AND returned_transactions(c.snapshot, p_seen) = '{}'
   ORDER BY c.ends, (SELECT count(*) FROM pg_snapshot_xip(c.snapshot)) DESC
   LIMIT 1
$$;

-- Opens the next window, or reopens the one that was left (p_target). No window goes beyond p_until. lowest: no fresh
-- message has a lower id; null if there are none. waiting: false if the window is certainly empty. is_last: the window
-- reaches up to now.
CREATE OR REPLACE FUNCTION open_window(
  p_seen      pg_snapshot,
  p_target    pg_snapshot DEFAULT NULL,
  p_until     pg_snapshot DEFAULT NULL,
  OUT target  pg_snapshot,
  OUT lowest  uuid,
  OUT waiting boolean,
  OUT is_last boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  -- taken before clock_steps is read: a transaction that records a step after that is not in the window
  v_now      pg_snapshot := committed_snapshot();
  v_returned xid8[];
  v_most     int := 10000000;
  v_count    int;
BEGIN
  PERFORM refuse_standby();
  target := coalesce(p_target, next_clock_step(p_seen));
  IF p_target IS NULL AND NOT is_contained(target, p_until) THEN target := p_until; END IF;
  is_last := target IS NULL;
  target := coalesce(target, v_now);
  IF pg_snapshot_xmax(p_seen) = pg_snapshot_xmax(nothing_seen()) THEN
    lowest := '00000000-0000-0000-0000-000000000000';
    waiting := true;
    RETURN;
  END IF;
  IF pg_snapshot_xmax(p_seen) < pg_snapshot_xmax(target) THEN
    -- LIMIT keeps the planner from searching for the lowest id in id order
    SELECT (array_agg(f.id))[1], max(f.count)
      INTO lowest, v_count
      FROM (SELECT x.id, count(*) OVER () AS count
              FROM (SELECT m.id
                      FROM messages m
                     WHERE m.transaction_id >= pg_snapshot_xmax(p_seen)
                       AND m.transaction_id < pg_snapshot_xmax(target)
                     LIMIT v_most) x
             ORDER BY x.id
             LIMIT 1) f;
    -- the second half of an id is random; without it, the id is a bound that no other id equals
    lowest := CASE
      WHEN v_count < v_most THEN overlay(lowest::text PLACING '0000-000000000000' FROM 20)::uuid
      WHEN v_count = v_most THEN '00000000-0000-0000-0000-000000000000'
    END;
  END IF;
  v_returned := returned_transactions(p_seen, target);
  waiting := lowest IS NOT NULL
          OR (v_returned <> '{}'
              AND EXISTS (SELECT FROM messages m WHERE m.transaction_id = ANY (v_returned)));
END $$;

-- Plans the next pages of a window, in the order of the ids, each with at most p_limit messages and p_max_bytes of
-- payload. read_page reads a page, and several pages can be read at once. finished: the window has nothing after this
-- page. A page can be empty without being the last, because a call examines a limited number of fresh messages, also of
-- other partitions: p_pages or 20 pages of p_limit, whichever is more, and at least 2,000. Returned messages are looked
-- up by transaction, fifty pages at a time, so their pages list the ids.
CREATE OR REPLACE FUNCTION plan_window(
  p_seen       pg_snapshot,
  p_target     pg_snapshot,
  p_position   uuid,
  p_lowest     uuid,
  p_limit      int,
  p_max_bytes  bigint,
  p_pages      int,
  p_topics     text[] DEFAULT NULL,
  p_namespaces text[] DEFAULT NULL,
  p_tenant_ids text[] DEFAULT NULL,
  p_hash_from  int DEFAULT 0,
  p_hash_to    int DEFAULT 65536)
RETURNS TABLE (after uuid, until uuid, ids uuid[], messages int, finished boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_position  uuid := coalesce(p_position, '00000000-0000-0000-0000-000000000000');
  v_lowest    uuid := coalesce(p_lowest, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  v_returned  xid8[] := returned_transactions(p_seen, p_target);
  v_scanned   int := greatest(greatest(p_pages, 20) * p_limit, 2000);
  v_is_return boolean := v_position < v_lowest AND v_returned <> '{}';
  v_most      int := p_limit * CASE WHEN v_is_return AND p_pages > 1 THEN 50 ELSE p_pages END;
  v_ids       uuid[];
  v_bytes     bigint[];
  v_count     int;
  v_fitting   int;
  v_end       uuid;
  v_finished  boolean := false;
BEGIN
  PERFORM refuse_standby();
  IF v_is_return THEN
    -- Returned messages may have been enqueued hours before the fresh ones. Between the two lie messages that were all
    -- read. OFFSET keeps the planner from walking through them in id order.
    SELECT array_agg(f.id), array_agg(f.bytes)
      INTO v_ids, v_bytes
      FROM (SELECT r.id, r.bytes
              FROM (SELECT m.id, m.topic, m.namespace, m.tenant_id, m.key_id, m.bytes
                      FROM messages m
                     WHERE m.transaction_id = ANY (v_returned)
                    OFFSET 0) r
             WHERE r.id > v_position
               AND r.id <= v_lowest
               AND in_partition(r.key_id, r.id, p_hash_from, p_hash_to)
               AND filters_match(p_topics, p_namespaces, p_tenant_ids, r.topic, r.namespace, r.tenant_id)
             ORDER BY r.id
             LIMIT v_most) f;
  ELSE
    v_position := greatest(v_position, v_lowest);
    -- One statement also finds out whether the log goes on beyond what this call examines: if a partition were removed
    -- between two statements, the count would shift.
    SELECT a.ids, a.bytes,
           CASE WHEN coalesce(cardinality(a.ids), 0) < v_most THEN (
             SELECT m.id
               FROM messages m
              WHERE m.id > v_position
              ORDER BY m.id
             OFFSET v_scanned - 1
              LIMIT 1)
           END
      INTO v_ids, v_bytes, v_end
      FROM (SELECT array_agg(f.id) AS ids, array_agg(f.bytes) AS bytes
              FROM (SELECT s.id, s.bytes
                      FROM (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id, m.key_id, m.bytes
                              FROM messages m
                             WHERE m.id > v_position
                             ORDER BY m.id
                             LIMIT v_scanned) s
                     WHERE in_partition(s.key_id, s.id, p_hash_from, p_hash_to)
                       AND pg_visible_in_snapshot(s.transaction_id, p_target)
                       AND NOT pg_visible_in_snapshot(s.transaction_id, p_seen)
                       -- filters_match, written out to avoid a function call for each message
                       AND (p_topics IS NULL OR EXISTS (
                             SELECT FROM unnest(p_topics, p_namespaces, p_tenant_ids) f(topic, namespace, tenant_id)
                              WHERE route_matches(f.topic, f.namespace, f.tenant_id,
                                                  s.topic, s.namespace, s.tenant_id)))
                     ORDER BY s.id
                     LIMIT v_most) f) a;
  END IF;
  v_count := coalesce(cardinality(v_ids), 0);

  -- Pages with too many bytes are left to the next plan. If it is the first page, it is shortened.
  SELECT coalesce(min(x.page) * p_limit, v_count)
    INTO v_fitting
    FROM (SELECT (b.place - 1) / p_limit AS page
            FROM unnest(v_bytes) WITH ORDINALITY b(bytes, place)
           GROUP BY 1
          HAVING sum(b.bytes) > p_max_bytes) x;
  IF v_fitting = 0 AND v_count > 0 THEN
    SELECT greatest(count(*), 1)
      INTO v_fitting
      FROM (SELECT sum(b.bytes) OVER (ORDER BY b.place) AS total
              FROM unnest(v_bytes[:p_limit]) WITH ORDINALITY b(bytes, place)) t
     WHERE t.total <= p_max_bytes;
  END IF;

  IF v_fitting < v_count OR v_count = v_most THEN
    v_end := v_ids[v_fitting];
  ELSIF v_is_return THEN
    v_end := v_lowest;
    v_finished := p_lowest IS NULL;
  ELSE
    v_finished := v_end IS NULL;
    v_end := greatest(v_end, v_ids[v_count], v_position);
  END IF;
  RETURN QUERY
    SELECT CASE WHEN p.first = 1 THEN v_position ELSE v_ids[p.first - 1] END,
           CASE WHEN p.last < v_fitting THEN v_ids[p.last] ELSE v_end END,
           CASE WHEN v_is_return THEN coalesce(v_ids[p.first:p.last], '{}') END,
           p.last - p.first + 1,
           p.last = v_fitting AND v_finished
      FROM (SELECT f AS first, least(f + p_limit - 1, v_fitting) AS last
              FROM generate_series(1, greatest(v_fitting, 1), p_limit) f) p
     ORDER BY p.first;
END $$;

-- Reads the messages of a page that plan_window has found, in the columns of claim_batch. A message that is too large
-- to read comes without headers and payload.
CREATE OR REPLACE FUNCTION read_page(
  p_seen       pg_snapshot,
  p_target     pg_snapshot,
  p_after      uuid,
  p_until      uuid,
  p_ids        uuid[],
  p_topics     text[] DEFAULT NULL,
  p_namespaces text[] DEFAULT NULL,
  p_tenant_ids text[] DEFAULT NULL,
  p_hash_from  int DEFAULT 0,
  p_hash_to    int DEFAULT 65536)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, quarantined boolean, available_at timestamptz, created_at timestamptz,
  key_id bigint, sequence bigint, previous_sequence bigint, namespace text, topic text, tenant_id text, key text,
  dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
BEGIN
  PERFORM refuse_standby();
  IF p_ids IS NOT NULL THEN
    RETURN QUERY
      SELECT m.id, 0, 1, false, NULL::timestamptz, m.created_at, m.key_id, m.sequence, NULL::bigint, m.namespace,
             m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id,
             CASE WHEN m.bytes <= readable_bytes() THEN m.headers END,
             CASE WHEN m.bytes <= readable_bytes() THEN m.payload END
        FROM messages m
       WHERE m.id = ANY (p_ids)
       ORDER BY m.id;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT m.id, 0, 1, false, NULL::timestamptz, m.created_at, m.key_id, m.sequence, NULL::bigint, m.namespace,
           m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id,
           CASE WHEN m.bytes <= readable_bytes() THEN m.headers END,
           CASE WHEN m.bytes <= readable_bytes() THEN m.payload END
      FROM messages m
     WHERE m.id > p_after
       AND m.id <= p_until
       AND in_partition(m.key_id, m.id, p_hash_from, p_hash_to)
       AND pg_visible_in_snapshot(m.transaction_id, p_target)
       AND NOT pg_visible_in_snapshot(m.transaction_id, p_seen)
       AND (p_topics IS NULL OR EXISTS (
             SELECT FROM unnest(p_topics, p_namespaces, p_tenant_ids) f(topic, namespace, tenant_id)
              WHERE route_matches(f.topic, f.namespace, f.tenant_id, m.topic, m.namespace, m.tenant_id)))
     ORDER BY m.id;
END $$;

-- The name of a cursor that has not yet read all messages in this range of ids, or null. A cursor with a problem (see
-- cursor_problem) counts as having read nothing.
CREATE OR REPLACE FUNCTION cursor_behind(p_from uuid, p_to uuid) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
AS $$
DECLARE
  v_cursor cursors;
  v_read   pg_snapshot;
BEGIN
  FOR v_cursor IN SELECT * FROM cursors ORDER BY name LOOP
    -- if the position is past the range, the cursor has read what the target shows of it
    v_read := CASE WHEN v_cursor.position >= p_to THEN v_cursor.target ELSE v_cursor.seen END;
    IF EXISTS (
         SELECT FROM messages m
          WHERE m.id >= p_from
            AND m.id < p_to
            AND m.transaction_id >= pg_snapshot_xmax(v_read))
       OR EXISTS (
         SELECT FROM messages m
          WHERE m.id >= p_from
            AND m.id < p_to
            AND m.transaction_id = ANY (ARRAY (SELECT pg_snapshot_xip(v_read))))
       OR (cursor_problem(v_cursor) IS NOT NULL
           AND EXISTS (SELECT FROM messages m WHERE m.id >= p_from AND m.id < p_to)) THEN
      RETURN v_cursor.name;
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
