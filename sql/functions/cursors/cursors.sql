-- Cursors: named readers of the log. A cursor reads in order, at least once, and resumes where it left off.
--
-- An id is created before its transaction commits, so a cursor over ids would skip messages that commit late. A cursor
-- is a snapshot instead: every message that is visible in it was read. This file defines, resets and deletes
-- cursors. Their state is in cursor_status.sql, reading in cursor_windows.sql, the lease of a reader in
-- cursor_lease.sql, several readers in cursor_partitions.sql, the move to another server in cursor_restore.sql.

-- The snapshot in which every message is unread. repair_cursors gives its transaction id to the messages that it
-- rewrites.
CREATE OR REPLACE FUNCTION nothing_seen() RETURNS pg_snapshot
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT '3:3:'::pg_snapshot
$$;

-- A snapshot of the transactions that have ended. pg_current_snapshot does not list the caller's own transaction as
-- open, so the caller's messages would count as committed once a later transaction has ended. Here they do not. All
-- such snapshots of a server can be ordered: of any two, the later contains the earlier, because an ended transaction
-- stays so.
CREATE OR REPLACE FUNCTION committed_snapshot() RETURNS pg_snapshot
LANGUAGE sql STABLE
AS $$
  SELECT CASE
           WHEN pg_visible_in_snapshot(t.own, t.now) THEN
             format('%s:%s:%s', least(pg_snapshot_xmin(t.now), t.own), pg_snapshot_xmax(t.now),
                    (SELECT string_agg(x.id::text, ',' ORDER BY x.id)
                       FROM (SELECT pg_snapshot_xip(t.now) UNION ALL SELECT t.own) x(id)))::pg_snapshot
           ELSE t.now
         END
    FROM (SELECT pg_current_snapshot(), pg_current_xact_id_if_assigned()) t(now, own)
$$;

-- Whether any of these filters matches the message; null means no filter, which matches all.
CREATE OR REPLACE FUNCTION filters_match(
  p_topics     text[],
  p_namespaces text[],
  p_tenant_ids text[],
  p_topic      text,
  p_namespace  text,
  p_tenant_id  text)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
  SELECT p_topics IS NULL OR EXISTS (
    SELECT FROM unnest(p_topics, p_namespaces, p_tenant_ids) f(topic, namespace, tenant_id)
     WHERE route_matches(f.topic, f.namespace, f.tenant_id, p_topic, p_namespace, p_tenant_id))
$$;

-- Whether a row stands for its cursor: each cursor has one such row, whatever its partitions.
CREATE OR REPLACE FUNCTION is_first(p_cursor cursors) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
  SELECT p_cursor.hash_from = 0 AND p_cursor.until IS NULL
$$;

-- Whether a cursor wants messages of this kind. If so, a message without a route is not unrouted.
CREATE OR REPLACE FUNCTION has_cursor(p_topic text, p_namespace text, p_tenant_id text) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM cursors c
     WHERE c.closing_since IS NULL
       AND is_first(c)
       AND filters_match(c.topics, c.namespaces, c.tenant_ids, p_topic, p_namespace, p_tenant_id))
$$;

-- The first row of the cursor of this name; raises P0002 if there is none.
CREATE OR REPLACE FUNCTION find_cursor(p_name text) RETURNS cursors
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_cursor cursors;
BEGIN
  SELECT * INTO v_cursor FROM cursors c WHERE c.name = p_name AND c.kept IS NULL AND is_first(c);
  IF NOT FOUND THEN
    PERFORM refuse_unknown('cursor', p_name, ARRAY (
      SELECT DISTINCT name FROM cursors WHERE kept IS NULL ORDER BY name));
  END IF;
  RETURN v_cursor;
END $$;

-- All rows of the cursor, locked until the end of the transaction; raises P0002 if there are none.
CREATE OR REPLACE FUNCTION lock_cursor(p_name text) RETURNS cursors[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM FROM cursors c WHERE c.name = p_name ORDER BY c.generation, c.hash_from FOR UPDATE;
  -- another session may have changed or deleted them while this one waited
  PERFORM find_cursor(p_name);
  RETURN ARRAY (SELECT c FROM cursors c WHERE c.name = p_name ORDER BY c.generation, c.hash_from);
END $$;

-- Creates a cursor at the beginning of the log ('beginning') or at its end ('now'), or changes the filters and the
-- number of partitions of an existing one. New filters apply to what the cursor reads from then on: the current readers
-- lose their leases and take them again with the new filters. Unread messages that no filter matches any more, and
-- nothing else wants, become unrouted. A new number of partitions applies when the readers have finished their batches.
-- A closing cursor is reopened.
CREATE OR REPLACE FUNCTION define_cursor(
  p_name       text,
  p_from       text DEFAULT 'now',
  p_topics     text[] DEFAULT '{*}',
  p_namespaces text[] DEFAULT '{NULL}',
  p_tenant_ids text[] DEFAULT '{NULL}',
  p_partitions int DEFAULT 1)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_destination destinations := find_destination(p_name);
  v_before      cursors[];
BEGIN
  PERFORM refuse_standby();
  PERFORM checked_number('p_partitions', p_partitions, 1, 64);
  IF EXISTS (SELECT FROM routes r WHERE r.destination_id = v_destination.id) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('"%s" is a destination that routes lead to: it would get every message twice', p_name),
      HINT = 'Give the cursor another name, or the destination the mode stream.';
  END IF;
  IF EXISTS (
       SELECT FROM cursors c
        WHERE c.name = p_name
          AND c.closing_since IS NULL
          AND (c.topics, c.namespaces, c.tenant_ids, c.partitions) IS NOT DISTINCT FROM
              (p_topics, p_namespaces, p_tenant_ids, p_partitions)) THEN
    RETURN;
  END IF;
  PERFORM lock_definitions();
  IF NOT EXISTS (SELECT FROM cursors c WHERE c.name = p_name) THEN
    INSERT INTO cursors (name, hash_from, hash_to, partitions, destination_id, topics, namespaces, tenant_ids, began,
                         seen, seen_at, system_id)
    SELECT p_name, partition_start(n, p_partitions), partition_start(n + 1, p_partitions), p_partitions,
           v_destination.id, p_topics, p_namespaces, p_tenant_ids, s.start, s.start, clock_timestamp(),
           (SELECT system_identifier FROM pg_control_system())
      FROM start_snapshot(p_from) s(start)
     CROSS JOIN generate_series(0, p_partitions - 1) n;
    -- a reader of a cursor of this name that was deleted must not move this one
    PERFORM revoke_cursor(p_name, true);
    RETURN;
  END IF;
  v_before := lock_cursor(p_name);
  UPDATE cursors c SET partitions = p_partitions WHERE c.name = p_name;
  IF v_before[1].closing_since IS NULL
     AND (v_before[1].topics, v_before[1].namespaces, v_before[1].tenant_ids) IS NOT DISTINCT FROM
         (p_topics, p_namespaces, p_tenant_ids) THEN
    RETURN;
  END IF;
  PERFORM revoke_cursor(p_name, true);
  UPDATE cursors c
     SET topics = p_topics,
         namespaces = p_namespaces,
         tenant_ids = p_tenant_ids,
         closing_since = NULL,
         -- what it had read before does not include messages that only the new filters match
         began = CASE
           WHEN filters_cover(c.topics, c.namespaces, c.tenant_ids, p_topics, p_namespaces, p_tenant_ids) THEN c.began
           ELSE latest_snapshot(ARRAY (SELECT coalesce(b.target, b.seen) FROM unnest(v_before) b))
         END
   WHERE c.name = p_name;
  IF NOT filters_cover(p_topics, p_namespaces, p_tenant_ids,
                       v_before[1].topics, v_before[1].namespaces, v_before[1].tenant_ids) THEN
    PERFORM leave_remainder(b) FROM unnest(v_before) b;
  END IF;
END $$;

-- Of the snapshots of this server, the one that contains all others.
CREATE OR REPLACE FUNCTION latest_snapshot(p_snapshots pg_snapshot[]) RETURNS pg_snapshot
LANGUAGE sql IMMUTABLE
AS $$
  SELECT s
    FROM unnest(p_snapshots) s
   ORDER BY pg_snapshot_xmax(s) DESC, (SELECT count(*) FROM pg_snapshot_xip(s))
   LIMIT 1
$$;

-- Whether some filters match everything that other filters match. A filter is covered like a message with its topic,
-- namespace and tenant: by an equal one, or by a wider one.
CREATE OR REPLACE FUNCTION filters_cover(
  p_topics           text[],
  p_namespaces       text[],
  p_tenant_ids       text[],
  p_other_topics     text[],
  p_other_namespaces text[],
  p_other_tenant_ids text[])
RETURNS boolean
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT NOT EXISTS (
    SELECT FROM (SELECT * FROM unnest(p_other_topics, p_other_namespaces, p_other_tenant_ids)
                 EXCEPT
                 SELECT * FROM unnest(p_topics, p_namespaces, p_tenant_ids)) f(topic, namespace, tenant_id)
     WHERE filters_match(p_topics, p_namespaces, p_tenant_ids, f.topic, f.namespace, f.tenant_id) IS NOT TRUE)
$$;

-- The snapshot at which a cursor starts.
CREATE OR REPLACE FUNCTION start_snapshot(p_from text) RETURNS pg_snapshot
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_from = 'beginning' THEN RETURN nothing_seen(); END IF;
  IF p_from = 'now' THEN RETURN committed_snapshot(); END IF;
  RAISE EXCEPTION USING ERRCODE = '22023',
    MESSAGE = format('a cursor cannot start from "%s": use beginning or now', left(p_from, 60));
END $$;

-- Resets a cursor to the beginning of the log ('beginning') or to its end ('now'). Its readers lose their leases.
CREATE OR REPLACE FUNCTION reset_cursor(name text, start_from text, actor text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_start pg_snapshot;
BEGIN
  PERFORM lock_cursor(name);
  v_start := start_snapshot(start_from);
  PERFORM revoke_cursor(name);
  DELETE FROM cursors c WHERE c.name = reset_cursor.name AND c.until IS NOT NULL;
  UPDATE cursors c
     SET began = v_start,
         seen = v_start,
         seen_at = clock_timestamp(),
         target = NULL,
         position = NULL,
         after_crash = false,
         batch_in_flight = false,
         quarantined_until = NULL,
         quarantined_count = 0,
         deaths = 0,
         died_fences = '{}',
         failed_message_id = NULL,
         tries = 0,
         error_code = NULL,
         error_message = NULL,
         moved_at = clock_timestamp(),
         system_id = (SELECT system_identifier FROM pg_control_system())
   WHERE c.name = reset_cursor.name;
  PERFORM record_action(actor, 'reset_cursor', jsonb_build_object('name', name, 'from', start_from), 1);
END $$;

-- Deletes a cursor that is no longer needed. Messages that it has not read and nothing else wants become unrouted, also
-- those of transactions that are open now. A cursor with unread messages is deleted only with force, and the audit
-- records their number.
CREATE OR REPLACE FUNCTION delete_cursor(name text, actor text DEFAULT NULL, force boolean DEFAULT false) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_rows   cursors[];
  v_unread bigint;
BEGIN
  PERFORM find_cursor(name);
  PERFORM lock_definitions();
  v_rows := lock_cursor(name);
  SELECT s.behind INTO v_unread FROM cursor_status() s WHERE s.name = delete_cursor.name;
  IF v_unread > 0 AND force IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('the cursor "%s" is not deleted: it has not read %s messages, which would become unrouted '
                       'unless a route or another cursor has them; read them, or give force',
                       name, v_unread);
  END IF;
  PERFORM revoke_cursor(name);
  DELETE FROM cursors c WHERE c.name = delete_cursor.name;
  DELETE FROM cursor_readers r WHERE r.cursor = delete_cursor.name;
  PERFORM leave_remainder(c) FROM unnest(v_rows) c;
  PERFORM record_action(actor, 'delete_cursor', jsonb_build_object('name', name, 'unread', nullif(v_unread, 0)), 1);
END $$;
