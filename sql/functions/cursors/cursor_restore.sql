-- Cursors after a restore. Transaction ids belong to one server. After a dump was restored elsewhere, or a logical copy
-- was promoted, the ids in the log and in the cursors are those of the old server, and comparing them with new ones
-- would hide messages. So a cursor records its server, is refused on any other one and on a standby, and can be
-- repaired.

-- Evidence that messages carry transaction ids of another server, or null. A visible message was committed, so its
-- transaction id is below the end of the snapshot, unless it is this transaction's own.
CREATE OR REPLACE FUNCTION stale_messages() RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
  SELECT format('message %s carries transaction id %s, and this server has only reached %s',
                m.id, m.transaction_id, pg_snapshot_xmax(pg_current_snapshot()))
    FROM messages m
   WHERE m.transaction_id >= pg_snapshot_xmax(pg_current_snapshot())
     AND m.transaction_id IS DISTINCT FROM pg_current_xact_id_if_assigned()
   LIMIT 1
$$;

-- Why a cursor cannot be trusted on this server, or null.
CREATE OR REPLACE FUNCTION cursor_problem(p_cursor cursors) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_system_id bigint := (SELECT system_identifier FROM pg_control_system());
  v_read      xid8 := pg_snapshot_xmax(coalesce(p_cursor.target, p_cursor.seen));
BEGIN
  IF p_cursor.system_id <> v_system_id THEN
    RETURN format('it comes from another server (system identifier %s, this one''s is %s)',
                  p_cursor.system_id, v_system_id);
  END IF;
  IF v_read > pg_snapshot_xmax(pg_current_snapshot()) THEN
    RETURN format('it has read up to transaction id %s, and this server has only reached %s',
                  v_read, pg_snapshot_xmax(pg_current_snapshot()));
  END IF;
  RETURN stale_messages();
END $$;

-- Refuses to read with a cursor that cannot be trusted on this server.
CREATE OR REPLACE FUNCTION refuse_foreign(p_cursor cursors) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_problem text := cursor_problem(p_cursor);
BEGIN
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('cursor "%s" cannot be read: %s', p_cursor.name, v_problem),
      HINT = 'A restored dump or a promoted copy? Then run once: waybill cursors repair';
  END IF;
END $$;

-- Refuses to read on a standby, because its snapshots do not list the transactions that run on the primary.
CREATE OR REPLACE FUNCTION refuse_standby() RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = 'this server is a standby, whose snapshots miss running transactions: messages would be lost',
      HINT = 'Read the log on the primary: give its address.';
  END IF;
END $$;

-- Repairs the log and its cursors after a restored dump or a promoted copy, in one transaction. Each cursor continues
-- at the oldest message that it had not read, or at the time of its last read minus overlap, whichever is earlier,
-- because messages may have come in before this call. Some messages are read twice, none is skipped. Messages whose
-- transaction id is in this server's future get one from before its first. This is the only case in which a message is
-- updated.
CREATE OR REPLACE FUNCTION repair_cursors(
  overlap                interval DEFAULT '10 minutes',
  actor                  text DEFAULT NULL,
  OUT cursors_repaired   int,
  OUT messages_rewritten bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_name    text;
  v_cursor  cursors;
  v_oldest  uuid;
  v_seen_at timestamptz;
  v_copy    text;
BEGIN
  PERFORM refuse_standby();
  cursors_repaired := 0;
  PERFORM FROM cursors c ORDER BY c.name FOR UPDATE;
  -- all partitions of a cursor come from the same server, even if only some show it
  FOR v_name IN
    SELECT DISTINCT c.name
      FROM cursors c
     WHERE cursor_problem(c) IS NOT NULL
     ORDER BY c.name
  LOOP
    FOR v_cursor IN
      SELECT *
        FROM cursors c
       WHERE c.name = v_name
         AND (c.until IS NULL OR c.kept IS NOT NULL)
    LOOP
      -- the oldest unread message, also of the rows that this one waits for
      SELECT u.id, min(r.seen_at) OVER ()
        INTO v_oldest, v_seen_at
        FROM cursors r
        LEFT JOIN LATERAL (
               SELECT m.id
                 FROM messages m
                WHERE in_partition(m.key_id, m.id, r.hash_from, r.hash_to)
                  AND NOT pg_visible_in_snapshot(m.transaction_id, r.seen)
                  AND NOT (r.position IS NOT NULL
                           AND m.id <= r.position
                           AND pg_visible_in_snapshot(m.transaction_id, r.target))
                ORDER BY m.id
                LIMIT 1) u ON true
       WHERE r.name = v_name
         AND r.hash_from < v_cursor.hash_to
         AND r.hash_to > v_cursor.hash_from
       ORDER BY u.id
       LIMIT 1;
      UPDATE cursors c
         SET began = committed_snapshot(),
             seen = nothing_seen(),
             target = committed_snapshot(),
             -- snapshots of before mean nothing here: of a remainder, all unread messages become unrouted
             until = NULL,
             kept = CASE WHEN c.kept IS NOT NULL THEN '[]'::jsonb END,
             position = least(id_at(id_time(v_oldest) - interval '1 ms'), id_at(v_seen_at - overlap)),
             system_id = (SELECT system_identifier FROM pg_control_system()),
             moved_at = clock_timestamp()
       WHERE c.name = v_name
         AND c.generation = v_cursor.generation
         AND c.hash_from = v_cursor.hash_from;
    END LOOP;
    DELETE FROM cursors c WHERE c.name = v_name AND c.until IS NOT NULL;
    PERFORM revoke_cursor(v_name);
    cursors_repaired := cursors_repaired + 1;
  END LOOP;
  IF cursors_repaired > 0 THEN DELETE FROM clock_steps; END IF;
  UPDATE messages m
     SET transaction_id = pg_snapshot_xmax(nothing_seen())
   WHERE m.transaction_id >= pg_snapshot_xmax(pg_current_snapshot())
     AND m.transaction_id IS DISTINCT FROM pg_current_xact_id_if_assigned();
  GET DIAGNOSTICS messages_rewritten = ROW_COUNT;
  -- retention makes the copies of days that it was thinning again
  PERFORM take_lock('partitions');
  FOR v_copy IN
    SELECT c.relname
      FROM pg_class c
     WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
       AND c.relkind = 'r'
       AND c.relname ~ '^messages_[0-9]{8}_kept$'
  LOOP
    EXECUTE format('DROP TABLE %I', v_copy);
  END LOOP;
  PERFORM record_action(actor, 'repair_cursors', jsonb_build_object('cursors', cursors_repaired), messages_rewritten);
END $$;
