-- Keys: number the messages of each ordering key, and record for cursors where the clock stepped back between two of
-- them.

-- Gives messages with a key their sequence numbers. One sorted statement locks all keys of a batch, so two batches
-- never deadlock, whatever the order of their messages. New ids are created after the locks, so that the ids of a key
-- are in sequence order too, unless the clock steps back. Such a step is recorded for cursors.
CREATE OR REPLACE FUNCTION number_messages(p_messages messages[])
RETURNS messages[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
  v_numbered messages[];
  v_stepped  xid8[];
BEGIN
  WITH keyed AS MATERIALIZED (
    SELECT m.ordinality AS position, m.namespace, coalesce(m.tenant_id, '') AS tenant_id, m.key
      FROM unnest(p_messages) WITH ORDINALITY AS m
     WHERE m.key IS NOT NULL),
  taken AS (
    INSERT INTO keys AS s (next_sequence, last_used_at, namespace, tenant_id, key)
    SELECT count(*) + 1, clock_timestamp(), k.namespace, k.tenant_id, k.key
      FROM keyed k
     GROUP BY k.namespace, k.tenant_id, k.key
     ORDER BY k.namespace COLLATE "C", k.tenant_id COLLATE "C", k.key COLLATE "C"
    ON CONFLICT (namespace, tenant_id, key) DO UPDATE
       SET next_sequence = s.next_sequence + excluded.next_sequence - 1,
           last_used_at = clock_timestamp(),
           last_transaction = pg_current_xact_id(),
           stepped_from = CASE WHEN s.last_used_at > clock_timestamp() THEN s.last_transaction END
    RETURNING s.id, s.next_sequence, s.namespace, s.tenant_id, s.key, s.stepped_from),
  numbered AS MATERIALIZED (
    SELECT k.position, t.id AS key_id,
           t.next_sequence - row_number() OVER (PARTITION BY t.id ORDER BY k.position DESC) AS sequence
      FROM keyed k
      JOIN taken t ON t.namespace = k.namespace AND t.tenant_id = k.tenant_id AND t.key = k.key)
  SELECT array_agg(CASE
           WHEN x.key_id IS NULL THEN x.message
           ELSE ROW(new_id(), clock_timestamp(), (x.message).available_at, (x.message).transaction_id, x.key_id,
                    x.sequence, (x.message).bytes, (x.message).namespace, (x.message).topic, (x.message).tenant_id,
                    (x.message).key, (x.message).dedupe_key, (x.message).aggregate_type, (x.message).aggregate_id,
                    (x.message).headers, (x.message).payload)::messages
         END ORDER BY x.position),
         (SELECT array_agg(t.stepped_from) FROM taken t WHERE t.stepped_from IS NOT NULL)
    INTO v_numbered, v_stepped
    FROM (SELECT m.message, m.position, n.key_id, n.sequence
            FROM (SELECT p_messages[i] AS message, i AS position
                    FROM generate_subscripts(p_messages, 1) i) m
            LEFT JOIN numbered n USING (position)
           ORDER BY m.position) x;
  IF v_stepped IS NOT NULL THEN PERFORM note_clock_step(v_stepped); END IF;
  RETURN v_numbered;
END $$;

-- Records that the clock stepped back. The caller has locked the keys whose last numbers these transactions took, so
-- all of them have ended: committed_snapshot contains their messages, and not the caller's. One step serves every key
-- whose last message came before it, because the next message of such a key commits after the step. Two transactions
-- that record a step at the same time do not see each other's; both steps stay, and one contains the other.
CREATE OR REPLACE FUNCTION note_clock_step(p_transactions xid8[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_now pg_snapshot := committed_snapshot();
BEGIN
  INSERT INTO clock_steps (snapshot, ends)
  SELECT v_now, pg_snapshot_xmax(v_now)
   WHERE EXISTS (
           SELECT FROM unnest(p_transactions) t(id)
            WHERE t.id <> pg_current_xact_id()
              AND NOT EXISTS (
                    SELECT FROM clock_steps c
                     WHERE c.ends > t.id
                       AND pg_visible_in_snapshot(t.id, c.snapshot)));
END $$;

-- Deletes clock steps that are older than every message in the log.
CREATE OR REPLACE FUNCTION forget_clock_steps()
RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
  DELETE FROM clock_steps c
   WHERE NOT EXISTS (SELECT FROM messages m WHERE m.transaction_id < c.ends)
$$;
