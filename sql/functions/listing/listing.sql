-- Listing: the queries behind the lists of messages on the page and in the command line.

-- The state of each of these messages at each destination, as in message_status, but with one look-up per id and a
-- cached plan. A dead letter has its own error, because it may have died without a failed attempt. One whose message is
-- gone is described by its own copy.
CREATE OR REPLACE FUNCTION describe_messages(p_ids uuid[])
RETURNS TABLE (
  message_id uuid, destination_id int, destination text, status text, retrying boolean, namespace text, topic text,
  tenant_id text, key text, sequence bigint, aggregate_type text, aggregate_id text, tries int,
  next_try_at timestamptz, error_code text, error text, created_at timestamptz, changed_at timestamptz,
  remote_code text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
  v_first  uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i LIMIT 1);
  v_last   uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i DESC LIMIT 1);
  v_tenant text := session_tenant();
BEGIN
  -- the id bounds repeat the look-ups for the planner, which then skips all other partitions
  RETURN QUERY
    WITH held AS MATERIALIZED (
      SELECT l.destination_id, l.claimed_at, u.message_id, u.claim_no, u.tries
        FROM leases l, unnest(l.message_ids, l.claim_nos, l.tries) u(message_id, claim_no, tries)
       WHERE u.message_id = ANY (p_ids)),
    place AS (
      SELECT i.id, x.destination_id, 'pending' AS status, x.tries, x.available_at, NULL::timestamptz AS changed_at,
             NULL::text AS error_code, NULL::text AS remote_code, NULL::text AS error_message
        FROM unnest(p_ids) i(id)
        JOIN LATERAL (
               SELECT d.destination_id, d.tries, d.available_at
                 FROM deliveries d
                WHERE d.message_id = i.id
               OFFSET 0) x ON true
      UNION ALL
      SELECT h.message_id, h.destination_id, 'processing', h.tries, NULL, h.claimed_at, NULL, NULL, NULL
        FROM held h
       WHERE NOT EXISTS (
               SELECT FROM attempts a
                WHERE a.message_id = h.message_id
                  AND a.message_id BETWEEN v_first AND v_last
                  AND a.destination_id = h.destination_id
                  AND a.claim_no = h.claim_no)
      UNION ALL
      SELECT i.id, x.destination_id, 'dead', x.tries, NULL, x.dead_at, x.error_code, x.remote_code, x.error_message
        FROM unnest(p_ids) i(id)
        JOIN LATERAL (
               SELECT d.destination_id, d.tries, d.dead_at, d.error_code, d.remote_code, d.error_message
                 FROM dead_letters d
                WHERE d.message_id = i.id
               OFFSET 0) x ON true
      UNION ALL
      SELECT i.id, x.destination_id, CASE x.state WHEN 'dispatched' THEN 'delivered' ELSE 'discarded' END, x.tries,
             NULL, x.ended_at, NULL, NULL, NULL
        FROM unnest(p_ids) i(id)
        JOIN LATERAL (
               SELECT a.destination_id, a.state, a.tries, a.claim_no, a.ended_at
                 FROM attempts a
                WHERE a.message_id = i.id
                  AND a.message_id BETWEEN v_first AND v_last
                  AND a.state IN ('dispatched', 'discarded')
               OFFSET 0) x ON true
       WHERE (x.state = 'dispatched'
              AND NOT EXISTS (
                    SELECT FROM brought_back r
                     WHERE r.destination_id = x.destination_id
                       AND r.before_id > i.id))
          -- a discarded message, or one before the position of a replay, may have been sent again since
          OR (NOT EXISTS (
                SELECT FROM attempts n
                 WHERE n.message_id = i.id
                   AND n.message_id BETWEEN v_first AND v_last
                   AND n.destination_id = x.destination_id
                   AND n.claim_no > x.claim_no)
              AND NOT EXISTS (
                    SELECT FROM deliveries d
                     WHERE d.message_id = i.id
                       AND d.destination_id = x.destination_id)
              AND NOT EXISTS (
                    SELECT FROM dead_letters d
                     WHERE d.message_id = i.id
                       AND d.destination_id = x.destination_id)
              AND NOT EXISTS (
                    SELECT FROM held h
                     WHERE h.message_id = i.id
                       AND h.destination_id = x.destination_id
                       AND h.claim_no > x.claim_no))
      UNION ALL
      SELECT i.id, NULL, 'unrouted', 0, NULL, NULL, NULL, NULL, NULL
        FROM unnest(p_ids) i(id)
        JOIN LATERAL (
               SELECT u.message_id
                 FROM unrouted_messages u
                WHERE u.message_id = i.id
               OFFSET 0) x ON true)
    SELECT p.id, p.destination_id, t.name, p.status, p.status = 'pending' AND p.tries > 0,
           coalesce(m.namespace, c.namespace), coalesce(m.topic, c.topic), coalesce(m.tenant_id, c.tenant_id),
           coalesce(m.key, c.key), coalesce(m.sequence, c.sequence), coalesce(m.aggregate_type, c.aggregate_type),
           coalesce(m.aggregate_id, c.aggregate_id), p.tries, p.available_at,
           CASE WHEN p.status = 'dead' THEN p.error_code ELSE e.error_code END,
           left(CASE WHEN p.status = 'dead' THEN p.error_message ELSE e.error_message END, 300), id_time(p.id),
           coalesce(p.changed_at, e.ended_at, id_time(p.id)),
           CASE WHEN p.status = 'dead' THEN p.remote_code ELSE e.remote_code END
      FROM place p
      LEFT JOIN LATERAL (
             SELECT d.name
               FROM destinations d
              WHERE d.id = p.destination_id
             OFFSET 0) t ON true
      LEFT JOIN LATERAL (
             SELECT x.*
               FROM messages x
              WHERE x.id = p.id
                AND x.id BETWEEN v_first AND v_last
             OFFSET 0) m ON true
      LEFT JOIN LATERAL (
             SELECT d.*
               FROM dead_letters d
              WHERE m.id IS NULL
                AND p.status = 'dead'
                AND d.message_id = p.id
                AND d.destination_id = p.destination_id
             OFFSET 0) c ON true
      LEFT JOIN LATERAL (
             SELECT a.error_code, a.remote_code, a.error_message, a.ended_at
               FROM attempts a
              WHERE a.message_id = p.id
                AND a.message_id BETWEEN v_first AND v_last
                AND a.destination_id = p.destination_id
                -- an attempt that was released with a code has paused its destination
                AND (a.state IN ('retryable', 'failed', 'zombie_requeue')
                     OR (a.state = 'released' AND a.error_code IS NOT NULL))
              ORDER BY a.claim_no DESC
              LIMIT 1) e ON true
     -- a session that is limited to a tenant sees nothing of others
     WHERE v_tenant IS NULL
        OR coalesce(m.tenant_id, c.tenant_id) = v_tenant
     ORDER BY t.name;
END $$;
