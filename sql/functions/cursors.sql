-- Cursors: a named processor reads the log itself, in order, at least once, and resumes where it left off.
--
-- An id is made before its transaction commits, so a cursor over ids skips what commits late. A cursor here
-- is a snapshot instead: everything visible in it was read. What is read next is a window, all that is
-- visible in a newer snapshot (the target) and was not in the old one (seen):
--
--   fresh     transaction ids from the old snapshot's end on, visible in the target
--   returned  transactions that were running in the old snapshot and have ended in the target
--
-- A transaction that is still running is in neither, and delays nobody else's messages. Within a window the
-- order is that of the ids, in pages; the position is the last id read. Transaction ids say what belongs to a
-- window and never in which order it is read: of two transactions on one key, the one that began first may
-- commit last. Which rows are in a window is found by transaction id, not by time, so a clock that steps back
-- hides nothing.
--
-- One reader at a time holds the lease; every change of holder raises the fence, and only who knows the
-- current fence can move the cursor.

-- Everything is unread in this snapshot. repair_cursors gives its transaction id to what it rewrites.
CREATE OR REPLACE FUNCTION nothing_seen() RETURNS pg_snapshot
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT '3:3:'::pg_snapshot $$;

CREATE OR REPLACE FUNCTION returned_transactions(p_seen pg_snapshot, p_target pg_snapshot) RETURNS xid8[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT ARRAY (SELECT x FROM pg_snapshot_xip(p_seen) x WHERE pg_visible_in_snapshot(x, p_target))
$$;

-- Whether any of these filters wants the message; null stands for no filter at all.
CREATE OR REPLACE FUNCTION filters_match(
  p_topics text[], p_namespaces text[], p_tenant_ids text[], p_topic text, p_namespace text, p_tenant_id text)
RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path FROM CURRENT AS $$
  SELECT p_topics IS NULL OR EXISTS (
    SELECT FROM unnest(p_topics, p_namespaces, p_tenant_ids) f(topic, namespace, tenant_id)
     WHERE route_matches(f.topic, f.namespace, f.tenant_id, p_topic, p_namespace, p_tenant_id))
$$;

-- Whether some cursor wants such messages: then one without a route is not unrouted.
CREATE OR REPLACE FUNCTION has_cursor(p_topic text, p_namespace text, p_tenant_id text) RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT EXISTS (SELECT FROM cursors c WHERE filters_match(c.topics, c.namespaces, c.tenant_ids, p_topic, p_namespace, p_tenant_id))
$$;

CREATE OR REPLACE FUNCTION find_cursor(p_name text) RETURNS cursors
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  v_cursor cursors;
BEGIN
  SELECT * INTO v_cursor FROM cursors WHERE name = p_name;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('cursor "%s" does not exist', left(p_name, 60)),
      HINT = 'Known cursors: ' || coalesce((SELECT string_agg(name, ', ' ORDER BY name) FROM cursors), 'none');
  END IF;
  RETURN v_cursor;
END $$;

-- Transaction ids are a server's own. After a dump was restored elsewhere, or a logical copy promoted, those in
-- the log and in the cursors belong to the old server: compared with this one's they would hide messages.

-- What shows that messages carry another server's transaction ids, or null. A message that is visible was
-- committed, so its id is below the end of the snapshot, unless it is this transaction's own.
CREATE OR REPLACE FUNCTION stale_messages() RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
  SELECT format('message %s carries transaction id %s, and this server has only come to %s', m.id, m.transaction_id,
                pg_snapshot_xmax(pg_current_snapshot()))
    FROM messages m
   WHERE m.transaction_id >= pg_snapshot_xmax(pg_current_snapshot())
     AND m.transaction_id IS DISTINCT FROM pg_current_xact_id_if_assigned()
   LIMIT 1
$$;

-- Why a cursor cannot be trusted on this server, or null.
CREATE OR REPLACE FUNCTION cursor_problem(p_cursor cursors) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  v_system_id bigint := (SELECT system_identifier FROM pg_control_system());
  v_read      xid8 := pg_snapshot_xmax(coalesce(p_cursor.target, p_cursor.seen));
BEGIN
  IF p_cursor.system_id <> v_system_id THEN
    RETURN format('it comes from another server (system identifier %s, this one''s is %s)', p_cursor.system_id, v_system_id);
  END IF;
  IF v_read > pg_snapshot_xmax(pg_current_snapshot()) THEN
    RETURN format('it has read up to transaction id %s, and this server has only come to %s', v_read,
                  pg_snapshot_xmax(pg_current_snapshot()));
  END IF;
  RETURN stale_messages();
END $$;

-- Snapshots of a standby do not list the transactions that run on its primary.
CREATE OR REPLACE FUNCTION refuse_standby() RETURNS void
LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = 'this server is a standby, whose snapshots miss running transactions: messages would be lost',
      HINT = 'Read the log on the primary: give its address.';
  END IF;
END $$;

-- Makes the cursor if its name is new, reading from the beginning of the log or from now on, and keeps its
-- filters current: those of an existing cursor apply to what it reads from then on.
CREATE OR REPLACE FUNCTION define_cursor(
  p_name text, p_from text DEFAULT 'now', p_topics text[] DEFAULT '{*}', p_namespaces text[] DEFAULT '{NULL}',
  p_tenant_ids text[] DEFAULT '{NULL}') RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_destination destinations := find_destination(p_name);
BEGIN
  PERFORM refuse_standby();
  IF EXISTS (SELECT FROM routes r WHERE r.destination_id = v_destination.id) THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('"%s" is a destination that routes lead to: it would get every message twice', p_name),
      HINT = 'Give the cursor another name, or the destination the mode stream.';
  END IF;
  INSERT INTO cursors AS c (name, destination_id, topics, namespaces, tenant_ids, seen, seen_at, system_id)
  VALUES (p_name, v_destination.id, p_topics, p_namespaces, p_tenant_ids, start_snapshot(p_from),
          clock_timestamp(), (SELECT system_identifier FROM pg_control_system()))
  ON CONFLICT (name) DO UPDATE
    SET topics = excluded.topics, namespaces = excluded.namespaces, tenant_ids = excluded.tenant_ids
  WHERE (c.topics, c.namespaces, c.tenant_ids) IS DISTINCT FROM (excluded.topics, excluded.namespaces, excluded.tenant_ids);
END $$;

CREATE OR REPLACE FUNCTION start_snapshot(p_from text) RETURNS pg_snapshot
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  IF p_from = 'beginning' THEN RETURN nothing_seen(); END IF;
  IF p_from = 'now' THEN RETURN pg_current_snapshot(); END IF;
  RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('a cursor cannot start from "%s": use beginning or now', left(p_from, 60));
END $$;

-- The lease, if it is free: one row with the fence and where to read on, or none. One that ends later than its
-- duration allows comes from a clock that was set back, and is free. Whoever held it last and neither moved the
-- cursor nor gave it back has died over the messages that come next: that is counted. Nobody gets it while its
-- destination is paused.
CREATE OR REPLACE FUNCTION take_cursor(p_name text, p_reader_id uuid, p_reader_name text, p_lease_ms int)
RETURNS TABLE (fence bigint, seen text, target text, "position" uuid, deaths int)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_problem text;
BEGIN
  PERFORM refuse_standby();
  v_problem := cursor_problem(find_cursor(p_name));
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('cursor "%s" cannot be read: %s', p_name, v_problem),
      HINT = 'A restored dump or a promoted copy? Then run once: waybill cursors repair';
  END IF;
  RETURN QUERY
    UPDATE cursors c
       SET fence = c.fence + 1, reader_id = p_reader_id, reader_name = p_reader_name, lease = p_lease_ms * interval '1 ms',
           leased_until = clock_timestamp() + p_lease_ms * interval '1 ms',
           deaths = c.deaths + CASE WHEN c.reader_id IS NULL THEN 0 ELSE 1 END
     WHERE c.name = p_name
       AND (c.leased_until <= clock_timestamp() OR c.leased_until > clock_timestamp() + c.lease + interval '1 second')
       AND NOT EXISTS (SELECT FROM destinations d WHERE d.id = c.destination_id AND d.paused_at IS NOT NULL)
    RETURNING c.fence, c.seen::text, c.target::text, c.position, c.deaths;
END $$;

-- Holds on to the lease; no longer held means that somebody else has it. paused: the reader should give it up.
CREATE OR REPLACE FUNCTION extend_cursor(p_name text, p_fence bigint, OUT held boolean, OUT paused boolean)
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  WITH extended AS (
    UPDATE cursors SET leased_until = clock_timestamp() + lease WHERE name = p_name AND fence = p_fence RETURNING destination_id)
  SELECT EXISTS (SELECT FROM extended),
         EXISTS (SELECT FROM destinations d JOIN extended e ON d.id = e.destination_id WHERE d.paused_at IS NOT NULL)
$$;

CREATE OR REPLACE FUNCTION release_cursor(p_name text, p_fence bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  WITH released AS (
    UPDATE cursors SET leased_until = '-infinity', reader_id = NULL, reader_name = NULL
     WHERE name = p_name AND fence = p_fence RETURNING 1)
  SELECT EXISTS (SELECT FROM released)
$$;

-- Opens the next window, or finds the way back into one that was left (p_target). lowest is the bound below
-- which no fresh message lies, null if there is none; waiting is false when the window is certainly empty.
CREATE OR REPLACE FUNCTION open_window(
  p_seen pg_snapshot, p_target pg_snapshot DEFAULT NULL, OUT target pg_snapshot, OUT lowest uuid, OUT waiting boolean)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
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

-- One page of a window, in the order of the ids: at most p_limit messages and p_max_bytes of payload, in the
-- columns of claim_batch. The last row is no message (it has no topic): its id is the position after this page,
-- and alone says whether the window has been read to its end. A page may be empty and not the last: no call
-- looks at more than twenty times p_limit messages.
CREATE OR REPLACE FUNCTION read_window(
  p_seen pg_snapshot, p_target pg_snapshot, p_position uuid, p_lowest uuid, p_limit int, p_max_bytes bigint,
  p_topics text[] DEFAULT NULL, p_namespaces text[] DEFAULT NULL, p_tenant_ids text[] DEFAULT NULL)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, alone boolean, available_at timestamptz, created_at timestamptz,
  stream_id bigint, sequence bigint, previous_sequence bigint, namespace text, topic text, tenant_id text, key text,
  dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_position uuid := coalesce(p_position, '00000000-0000-0000-0000-000000000000');
  v_lowest   uuid := coalesce(p_lowest, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
  v_returned xid8[] := returned_transactions(p_seen, p_target);
  v_few      int := least(p_limit, 100);
  v_scanned  int := 20 * p_limit;
  v_ids      uuid[];
  v_bytes    bigint[];
  v_is_cut   boolean;
BEGIN
  PERFORM refuse_standby();
  claim_no := 0;
  tries := 0;

  -- What was enqueued before the fresh messages, perhaps hours ago, and committed now. It is looked up: between
  -- here and there lie messages that have all been read.
  IF v_position < v_lowest AND v_returned <> '{}' THEN
    -- OFFSET keeps the planner from looking for them in the order of the ids
    v_ids := ARRAY (
      SELECT r.id FROM (SELECT m.* FROM messages m WHERE m.transaction_id = ANY (v_returned) OFFSET 0) r
       WHERE r.id > v_position AND r.id <= v_lowest
         AND filters_match(p_topics, p_namespaces, p_tenant_ids, r.topic, r.namespace, r.tenant_id)
       ORDER BY r.id LIMIT v_few);
    RETURN QUERY
      SELECT m.id, 0, 1, false, NULL::timestamptz, m.created_at, m.stream_id, m.sequence, NULL::bigint, m.namespace, m.topic, m.tenant_id,
             m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
        FROM messages m WHERE m.id = ANY (v_ids) ORDER BY m.id;
    v_is_cut := cardinality(v_ids) = v_few;
    message_id := CASE WHEN v_is_cut THEN v_ids[v_few] ELSE v_lowest END;
    alone := NOT v_is_cut AND p_lowest IS NULL;
    RETURN NEXT;
    RETURN;
  END IF;

  -- First which ones, then all of them: that way only what is returned is copied.
  v_position := greatest(v_position, v_lowest);
  SELECT array_agg(f.id), array_agg(f.bytes) INTO v_ids, v_bytes
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
           ORDER BY s.id LIMIT p_limit) f;
  v_is_cut := coalesce(cardinality(v_ids), 0) = p_limit;
  IF (SELECT sum(b) FROM unnest(v_bytes) b) > p_max_bytes THEN
    v_is_cut := v_is_cut OR cardinality(v_ids) > 1;
    v_ids := ARRAY (
      SELECT t.id FROM (SELECT u.id, u.place, sum(u.bytes) OVER (ORDER BY u.place) AS total
                          FROM unnest(v_ids, v_bytes) WITH ORDINALITY AS u(id, bytes, place)) t
       WHERE t.place = 1 OR t.total <= p_max_bytes ORDER BY t.place);
  END IF;
  message_id := v_ids[cardinality(v_ids)];
  IF message_id IS NOT NULL THEN
    RETURN QUERY
      SELECT m.id, 0, 1, false, NULL::timestamptz, m.created_at, m.stream_id, m.sequence, NULL::bigint, m.namespace, m.topic, m.tenant_id,
             m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
        FROM messages m
       WHERE m.id > v_position AND m.id <= v_ids[cardinality(v_ids)]
         AND pg_visible_in_snapshot(m.transaction_id, p_target)
         AND NOT pg_visible_in_snapshot(m.transaction_id, p_seen)
         AND (p_topics IS NULL OR EXISTS (
           SELECT FROM unnest(p_topics, p_namespaces, p_tenant_ids) f(topic, namespace, tenant_id)
            WHERE route_matches(f.topic, f.namespace, f.tenant_id, m.topic, m.namespace, m.tenant_id)))
       ORDER BY m.id;
  END IF;
  alone := false;
  IF NOT v_is_cut THEN
    -- more of the log than one call looks at?
    SELECT m.id INTO message_id FROM messages m WHERE m.id > v_position ORDER BY m.id OFFSET v_scanned - 1 LIMIT 1;
    alone := message_id IS NULL;
    message_id := greatest(message_id, v_ids[cardinality(v_ids)], v_position);
  END IF;
  RETURN NEXT;
END $$;

-- Moves the cursor: within its window (target and position given), or past it (both null, and seen is what was
-- the target). Extends the lease. p_safe says that what the last readers died over lies behind. False means that
-- the lease was lost: then nothing moves. It does not wait for the disk: after a crash of the server the cursor
-- may stand a moment further back, and messages come twice, which a reader must bear anyway.
CREATE OR REPLACE FUNCTION move_cursor(
  p_name text, p_fence bigint, p_seen pg_snapshot, p_target pg_snapshot, p_position uuid, p_safe boolean DEFAULT true)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  UPDATE cursors c
     SET seen = p_seen, target = p_target, position = p_position, leased_until = clock_timestamp() + c.lease,
         deaths = CASE WHEN p_safe THEN 0 ELSE c.deaths END,
         seen_at = CASE WHEN c.seen::text = p_seen::text THEN c.seen_at ELSE clock_timestamp() END,
         failed_message_id = NULL, tries = 0, error_code = NULL, error_message = NULL, moved_at = clock_timestamp()
   WHERE c.name = p_name AND c.fence = p_fence;
  RETURN FOUND;
END $$;

-- Notes that the next message failed, for whoever wonders why the cursor stands still. Returns after how many
-- milliseconds to try again, or null if the lease was lost.
CREATE OR REPLACE FUNCTION note_failure(
  p_name text, p_fence bigint, p_message_id uuid, p_tries int, p_error_code text, p_error_message text) RETURNS float8
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_destination_id smallint;
BEGIN
  UPDATE cursors
     SET failed_message_id = p_message_id, tries = p_tries, error_code = left(p_error_code, 100), error_message = p_error_message,
         leased_until = clock_timestamp() + lease
   WHERE name = p_name AND fence = p_fence RETURNING destination_id INTO v_destination_id;
  RETURN (SELECT extract(epoch FROM retry_delay(d.retry_base_ms, d.retry_max_ms, d.retry_delays_ms, p_tries)) * 1000
            FROM destinations d WHERE d.id = v_destination_id);
END $$;

-- Pauses the destination of a cursor because of its answer to a call that began so many milliseconds ago, and notes
-- why the cursor stands still. Returns whether it did, or null if the lease was lost.
CREATE OR REPLACE FUNCTION pause_cursor(
  p_name text, p_fence bigint, p_message_id uuid, p_error_code text, p_remote_code text, p_error_message text,
  p_began_ms_ago float8) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_cursor cursors;
BEGIN
  UPDATE cursors
     SET failed_message_id = p_message_id, error_code = left(p_error_code, 100), error_message = p_error_message,
         leased_until = clock_timestamp() + lease
   WHERE name = p_name AND fence = p_fence RETURNING * INTO v_cursor;
  IF NOT FOUND THEN RETURN NULL; END IF;
  RETURN pause_after(v_cursor.destination_id, clock_timestamp() - p_began_ms_ago * interval '1 ms', v_cursor.reader_id,
                     p_error_code, p_remote_code, p_error_message);
END $$;

-- Parks a message with the dead letters and moves the cursor past it, in one transaction.
CREATE OR REPLACE FUNCTION park_message(
  p_name text, p_fence bigint, p_seen pg_snapshot, p_target pg_snapshot, p_position uuid, p_message_id uuid, p_tries int,
  p_reason text, p_error_code text, p_remote_code text, p_error_message text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  v_durability text := current_setting('synchronous_commit');
BEGIN
  IF NOT move_cursor(p_name, p_fence, p_seen, p_target, p_position) THEN RETURN false; END IF;
  PERFORM set_config('synchronous_commit', v_durability, true);
  INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, remote_code,
         error_message, created_at, stream_id, sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type,
         aggregate_id, headers, payload)
  SELECT m.id, c.destination_id, clock_timestamp(), 0, p_tries, p_reason, left(p_error_code, 100), left(p_remote_code, 100),
         p_error_message, m.created_at, m.stream_id, m.sequence, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key,
         m.aggregate_type, m.aggregate_id, m.headers, m.payload
    FROM messages m, cursors c WHERE m.id = p_message_id AND c.name = p_name
  ON CONFLICT DO NOTHING;
  RETURN true;
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

-- How far behind each cursor is, and why it may stand still. Of each, at most 100000 messages of its window and
-- as many after it are looked at.
CREATE OR REPLACE FUNCTION cursor_status()
RETURNS TABLE (
  name text, topics text[], behind bigint, oldest_unread_at timestamptz, reader text, leased_until timestamptz,
  moved_at timestamptz, tries int, error_code text, error_message text, problem text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  v_cursor cursors;
  v_base   pg_snapshot;
  v_count  bigint;
  v_oldest uuid;
BEGIN
  FOR v_cursor IN SELECT * FROM cursors ORDER BY name LOOP
    v_base := coalesce(v_cursor.target, v_cursor.seen);
    SELECT count(*), (array_agg(u.id ORDER BY u.id))[1] INTO v_count, v_oldest
      FROM (SELECT w.* FROM (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id FROM messages m
                              WHERE v_cursor.target IS NOT NULL
                                AND m.id > coalesce(v_cursor.position, '00000000-0000-0000-0000-000000000000')
                              ORDER BY m.id LIMIT 100000) w
             WHERE pg_visible_in_snapshot(w.transaction_id, v_cursor.target) AND NOT pg_visible_in_snapshot(w.transaction_id, v_cursor.seen)
            UNION ALL
            (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id FROM messages m
              WHERE m.transaction_id >= pg_snapshot_xmax(v_base) LIMIT 100000)
            UNION ALL
            (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id FROM messages m
              WHERE m.transaction_id = ANY (ARRAY (SELECT pg_snapshot_xip(v_base))) LIMIT 100000)) u
     WHERE filters_match(v_cursor.topics, v_cursor.namespaces, v_cursor.tenant_ids, u.topic, u.namespace, u.tenant_id);
    RETURN QUERY SELECT v_cursor.name, v_cursor.topics, v_count, id_time(v_oldest),
      CASE WHEN v_cursor.leased_until > clock_timestamp() THEN v_cursor.reader_name END,
      CASE WHEN v_cursor.leased_until > clock_timestamp() THEN v_cursor.leased_until END,
      v_cursor.moved_at, v_cursor.tries, v_cursor.error_code, v_cursor.error_message, cursor_problem(v_cursor);
  END LOOP;
END $$;

-- Starts a cursor anew, from the beginning of the log or from now on. A reader that is at work loses its lease.
CREATE OR REPLACE FUNCTION reset_cursor(name text, start_from text, actor text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
BEGIN
  PERFORM find_cursor(name);
  UPDATE cursors c
     SET seen = start_snapshot(start_from), seen_at = clock_timestamp(), target = NULL, position = NULL, fence = c.fence + 1,
         reader_id = NULL, reader_name = NULL, leased_until = '-infinity', deaths = 0, failed_message_id = NULL, tries = 0,
         error_code = NULL, error_message = NULL, moved_at = clock_timestamp(),
         system_id = (SELECT system_identifier FROM pg_control_system())
   WHERE c.name = reset_cursor.name;
  PERFORM record_action(actor, 'reset_cursor', jsonb_build_object('name', name, 'from', start_from), 1);
END $$;

-- Forgets a cursor that nobody reads any more: what it had not read is kept for it no longer.
CREATE OR REPLACE FUNCTION delete_cursor(name text, actor text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
BEGIN
  PERFORM find_cursor(name);
  DELETE FROM cursors c WHERE c.name = delete_cursor.name;
  PERFORM record_action(actor, 'delete_cursor', jsonb_build_object('name', name), 1);
END $$;

-- After a restored dump or a promoted copy: makes the log and its cursors this server's own, in one transaction.
-- Each cursor goes on at the oldest message that it had not read, or at the last time it had looked less
-- the overlap, whichever is earlier, because messages may have come in before this was called. Some are
-- read twice, none is skipped. Messages whose transaction id this server has yet to reach get one from before
-- its first: it is the one reason for which a message is ever updated.
CREATE OR REPLACE FUNCTION repair_cursors(
  overlap interval DEFAULT '10 minutes', actor text DEFAULT NULL, OUT cursors_repaired int, OUT messages_rewritten bigint)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  v_cursor  cursors;
  v_oldest  uuid;
BEGIN
  PERFORM refuse_standby();
  cursors_repaired := 0;
  FOR v_cursor IN SELECT * FROM cursors c ORDER BY c.name FOR UPDATE LOOP
    CONTINUE WHEN cursor_problem(v_cursor) IS NULL;
    SELECT m.id INTO v_oldest FROM messages m
     WHERE NOT pg_visible_in_snapshot(m.transaction_id, v_cursor.seen)
       AND NOT (v_cursor.position IS NOT NULL AND m.id <= v_cursor.position AND pg_visible_in_snapshot(m.transaction_id, v_cursor.target))
     ORDER BY m.id LIMIT 1;
    UPDATE cursors c
       SET seen = nothing_seen(), target = pg_current_snapshot(),
           position = least(id_at(id_time(v_oldest) - interval '1 ms'), id_at(v_cursor.seen_at - overlap)),
           system_id = (SELECT system_identifier FROM pg_control_system()), fence = c.fence + 1, reader_id = NULL,
           reader_name = NULL, leased_until = '-infinity', moved_at = clock_timestamp()
     WHERE c.name = v_cursor.name;
    cursors_repaired := cursors_repaired + 1;
  END LOOP;
  UPDATE messages m SET transaction_id = pg_snapshot_xmax(nothing_seen())
   WHERE m.transaction_id >= pg_snapshot_xmax(pg_current_snapshot())
     AND m.transaction_id IS DISTINCT FROM pg_current_xact_id_if_assigned();
  GET DIAGNOSTICS messages_rewritten = ROW_COUNT;
  PERFORM record_action(actor, 'repair_cursors', jsonb_build_object('cursors', cursors_repaired), messages_rewritten);
END $$;
