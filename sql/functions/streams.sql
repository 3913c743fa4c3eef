-- Streams: the numbers of messages with a key.

-- Numbers the messages that have a key. All streams of a batch are taken in one sorted statement, so that two
-- batches never deadlock, whatever the order of their messages. The ids are made anew after that, so that
-- those of a key are in its order too.
CREATE OR REPLACE FUNCTION number_messages(p_messages messages[]) RETURNS messages[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_numbered messages[];
BEGIN
  WITH keyed AS MATERIALIZED (
    SELECT m.ordinality AS position, m.namespace, coalesce(m.tenant_id, '') AS tenant_id, m.key
      FROM unnest(p_messages) WITH ORDINALITY AS m WHERE m.key IS NOT NULL),
  taken AS (
    INSERT INTO streams AS s (next_sequence, last_used_at, namespace, tenant_id, key)
    SELECT count(*) + 1, clock_timestamp(), k.namespace, k.tenant_id, k.key
      FROM keyed k GROUP BY k.namespace, k.tenant_id, k.key
     ORDER BY k.namespace COLLATE "C", k.tenant_id COLLATE "C", k.key COLLATE "C"
    ON CONFLICT (namespace, tenant_id, key) DO UPDATE
       SET next_sequence = s.next_sequence + excluded.next_sequence - 1, last_used_at = clock_timestamp()
    RETURNING s.id, s.next_sequence, s.namespace, s.tenant_id, s.key),
  numbered AS MATERIALIZED (
    SELECT k.position, t.id AS stream_id,
           t.next_sequence - row_number() OVER (PARTITION BY t.id ORDER BY k.position DESC) AS sequence
      FROM keyed k JOIN taken t ON t.namespace = k.namespace AND t.tenant_id = k.tenant_id AND t.key = k.key)
  SELECT array_agg(CASE WHEN x.stream_id IS NULL THEN x.message ELSE
           ROW(new_id(), clock_timestamp(),
               (x.message).transaction_id, x.stream_id, x.sequence, (x.message).namespace, (x.message).topic,
               (x.message).tenant_id, (x.message).key, (x.message).dedupe_key, (x.message).aggregate_type,
               (x.message).aggregate_id, (x.message).headers, (x.message).payload)::messages END ORDER BY x.position)
    INTO v_numbered
    FROM (SELECT m.message, m.position, n.stream_id, n.sequence
            FROM (SELECT p_messages[i] AS message, i AS position FROM generate_subscripts(p_messages, 1) i) m
            LEFT JOIN numbered n USING (position) ORDER BY m.position) x;
  RETURN v_numbered;
END $$;
