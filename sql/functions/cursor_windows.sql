-- What a cursor reads next is a window: all that is visible in a newer snapshot (the target) and was not in the
-- old one (seen):
--
--   fresh     transaction ids from the old snapshot's end on, visible in the target
--   returned  transactions that were running in the old snapshot and have ended in the target
--
-- A transaction that is still running is in neither, and delays nobody else's messages. Within a window the
-- order is that of the ids, in pages; the position is the last id read. Transaction ids say what belongs to a
-- window and never in which order it is read: of two transactions on one key, the one that began first may
-- commit last. Which rows are in a window is found by transaction id, not by time, so a clock that steps back
-- hides nothing.

CREATE OR REPLACE FUNCTION returned_transactions(p_seen pg_snapshot, p_target pg_snapshot) RETURNS xid8[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ARRAY (SELECT x FROM pg_snapshot_xip(p_seen) x WHERE pg_visible_in_snapshot(x, p_target))
$$;

-- Opens the next window, or finds the way back into one that was left (p_target). lowest is the bound below
-- which no fresh message lies, null if there is none; waiting is false when the window is certainly empty.
CREATE OR REPLACE FUNCTION open_window(
  p_seen pg_snapshot, p_target pg_snapshot DEFAULT NULL, OUT target pg_snapshot, OUT lowest uuid, OUT waiting boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_returned xid8[];
  v_most     int := 10000000;
  v_count    int;
BEGIN
  PERFORM refuse_standby();
  target := coalesce(p_target, pg_current_snapshot());
  IF pg_snapshot_xmax(p_seen) = pg_snapshot_xmax(nothing_seen()) THEN
    lowest := '00000000-0000-0000-0000-000000000000';
    waiting := true;
    RETURN;
  END IF;
  IF pg_snapshot_xmax(p_seen) < pg_snapshot_xmax(target) THEN
    -- LIMIT keeps the planner from looking for the lowest id in the order of the ids
    SELECT (array_agg(f.id))[1], max(f.count) INTO lowest, v_count
      FROM (SELECT x.id, count(*) OVER () AS count
              FROM (SELECT m.id FROM messages m
                     WHERE m.transaction_id >= pg_snapshot_xmax(p_seen) AND m.transaction_id < pg_snapshot_xmax(target)
                     LIMIT v_most) x
             ORDER BY x.id LIMIT 1) f;
    -- the second half of an id is random: without it, it is a bound that no other id equals
    lowest := CASE WHEN v_count < v_most THEN overlay(lowest::text PLACING '0000-000000000000' FROM 20)::uuid
                   WHEN v_count = v_most THEN '00000000-0000-0000-0000-000000000000' END;
  END IF;
  v_returned := returned_transactions(p_seen, target);
  waiting := lowest IS NOT NULL
    OR (v_returned <> '{}' AND EXISTS (SELECT FROM messages m WHERE m.transaction_id = ANY (v_returned)));
END $$;

-- Where the next pages of a window end, in the order of the ids: each has at most p_limit messages and p_max_bytes
-- of payload. A page is read with read_page, and several may be read at once. `finished` says that nothing is left
-- of the window behind it. A page may be empty and not the last: no call looks at more fresh messages than p_pages
-- or twenty times p_limit, or 2,000 if that is more. What has returned is looked up, so its pages name their ids,
-- and all of it is looked through: fifty pages at a time.
CREATE OR REPLACE FUNCTION plan_window(
  p_seen pg_snapshot, p_target pg_snapshot, p_position uuid, p_lowest uuid, p_limit int, p_max_bytes bigint, p_pages int,
  p_topics text[] DEFAULT NULL, p_namespaces text[] DEFAULT NULL, p_tenant_ids text[] DEFAULT NULL)
RETURNS TABLE (after uuid, until uuid, ids uuid[], messages int, finished boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
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
    -- What was enqueued before the fresh messages, perhaps hours ago, and committed now: between here and there
    -- lie messages that have all been read. OFFSET keeps the planner from looking for them in the order of the ids.
    SELECT array_agg(f.id), array_agg(f.bytes) INTO v_ids, v_bytes
      FROM (SELECT r.id, r.bytes
              FROM (SELECT m.id, m.topic, m.namespace, m.tenant_id,
                           pg_column_size(m.payload) + coalesce(pg_column_size(m.headers), 0)::bigint AS bytes
                      FROM messages m WHERE m.transaction_id = ANY (v_returned) OFFSET 0) r
             WHERE r.id > v_position AND r.id <= v_lowest
               AND filters_match(p_topics, p_namespaces, p_tenant_ids, r.topic, r.namespace, r.tenant_id)
             ORDER BY r.id LIMIT v_most) f;
  ELSE
    v_position := greatest(v_position, v_lowest);
    -- whether there is more of the log than one call looks at is asked in the same statement: a partition that goes
    -- between two would shift what was counted
    SELECT a.ids, a.bytes, CASE WHEN coalesce(cardinality(a.ids), 0) < v_most THEN (
             SELECT m.id FROM messages m WHERE m.id > v_position ORDER BY m.id OFFSET v_scanned - 1 LIMIT 1) END
      INTO v_ids, v_bytes, v_end
      FROM (SELECT array_agg(f.id) AS ids, array_agg(f.bytes) AS bytes
              FROM (SELECT s.id, s.bytes
                      FROM (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id,
                                   pg_column_size(m.payload) + coalesce(pg_column_size(m.headers), 0)::bigint AS bytes
                              FROM messages m WHERE m.id > v_position ORDER BY m.id LIMIT v_scanned) s
                     WHERE pg_visible_in_snapshot(s.transaction_id, p_target)
                       AND NOT pg_visible_in_snapshot(s.transaction_id, p_seen)
                       -- as filters_match has it, without a call for each message
                       AND (p_topics IS NULL OR EXISTS (
                         SELECT FROM unnest(p_topics, p_namespaces, p_tenant_ids) f(topic, namespace, tenant_id)
                          WHERE route_matches(f.topic, f.namespace, f.tenant_id, s.topic, s.namespace, s.tenant_id)))
                     ORDER BY s.id LIMIT v_most) f) a;
  END IF;
  v_count := coalesce(cardinality(v_ids), 0);

  -- Pages that are too large in bytes are left to the next plan, but for the first one, which is cut.
  SELECT coalesce(min(x.page) * p_limit, v_count) INTO v_fitting
    FROM (SELECT (b.place - 1) / p_limit AS page FROM unnest(v_bytes) WITH ORDINALITY b(bytes, place)
           GROUP BY 1 HAVING sum(b.bytes) > p_max_bytes) x;
  IF v_fitting = 0 AND v_count > 0 THEN
    SELECT greatest(count(*), 1) INTO v_fitting
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

-- The messages of a page that plan_window has found, in the columns of claim_batch.
CREATE OR REPLACE FUNCTION read_page(
  p_seen pg_snapshot, p_target pg_snapshot, p_after uuid, p_until uuid, p_ids uuid[],
  p_topics text[] DEFAULT NULL, p_namespaces text[] DEFAULT NULL, p_tenant_ids text[] DEFAULT NULL)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, alone boolean, available_at timestamptz, created_at timestamptz,
  stream_id bigint, sequence bigint, previous_sequence bigint, namespace text, topic text, tenant_id text, key text,
  dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
BEGIN
  PERFORM refuse_standby();
  IF p_ids IS NOT NULL THEN
    RETURN QUERY
      SELECT m.id, 0, 1, false, NULL::timestamptz, m.created_at, m.stream_id, m.sequence, NULL::bigint, m.namespace, m.topic, m.tenant_id,
             m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
        FROM messages m WHERE m.id = ANY (p_ids) ORDER BY m.id;
    RETURN;
  END IF;
  RETURN QUERY
    SELECT m.id, 0, 1, false, NULL::timestamptz, m.created_at, m.stream_id, m.sequence, NULL::bigint, m.namespace, m.topic, m.tenant_id,
           m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
      FROM messages m
     WHERE m.id > p_after AND m.id <= p_until
       AND pg_visible_in_snapshot(m.transaction_id, p_target)
       AND NOT pg_visible_in_snapshot(m.transaction_id, p_seen)
       AND (p_topics IS NULL OR EXISTS (
         SELECT FROM unnest(p_topics, p_namespaces, p_tenant_ids) f(topic, namespace, tenant_id)
          WHERE route_matches(f.topic, f.namespace, f.tenant_id, m.topic, m.namespace, m.tenant_id)))
     ORDER BY m.id;
END $$;

-- One page with its end, as relays of version 0.1 read it; it goes with 0.3. The last row is no message (it has no
-- topic): its id is the position after this page, and alone says whether the window has been read to its end.
CREATE OR REPLACE FUNCTION read_window(
  p_seen pg_snapshot, p_target pg_snapshot, p_position uuid, p_lowest uuid, p_limit int, p_max_bytes bigint,
  p_topics text[] DEFAULT NULL, p_namespaces text[] DEFAULT NULL, p_tenant_ids text[] DEFAULT NULL)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, alone boolean, available_at timestamptz, created_at timestamptz,
  stream_id bigint, sequence bigint, previous_sequence bigint, namespace text, topic text, tenant_id text, key text,
  dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_page record;
BEGIN
  SELECT p.* INTO v_page
    FROM plan_window(p_seen, p_target, p_position, p_lowest, p_limit, p_max_bytes, 1, p_topics, p_namespaces, p_tenant_ids) p;
  RETURN QUERY
    SELECT * FROM read_page(p_seen, p_target, v_page.after, v_page.until, v_page.ids, p_topics, p_namespaces, p_tenant_ids);
  message_id := v_page.until;
  claim_no := 0;
  tries := 0;
  alone := v_page.finished;
  RETURN NEXT;
END $$;

-- A cursor that has yet to read something of this range of ids, or null. One that cannot be trusted has yet to
-- read everything.
CREATE OR REPLACE FUNCTION cursor_ahead_of(p_from uuid, p_to uuid) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off AS $$
DECLARE
  v_cursor cursors;
  v_read   pg_snapshot;
BEGIN
  FOR v_cursor IN SELECT * FROM cursors ORDER BY name LOOP
    -- of a window whose position is past the range, everything in the range has been read
    v_read := CASE WHEN v_cursor.position >= p_to THEN v_cursor.target ELSE v_cursor.seen END;
    IF EXISTS (SELECT FROM messages m WHERE m.id >= p_from AND m.id < p_to AND m.transaction_id >= pg_snapshot_xmax(v_read))
       OR EXISTS (SELECT FROM messages m WHERE m.id >= p_from AND m.id < p_to
                     AND m.transaction_id = ANY (ARRAY (SELECT pg_snapshot_xip(v_read))))
       OR (cursor_problem(v_cursor) IS NOT NULL AND EXISTS (SELECT FROM messages m WHERE m.id >= p_from AND m.id < p_to)) THEN
      RETURN v_cursor.name;
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
