-- The state of cursors: how far behind they are, and whether they have stopped.

-- How far behind each cursor is, and why it may have stopped: the sum of its partitions. reader: all readers. moved_at:
-- when the partition that has not moved for the longest time moved last. The tries and the error are those of the
-- partition with the most tries.
CREATE OR REPLACE FUNCTION cursor_status()
RETURNS TABLE (
  name text, topics text[], behind bigint, oldest_unread_at timestamptz, reader text, leased_until timestamptz,
  moved_at timestamptz, tries int, error_code text, error_message text, problem text, partitions int)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT p.name, c.topics, sum(p.behind)::bigint, min(p.oldest_unread_at),
         string_agg(DISTINCT p.reader, ', '), min(p.leased_until), min(p.moved_at), max(p.tries),
         (array_agg(p.error_code ORDER BY p.tries DESC, p.error_code))[1],
         (array_agg(p.error_message ORDER BY p.tries DESC, p.error_code))[1],
         min(p.problem), c.partitions
    FROM cursors c
    JOIN cursor_partitions() p ON p.name = c.name
   WHERE is_first(c)
   GROUP BY p.name, c.topics, c.partitions
   ORDER BY p.name
$$;

-- The partitions of all cursors. After a change of their number, a partition can have several rows for a while: is_old
-- are those that are read and deleted first. For each row it reads at most 100,000 messages of its window, and as many
-- after it.
CREATE OR REPLACE FUNCTION cursor_partitions()
RETURNS TABLE (
  name text, partition int, is_old boolean, behind bigint, oldest_unread_at timestamptz, reader text,
  leased_until timestamptz, moved_at timestamptz, tries int, error_code text, error_message text, problem text)
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
  FOR v_cursor IN
    SELECT *
      FROM cursors c
     WHERE c.kept IS NULL
     ORDER BY c.name, c.hash_from, c.generation
  LOOP
    v_base := coalesce(v_cursor.target, v_cursor.seen);
    SELECT count(*), (array_agg(u.id ORDER BY u.id))[1]
      INTO v_count, v_oldest
      FROM (SELECT w.*
              FROM (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id, m.key_id
                      FROM messages m
                     WHERE v_cursor.target IS NOT NULL
                       AND m.id > coalesce(v_cursor.position, '00000000-0000-0000-0000-000000000000')
                     ORDER BY m.id
                     LIMIT 100000) w
             WHERE pg_visible_in_snapshot(w.transaction_id, v_cursor.target)
               AND NOT pg_visible_in_snapshot(w.transaction_id, v_cursor.seen)
            UNION ALL
            (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id, m.key_id
               FROM messages m
              WHERE m.transaction_id >= pg_snapshot_xmax(v_base)
              LIMIT 100000)
            UNION ALL
            (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id, m.key_id
               FROM messages m
              WHERE m.transaction_id = ANY (ARRAY (SELECT pg_snapshot_xip(v_base)))
              LIMIT 100000)) u
     WHERE in_partition(u.key_id, u.id, v_cursor.hash_from, v_cursor.hash_to)
       AND (v_cursor.until IS NULL OR pg_visible_in_snapshot(u.transaction_id, v_cursor.until))
       AND filters_match(v_cursor.topics, v_cursor.namespaces, v_cursor.tenant_ids, u.topic, u.namespace, u.tenant_id);
    v_until := (
      SELECT h.expires_at
        FROM holds h
       WHERE h.name = cursor_hold(v_cursor.name, v_cursor.hash_from)
         AND is_held(h.expires_at, h.duration));
    RETURN QUERY
      SELECT v_cursor.name, partition_number(v_cursor.hash_from, v_cursor.partitions), v_cursor.until IS NOT NULL,
             v_count, id_time(v_oldest), CASE WHEN v_until IS NOT NULL THEN v_cursor.reader_name END, v_until,
             v_cursor.moved_at, v_cursor.tries, v_cursor.error_code, v_cursor.error_message, cursor_problem(v_cursor);
  END LOOP;
END $$;

-- Cursors that have stopped: they have not moved for 15 minutes, and their oldest unread message is older than that.
-- Either nothing reads them, or their reader does not get on. Only such cursors are looked at more closely, and of each
-- partition the first 10,000 messages of its window and as many after it. If none of so many matches its filters, it
-- counts too, because it holds back retention. is_read: all partitions that have stopped have a reader.
CREATE OR REPLACE FUNCTION stalled_cursors() RETURNS TABLE (name text, is_read boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_since    timestamptz := clock_timestamp() - interval '15 minutes';
  v_most     int := 10000;
  v_cursor   cursors;
  v_base     pg_snapshot;
  v_stopped  boolean;
  v_is_taken boolean;
BEGIN
  FOR v_cursor IN
    SELECT *
      FROM cursors c
     WHERE c.closing_since IS NULL
       AND c.moved_at < v_since
       AND EXISTS (
             SELECT FROM readable_partitions(c.name) r
              WHERE r.generation = c.generation
                AND r.hash_from = c.hash_from)
     ORDER BY c.name
  LOOP
    v_base := coalesce(v_cursor.target, v_cursor.seen);
    SELECT coalesce(bool_or(u.wanted) OR count(*) >= v_most, false)
      INTO v_stopped
      FROM (SELECT filters_match(v_cursor.topics, v_cursor.namespaces, v_cursor.tenant_ids,
                                 x.topic, x.namespace, x.tenant_id)
                     AND in_partition(x.key_id, x.id, v_cursor.hash_from, v_cursor.hash_to) AS wanted
              FROM ((SELECT w.id, w.topic, w.namespace, w.tenant_id, w.key_id
                       FROM (SELECT m.id, m.transaction_id, m.topic, m.namespace, m.tenant_id, m.key_id
                               FROM messages m
                              WHERE v_cursor.target IS NOT NULL
                                AND m.id > coalesce(v_cursor.position, '00000000-0000-0000-0000-000000000000')
                              ORDER BY m.id
                              LIMIT v_most) w
                      WHERE pg_visible_in_snapshot(w.transaction_id, v_cursor.target)
                        AND NOT pg_visible_in_snapshot(w.transaction_id, v_cursor.seen))
                    UNION ALL
                    (SELECT m.id, m.topic, m.namespace, m.tenant_id, m.key_id
                       FROM messages m
                      WHERE m.transaction_id >= pg_snapshot_xmax(v_base)
                      ORDER BY m.transaction_id
                      LIMIT v_most)
                    UNION ALL
                    (SELECT m.id, m.topic, m.namespace, m.tenant_id, m.key_id
                       FROM messages m
                      WHERE m.transaction_id = ANY (ARRAY (SELECT pg_snapshot_xip(v_base)))
                      LIMIT v_most)) x
             WHERE x.id < id_at(v_since)) u;
    CONTINUE WHEN NOT v_stopped;
    v_is_taken := is_taken(cursor_hold(v_cursor.name, v_cursor.hash_from));
    IF name IS DISTINCT FROM v_cursor.name THEN
      IF name IS NOT NULL THEN RETURN NEXT; END IF;
      name := v_cursor.name;
      is_read := v_is_taken;
    ELSE
      is_read := is_read AND v_is_taken;
    END IF;
  END LOOP;
  IF name IS NOT NULL THEN RETURN NEXT; END IF;
END $$;
