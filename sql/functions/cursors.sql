-- Cursors: a named processor reads the log itself, in order, at least once, and resumes where it left off.
--
-- An id is made before its transaction commits, so a cursor over ids skips what commits late. A cursor here
-- is a snapshot instead: everything visible in it was read. cursor_windows.sql has how it is read, cursor_lease.sql
-- by whom, cursor_restore.sql what becomes of it on another server; here it is defined, shown, reset and deleted.

-- Everything is unread in this snapshot. repair_cursors gives its transaction id to what it rewrites.
CREATE OR REPLACE FUNCTION nothing_seen() RETURNS pg_snapshot
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT '3:3:'::pg_snapshot $$;

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
  IF NOT FOUND THEN PERFORM refuse_unknown('cursor', p_name, ARRAY (SELECT name FROM cursors ORDER BY name)); END IF;
  RETURN v_cursor;
END $$;

-- Makes the cursor if its name is new, reading from the beginning of the log or from now on, and keeps its
-- filters current: those of an existing cursor apply to what it reads from then on.
CREATE OR REPLACE FUNCTION define_cursor(
  p_name text, p_from text DEFAULT 'now', p_topics text[] DEFAULT '{*}', p_namespaces text[] DEFAULT '{NULL}',
  p_tenant_ids text[] DEFAULT '{NULL}') RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
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

-- How far behind each cursor is, and why it may stand still. Of each, at most 100000 messages of its window and
-- as many after it are looked at.
CREATE OR REPLACE FUNCTION cursor_status()
RETURNS TABLE (
  name text, topics text[], behind bigint, oldest_unread_at timestamptz, reader text, leased_until timestamptz,
  moved_at timestamptz, tries int, error_code text, error_message text, problem text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET enable_seqscan = off AS $$
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
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
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
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_variable
BEGIN
  PERFORM find_cursor(name);
  DELETE FROM cursors c WHERE c.name = delete_cursor.name;
  PERFORM record_action(actor, 'delete_cursor', jsonb_build_object('name', name), 1);
END $$;
