-- The state of cursors: how far behind they are, and whether they have stopped.

-- How far behind each cursor is, and why it may have stopped. For each cursor it reads at most 100,000 messages of its
-- window, and as many after it.
CREATE OR REPLACE FUNCTION cursor_status()
RETURNS TABLE (
  name text, topics text[], behind bigint, oldest_unread_at timestamptz, reader text, leased_until timestamptz,
  moved_at timestamptz, tries int, error_code text, error_message text, problem text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
#variable_conflict use_column
DECLARE
  v_cursor cursors;
  v_until  timestamptz;
  v_base   pg_snapshot;
  v_count  bigint;
  v_oldest uuid;
BEGIN
  FOR v_cursor IN SELECT * FROM cursors c WHERE c.kept IS NULL ORDER BY c.name LOOP
    v_base := coalesce(v_cursor.target, v_cursor.seen);
    SELECT count(*), (array_agg(u.id ORDER BY u.id))[1]
      INTO v_count, v_oldest
      FROM (SELECT w.*
              FROM (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id
                      FROM messages m
                     WHERE v_cursor.target IS NOT NULL
                       AND m.id > coalesce(v_cursor.position, '00000000-0000-0000-0000-000000000000')
                     ORDER BY m.id
                     LIMIT 100000) w
             WHERE pg_visible_in_snapshot(w.transaction_id, v_cursor.target)
               AND NOT pg_visible_in_snapshot(w.transaction_id, v_cursor.seen)
            UNION ALL
            (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id
               FROM messages m
              WHERE m.transaction_id >= pg_snapshot_xmax(v_base)
              LIMIT 100000)
            UNION ALL
            (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id
               FROM messages m
              WHERE m.transaction_id = ANY (ARRAY (SELECT pg_snapshot_xip(v_base)))
              LIMIT 100000)) u
     WHERE filters_match(v_cursor.topics, v_cursor.namespaces, v_cursor.tenant_ids, u.topic, u.namespace, u.tenant_id);
    v_until := (
      SELECT h.expires_at
        FROM holds h
       WHERE h.name = 'cursor ' || v_cursor.name
         AND is_held(h.expires_at, h.duration));
    RETURN QUERY
      SELECT v_cursor.name, v_cursor.topics, v_count, id_time(v_oldest),
             CASE WHEN v_until IS NOT NULL THEN v_cursor.reader_name END, v_until,
             v_cursor.moved_at, v_cursor.tries, v_cursor.error_code, v_cursor.error_message, cursor_problem(v_cursor);
  END LOOP;
END $$;

-- Cursors that have stopped: they have not moved for 15 minutes, and their oldest unread message is older than that.
-- Either nothing reads them, or their reader does not get on. Only such cursors are looked at more closely, and of each
-- the first 10,000 messages of its window and as many after it. If none of so many matches its filters, it counts too,
-- because it holds back retention.
CREATE OR REPLACE FUNCTION stalled_cursors() RETURNS TABLE (name text, is_read boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_since   timestamptz := clock_timestamp() - interval '15 minutes';
  v_most    int := 10000;
  v_cursor  cursors;
  v_base    pg_snapshot;
  v_stopped boolean;
BEGIN
  FOR v_cursor IN
    SELECT *
      FROM cursors c
     WHERE c.closing_since IS NULL
       AND c.moved_at < v_since
     ORDER BY c.name
  LOOP
    v_base := coalesce(v_cursor.target, v_cursor.seen);
    SELECT coalesce(bool_or(u.wanted) OR count(*) >= v_most, false)
      INTO v_stopped
      FROM (SELECT filters_match(v_cursor.topics, v_cursor.namespaces, v_cursor.tenant_ids,
                                 x.topic, x.namespace, x.tenant_id) AS wanted
              FROM ((SELECT w.id, w.topic, w.namespace, w.tenant_id
                       FROM (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id
                               FROM messages m
                              WHERE v_cursor.target IS NOT NULL
                                AND m.id > coalesce(v_cursor.position, '00000000-0000-0000-0000-000000000000')
                              ORDER BY m.id
                              LIMIT v_most) w
                      WHERE pg_visible_in_snapshot(w.transaction_id, v_cursor.target)
                        AND NOT pg_visible_in_snapshot(w.transaction_id, v_cursor.seen))
                    UNION ALL
                    (SELECT m.id, m.topic, m.namespace, m.tenant_id
                       FROM messages m
                      WHERE m.transaction_id >= pg_snapshot_xmax(v_base)
                      ORDER BY m.transaction_id
                      LIMIT v_most)
                    UNION ALL
                    (SELECT m.id, m.topic, m.namespace, m.tenant_id
                       FROM messages m
                      WHERE m.transaction_id = ANY (ARRAY (SELECT pg_snapshot_xip(v_base)))
                      LIMIT v_most)) x
             WHERE x.id < id_at(v_since)) u;
    CONTINUE WHEN NOT v_stopped;
    RETURN QUERY SELECT v_cursor.name, is_taken('cursor ' || v_cursor.name);
  END LOOP;
END $$;
