-- Dedupe keys of a batch that is being enqueued: the database decides which message of a key is the first.
-- prune_dedupe_keys (upkeep/maintenance.sql) says how long keys are remembered.

-- Takes the dedupe keys of these messages. Returns, for each of them, the id of the first message with its key, and its
-- sequence if it was enqueued earlier; without a key, its own id. Sorted, so that two batches with the same keys never
-- deadlock. If another transaction has inserted a key, this one waits for it, and gets the key if that transaction
-- rolls back.
CREATE OR REPLACE FUNCTION take_dedupe_keys(p_messages messages[], OUT winners uuid[], OUT sequences bigint[])
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  INSERT INTO dedupe_keys (message_id, namespace, tenant_id, topic, dedupe_key)
  SELECT DISTINCT ON (m.namespace COLLATE "C", coalesce(m.tenant_id, '') COLLATE "C", m.topic COLLATE "C",
                      m.dedupe_key COLLATE "C")
         m.id, m.namespace, coalesce(m.tenant_id, ''), m.topic, m.dedupe_key
    FROM unnest(p_messages) WITH ORDINALITY AS m
   WHERE m.dedupe_key IS NOT NULL
   ORDER BY m.namespace COLLATE "C", coalesce(m.tenant_id, '') COLLATE "C", m.topic COLLATE "C",
            m.dedupe_key COLLATE "C", m.ordinality
  ON CONFLICT DO NOTHING;
  SELECT array_agg(CASE WHEN m.dedupe_key IS NULL THEN m.id ELSE k.message_id END ORDER BY m.ordinality),
         array_agg(k.sequence ORDER BY m.ordinality)
    INTO winners, sequences
    FROM unnest(p_messages) WITH ORDINALITY AS m
    LEFT JOIN LATERAL (
          SELECT x.message_id, x.sequence
            FROM dedupe_keys x
           WHERE x.namespace = m.namespace
             AND x.tenant_id = coalesce(m.tenant_id, '')
             AND x.topic = m.topic
             AND x.dedupe_key = m.dedupe_key
           LIMIT 1) k ON true;
  IF array_position(winners, NULL) IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = 'a dedupe key expired while it was being compared: try again';
  END IF;
END $$;

-- number_messages gives messages with an ordering key new ids and sequences: stores them with the dedupe keys, and
-- returns the winners with them.
CREATE OR REPLACE FUNCTION move_dedupe_keys(p_winners uuid[], p_before messages[], p_after messages[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  UPDATE dedupe_keys k
     SET message_id = n.id, sequence = n.sequence
    FROM (SELECT m.id, m.sequence, x.tid
            FROM unnest(p_after) m
           CROSS JOIN LATERAL (
                  SELECT i.ctid AS tid
                    FROM dedupe_keys i
                   WHERE i.namespace = m.namespace
                     AND i.tenant_id = coalesce(m.tenant_id, '')
                     AND i.topic = m.topic
                     AND i.dedupe_key = m.dedupe_key
                  OFFSET 0) x
           WHERE m.key IS NOT NULL
          OFFSET 0) n
   WHERE k.ctid = n.tid;
  RETURN ARRAY (
    SELECT coalesce(n.new_id, w.id)
      FROM unnest(p_winners) WITH ORDINALITY AS w(id, position)
      LEFT JOIN (SELECT (p_before[i]).id AS old_id, (p_after[i]).id AS new_id
                   FROM generate_subscripts(p_before, 1) i) n
        ON n.old_id = w.id
     ORDER BY w.position);
END $$;

-- The answer of an enqueue with dedupe keys, in the order of the input: a repeat gets the id and the sequence of the
-- first message with its key, which may be long gone.
CREATE OR REPLACE FUNCTION answer_repeats(p_winners uuid[], p_sequences bigint[], p_messages messages[])
RETURNS TABLE (id uuid, sequence bigint, duplicate boolean)
LANGUAGE sql STABLE
AS $$
  SELECT w.id,
         CASE WHEN n.id IS NOT NULL THEN n.sequence ELSE w.sequence END,
         n.id IS NULL OR w.again
    FROM (SELECT u.id, u.sequence, u.position,
                 row_number() OVER (PARTITION BY u.id ORDER BY u.position) > 1 AS again
            FROM unnest(p_winners, p_sequences) WITH ORDINALITY AS u(id, sequence, position)) w
    LEFT JOIN unnest(p_messages) n ON n.id = w.id
   ORDER BY w.position
$$;
