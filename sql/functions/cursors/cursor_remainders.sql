-- Remainders: the unread messages of a cursor that is deleted, or reads fewer topics than before. Messages that nothing
-- else wants become unrouted, so that they are kept, reported, and can be routed or discarded.
--
-- A remainder is a closing cursor with the former filters. Like any closing cursor, it is read in steps by
-- hand_over_cursors, and ends when all transactions that may have relied on the cursor have ended. Meanwhile it holds
-- back retention. kept has the filters of all cursors at the time of the change, [{topic, namespace, tenantId, began}].
-- Later changes of these cursors do not matter: each leaves a remainder of its own.

-- Leaves a remainder of a row of a cursor. p_cursor: the row before the change. The caller has made the change and
-- holds the lock of the definitions, so that two cursors do not count on each other while both change.
CREATE OR REPLACE FUNCTION leave_remainder(p_cursor cursors) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM assert_read_committed('a change of a cursor');
  PERFORM end_older_snapshots(format('the cursor "%s" is not changed', p_cursor.name));
  INSERT INTO cursors (name, hash_from, hash_to, partitions, until, destination_id, topics, namespaces, tenant_ids,
                       began, seen, seen_at, target, position, system_id, closing_since, kept)
  VALUES (p_cursor.name || '~' || left(gen_random_uuid()::text, 8), p_cursor.hash_from, p_cursor.hash_to,
          p_cursor.partitions, p_cursor.until, p_cursor.destination_id, p_cursor.topics, p_cursor.namespaces,
          p_cursor.tenant_ids, p_cursor.began, p_cursor.seen, p_cursor.seen_at, p_cursor.target, p_cursor.position,
          p_cursor.system_id, clock_timestamp(), (
            SELECT coalesce(jsonb_agg(jsonb_build_object('topic', f.topic, 'namespace', f.namespace,
                                                         'tenantId', f.tenant_id, 'began', c.began)), '[]')
              FROM cursors c
             CROSS JOIN LATERAL unnest(c.topics, c.namespaces, c.tenant_ids) f(topic, namespace, tenant_id)
             WHERE c.kept IS NULL
               AND is_first(c)));
END $$;

-- The name of the cursor that left a remainder.
CREATE OR REPLACE FUNCTION remainder_of(p_cursor_name text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT split_part(p_cursor_name, '~', 1)
$$;

-- Makes messages of a remainder unrouted; p_ids is sorted. It skips messages that another cursor has read or will read,
-- messages that have or had a delivery, and messages that a split route left to the other system.
CREATE OR REPLACE FUNCTION unroute_unread(p_kept jsonb, p_ids uuid[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
BEGIN
  IF cardinality(p_ids) = 0 THEN RETURN; END IF;
  WITH held AS MATERIALIZED (
    SELECT unnest(l.message_ids) AS message_id FROM leases l),
  kept AS MATERIALIZED (
    SELECT k.*
      FROM jsonb_to_recordset(p_kept) k(topic text, namespace text, "tenantId" text, began pg_snapshot))
  INSERT INTO unrouted_messages (message_id, key_id, sequence)
  SELECT m.id, m.key_id, m.sequence
    FROM unnest(p_ids) i(id)
   CROSS JOIN LATERAL (
          -- FOR SHARE: retention sees the lock and keeps the partition
          SELECT *
            FROM messages x
           WHERE x.id = i.id
             AND x.id BETWEEN p_ids[1] AND p_ids[cardinality(p_ids)]
          OFFSET 0
             FOR SHARE) m
   WHERE NOT EXISTS (
           SELECT FROM kept k
            WHERE route_matches(k.topic, k.namespace, k."tenantId", m.topic, m.namespace, m.tenant_id)
              AND NOT pg_visible_in_snapshot(m.transaction_id, k.began))
     AND NOT EXISTS (SELECT FROM deliveries d WHERE d.message_id = i.id)
     AND NOT EXISTS (SELECT FROM attempts a WHERE a.message_id = i.id)
     AND NOT EXISTS (SELECT FROM dead_letters l WHERE l.message_id = i.id)
     AND i.id NOT IN (SELECT h.message_id FROM held h)
     AND NOT EXISTS (
           SELECT FROM routes r
            WHERE r.split_by IS NOT NULL
              AND route_matches(r.topic, r.namespace, r.tenant_id, m.topic, m.namespace, m.tenant_id))
   ORDER BY m.id
  ON CONFLICT DO NOTHING;
END $$;
