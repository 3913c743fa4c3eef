-- Closed rows: the time before which the rows of these tables are complete, because every transaction that wrote
-- earlier rows has ended. Writers are known by their locks, so settling and enqueueing cost nothing more, and no
-- session waits.

-- The time before which the rows of these tables are complete: every transaction that wrote earlier rows has ended.
-- Writers take a lock of p_modes on one of the tables before they read the clock. Those that hold a lock at one call
-- are checked again at later calls until they have ended. Readers take AccessShareLock too: of its holders, only
-- transactions with an id count, so a long dump stops nothing. p_what: the task that asks; each has its own progress.
CREATE OR REPLACE FUNCTION close_rows(
  p_what   text,
  p_tables regclass[],
  p_modes  text[] DEFAULT '{RowShareLock,RowExclusiveLock}')
RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_cut     closed_rows;
  v_now     timestamptz := clock_timestamp();
  v_writers text[] := (
    SELECT coalesce(array_agg(DISTINCT l.virtualtransaction), '{}')
      FROM pg_locks l
     WHERE l.locktype = 'relation'
       AND l.relation = ANY (p_tables)
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND l.mode = ANY (p_modes)
       AND l.pid IS DISTINCT FROM pg_backend_pid()
       AND (l.mode <> 'AccessShareLock'
            OR EXISTS (
                 SELECT FROM pg_locks x
                  WHERE x.locktype = 'transactionid'
                    AND x.virtualtransaction = l.virtualtransaction)));
BEGIN
  INSERT INTO closed_rows (what) VALUES (p_what) ON CONFLICT DO NOTHING;
  SELECT * INTO STRICT v_cut FROM closed_rows c WHERE c.what = p_what FOR UPDATE;
  IF v_writers = '{}' THEN
    v_cut.until := v_now;
    v_cut.asked_at := NULL;
  ELSIF v_cut.asked_at IS NULL OR NOT v_cut.writers && v_writers THEN
    v_cut.until := coalesce(v_cut.asked_at, v_cut.until);
    v_cut.asked_at := v_now;
    v_cut.writers := v_writers;
  END IF;
  UPDATE closed_rows c
     SET until = v_cut.until, asked_at = v_cut.asked_at, writers = v_cut.writers
   WHERE c.what = p_what;
  RETURN v_cut.until;
END $$;

-- The time before which the rows of attempts are complete, at least p_delay ago. A settle locks its lease before it
-- reads the clock.
CREATE OR REPLACE FUNCTION closed_attempts(p_what text, p_delay interval) RETURNS timestamptz
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT least(
           close_rows(p_what, ARRAY (
             SELECT 'leases'::regclass
             UNION ALL
             SELECT 'attempts'::regclass
             UNION ALL
             SELECT b.partition FROM partition_bounds('attempts') b)),
           clock_timestamp() - p_delay)
$$;

-- The time before which the messages are complete, at least p_delay ago. An enqueue makes its ids before it inserts,
-- and may wait for another producer in between. But every writer of messages (add_messages, send_test) reads
-- message_limits before it makes an id, and keeps that lock until its transaction ends. It gets its transaction id a
-- few microseconds after its lock; the delay p_delay makes that harmless.
CREATE OR REPLACE FUNCTION closed_messages(p_what text, p_delay interval) RETURNS timestamptz
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT least(close_rows(p_what, ARRAY['message_limits'::regclass], '{AccessShareLock}'),
               clock_timestamp() - p_delay)
$$;
