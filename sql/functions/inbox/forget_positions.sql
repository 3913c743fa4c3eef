-- Forgetting positions (optional): removes positions of the inbox whose keys are no longer used. There is one row for
-- each consumer and key. Each call checks a slice of the table, in the order of its primary key; the caller passes on
-- where the last one ended.

-- Scans the next p_batch positions and deletes those unused for p_older_than. A position stays if this database knows
-- its key, because the consumer continues counting there. If the outbox is in another database, p_older_than must be at
-- least the time after which that database deletes keys. Otherwise the next message of a key in use looks as if all
-- messages before it were missing. A position that a consumer has locked stays; the call never waits. p_older_than null
-- keeps all positions. looked_at is less than p_batch at the end of the table.
CREATE OR REPLACE FUNCTION forget_positions(
  p_older_than  interval,
  p_batch       int DEFAULT 1000,
  p_after       text[] DEFAULT NULL,
  OUT looked_at int,
  OUT forgotten int,
  OUT last      text[])
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
DECLARE
  v_before timestamptz := forget_before('positions', p_older_than, p_batch);
  v_after  text[] := coalesce(p_after, '{"","","",""}');
  v_old    tid[];
BEGIN
  looked_at := 0;
  forgotten := 0;
  IF v_before IS NULL THEN RETURN; END IF;
  WITH slice AS MATERIALIZED (
    SELECT p.ctid AS tid, p.consumer, p.namespace, p.tenant_id, p.key, p.used_at, row_number() OVER () AS place
      FROM (SELECT x.ctid, x.*
              FROM inbox_positions x
             WHERE (x.consumer, x.namespace, x.tenant_id, x.key) > (v_after[1], v_after[2], v_after[3], v_after[4])
             ORDER BY x.consumer, x.namespace, x.tenant_id, x.key
             LIMIT p_batch) p)
  SELECT count(*), array_agg(s.tid) FILTER (WHERE s.used_at < v_before),
         (SELECT ARRAY[l.consumer, l.namespace, l.tenant_id, l.key]
            FROM slice l
           ORDER BY l.place DESC
           LIMIT 1)
    INTO looked_at, v_old, last
    FROM slice s;
  IF v_old IS NULL THEN RETURN; END IF;
  v_old := ARRAY (
    SELECT p.ctid
      FROM inbox_positions p
     WHERE p.ctid = ANY (v_old)
       AND p.used_at < v_before
       FOR UPDATE SKIP LOCKED);
  -- a separate statement, so that its snapshot is newer than the locks
  DELETE FROM inbox_positions p
   WHERE p.ctid = ANY (v_old)
     AND (SELECT 1
            FROM keys s
           WHERE s.namespace = p.namespace
             AND s.tenant_id = p.tenant_id
             AND s.key = p.key
           LIMIT 1) IS NULL;
  GET DIAGNOSTICS forgotten = ROW_COUNT;
END $$;
