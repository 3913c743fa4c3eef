-- Transaction ids are a server's own. After a dump was restored elsewhere, or a logical copy promoted, those in
-- the log and in the cursors belong to the old server: compared with this one's they would hide messages. So a
-- cursor knows its server, is refused on another one and on a standby, and can be repaired.

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

-- After a restored dump or a promoted copy: makes the log and its cursors this server's own, in one transaction.
-- Each cursor goes on at the oldest message that it had not read, or at the last time it had looked less
-- the overlap, whichever is earlier, because messages may have come in before this was called. Some are
-- read twice, none is skipped. Messages whose transaction id this server has yet to reach get one from before
-- its first: it is the one reason for which a message is ever updated.
CREATE OR REPLACE FUNCTION repair_cursors(
  overlap interval DEFAULT '10 minutes', actor text DEFAULT NULL, OUT cursors_repaired int, OUT messages_rewritten bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
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
