-- Expiry: which partitions have outlived their retention, what keeps them, and the steps that remove or thin them.

-- Lists the expired partitions, each with the next statement towards its removal, or with the reason why it stays. The
-- statements are: record the day's topics (record_day), keep the identities of its messages (keep_identities), detach
-- it, drop it; or thin it out (thin_partition), if few of its messages are still needed. No function can run DETACH
-- CONCURRENTLY, which must be a statement of its own. In psql: SELECT statement FROM ... \gexec, until no statement is
-- left. An interrupted detach is finished, and a partition that was detached but not dropped is dropped, as is a copy
-- whose partition is gone. A retention floor keeps a day, attached or not, whatever the arguments are. p_only: list
-- this partition only. A table of another origin with such a name is left alone: it has no forced row level security,
-- which every partition and copy gets (make_partition_table).
CREATE OR REPLACE FUNCTION expired_partitions(
  p_messages_for interval,
  p_attempts_for interval,
  p_only         text DEFAULT NULL)
RETURNS TABLE (partition text, day date, in_use text, statement text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
#variable_conflict use_column
DECLARE
  v_row  record;
  v_use  record;
  v_thin boolean;
BEGIN
  -- null keeps all partitions
  IF p_messages_for IS NOT NULL THEN
    PERFORM checked_interval('p_messages_for', p_messages_for, '1 day', '100 years');
  END IF;
  IF p_attempts_for IS NOT NULL THEN
    PERFORM checked_interval('p_attempts_for', p_attempts_for, '1 day', '100 years');
  END IF;
  FOR v_row IN
    SELECT c.oid, c.relname::text AS name, x.parent, x.day, b.detaching, b.day IS NOT NULL AS attached, x.is_copy
      FROM pg_class c
     CROSS JOIN LATERAL (
            SELECT substring(c.relname, '^(.*)_[0-9]{8}') AS parent,
                   -- not in the WHERE below alone: a name need not be a date
                   CASE WHEN c.relforcerowsecurity
                        THEN to_date(substring(c.relname, '_([0-9]{8})'), 'YYYYMMDD') END AS day,
                   c.relname LIKE '%\_kept' AS is_copy) x
      LEFT JOIN (SELECT * FROM partition_bounds('messages')
                 UNION ALL
                 SELECT * FROM partition_bounds('attempts')
                 UNION ALL
                 SELECT * FROM partition_bounds('message_identities')) b
        ON b.partition = c.oid
     WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
       AND c.relkind = 'r'
       AND c.relforcerowsecurity
       AND c.relname ~ '^(messages|attempts|message_identities)_[0-9]{8}(_kept)?$'
       AND (p_only IS NULL OR c.relname = p_only)
       AND CASE
             WHEN x.is_copy THEN to_regclass(quote_ident(left(c.relname, -5))) IS NULL
             WHEN b.detaching OR b.day IS NULL THEN true
             WHEN x.parent = 'messages' THEN (x.day + 1)::timestamp AT TIME ZONE 'UTC' <= now() - p_messages_for
             WHEN x.parent = 'attempts' THEN (x.day + 1)::timestamp AT TIME ZONE 'UTC' <= now() - p_attempts_for
             -- identities are kept with the attempts of their day
             ELSE to_regclass('attempts_' || to_char(x.day, 'YYYYMMDD')) IS NULL
                  OR is_thinned('attempts', x.day)
           END
     ORDER BY x.day, x.parent DESC
  LOOP
    partition := v_row.name;
    day := v_row.day;
    in_use := NULL;
    statement := NULL;
    IF v_row.detaching THEN
      statement := format('ALTER TABLE %1$I.%2$I DETACH PARTITION %1$I.%3$I FINALIZE',
                          current_schema(), v_row.parent, v_row.name);
    ELSIF v_row.is_copy THEN
      statement := format('DROP TABLE %I.%I', current_schema(), v_row.name);
    ELSIF v_row.parent = 'messages' AND needs_record(v_row.oid, v_row.day) THEN
      IF is_written(v_row.oid) THEN
        in_use := 'an open transaction has written into it';
      ELSE
        statement := format('SELECT %I.record_day(%L)', current_schema(), v_row.day);
      END IF;
    ELSE
      in_use := CASE WHEN v_row.parent <> 'message_identities' THEN kept_by_floor(v_row.day, v_row.parent) END;
      v_thin := false;
      IF in_use IS NULL AND v_row.attached THEN
        SELECT * INTO v_use FROM day_use(v_row.parent, v_row.oid, v_row.day, p_messages_for);
        in_use := v_use.in_use;
        v_thin := v_use.can_thin AND is_worth_thinning(v_row.parent, v_row.name, v_row.day);
        IF v_thin THEN in_use := NULL; END IF;
      END IF;
      IF in_use IS NULL AND v_row.parent = 'messages' AND needs_identities(v_row.day) THEN
        statement := format('SELECT %I.keep_identities(%L)', current_schema(), v_row.day);
      ELSIF v_thin THEN
        statement := format('SELECT %I.thin_partition(%L)', current_schema(), v_row.name);
      ELSIF in_use IS NULL THEN
        statement := format(
          CASE
            WHEN v_row.attached THEN 'ALTER TABLE %1$I.%2$I DETACH PARTITION %1$I.%3$I CONCURRENTLY'
            ELSE 'DROP TABLE %1$I.%3$I'
          END,
          current_schema(), v_row.parent, v_row.name);
      END IF;
    END IF;
    RETURN NEXT;
  END LOOP;
END $$;

-- Why an expired partition stays, or null, and whether it can be thinned. The attempts of a day also stay as long as
-- its messages, which may still get attempts, and identities as long as the attempts.
CREATE OR REPLACE FUNCTION day_use(
  p_parent       text,
  p_partition    regclass,
  p_day          date,
  p_messages_for interval,
  OUT in_use     text,
  OUT can_thin   boolean)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_messages regclass;
  v_use      record;
BEGIN
  IF p_parent = 'message_identities' AND to_regclass('attempts_' || to_char(p_day, 'YYYYMMDD')) IS NOT NULL THEN
    in_use := 'attempts of that day are kept';
    can_thin := true;
    RETURN;
  END IF;
  SELECT * INTO in_use, can_thin FROM partition_use(p_partition, p_day);
  IF p_parent <> 'attempts' OR (in_use IS NOT NULL AND NOT can_thin) THEN RETURN; END IF;
  v_messages := (SELECT b.partition FROM partition_bounds('messages') b WHERE b.day = p_day);
  IF v_messages IS NULL THEN
    can_thin := false;
  ELSIF p_messages_for IS NULL
     OR (p_day + 1)::timestamp AT TIME ZONE 'UTC' > now() - p_messages_for
     OR kept_by_floor(p_day, 'messages') IS NOT NULL THEN
    in_use := coalesce(in_use, 'messages of that day are kept');
    can_thin := false;
  ELSE
    SELECT * INTO v_use FROM partition_use(v_messages, p_day);
    -- a replay may bring back any message that is still there
    in_use := coalesce(in_use, v_use.in_use, 'the messages of that day are removed first');
    can_thin := can_thin AND v_use.can_thin;
  END IF;
END $$;

-- Removes one partition that expired_partitions lists, for callers that do not own the tables, or does the next step
-- of thinning it. Returns the number of rows removed, or null if the partition is in use or not expired; 0 may mean
-- that thinning needs another call, in another transaction. Unlike DETACH CONCURRENTLY, this locks the whole table for
-- a moment; it gives up after 200 ms, so no session waits longer. If there are seals, attempts are removed only after
-- seal_expiry.
CREATE OR REPLACE FUNCTION remove_partition(p_partition text, p_messages_for interval, p_attempts_for interval)
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '200ms'
AS $$
DECLARE
  v_next record;
  v_rows bigint;
BEGIN
  LOOP
    SELECT * INTO v_next FROM expired_partitions(p_messages_for, p_attempts_for, p_partition);
    IF v_next.statement IS NULL THEN RETURN NULL; END IF;
    IF v_next.statement LIKE 'SELECT %.thin_partition(%' THEN RETURN thin_partition(p_partition); END IF;
    EXIT WHEN v_next.statement NOT LIKE 'SELECT %' AND v_next.statement NOT LIKE '% FINALIZE';
    EXECUTE v_next.statement;
  END LOOP;
  -- before the table is locked: the rows of an expired day do not change
  EXECUTE format('SELECT count(*) FROM %I', p_partition) INTO v_rows;
  IF p_partition LIKE '%\_kept' THEN v_rows := 0; END IF;
  IF v_next.statement LIKE 'ALTER %' THEN
    IF p_partition LIKE 'attempts%' AND NOT is_sealed_to_its_end(v_next.day) THEN
      RAISE EXCEPTION USING ERRCODE = '55P03',
        MESSAGE = format('%s is not sealed to its end', p_partition),
        HINT = 'Call seal_expiry first, until it returns true.';
    END IF;
    EXECUTE format('LOCK TABLE ONLY %I, %I IN ACCESS EXCLUSIVE MODE', left(p_partition, -9), p_partition);
    -- checked again under the lock: the partition may have come into use meanwhile
    IF (SELECT u.in_use IS NOT NULL FROM partition_use(quote_ident(p_partition)::regclass, v_next.day) u) THEN
      RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = format('%s is in use again', p_partition);
    END IF;
    EXECUTE regexp_replace(v_next.statement, ' CONCURRENTLY$', '');
  END IF;
  EXECUTE format('DROP TABLE %I', p_partition);
  RETURN v_rows;
END $$;

-- The next step towards thinning a partition that expired_partitions lists for it. Returns the number of rows that were
-- removed; 0: call again in another transaction. Like remove_partition, the last step locks the whole table for a
-- moment, and gives up after 200 ms. The parts of a step are in thinning.sql.
CREATE OR REPLACE FUNCTION thin_partition(p_partition text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC' SET lock_timeout = '200ms'
AS $$
DECLARE
  v_parent text := left(p_partition, -9);
  v_copy   text := p_partition || '_kept';
  v_day    date := to_date(right(p_partition, 8), 'YYYYMMDD');
  v_from   uuid := id_at(v_day::timestamp AT TIME ZONE 'UTC');
  v_to     uuid := id_at((v_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_since  timestamptz := 'infinity';
  v_thin   thinned_partitions;
  v_open   text[];
  v_rows   bigint;
  v_added  bigint;
BEGIN
  PERFORM assert_read_committed('thinning');
  PERFORM take_lock('partitions');
  IF v_parent = 'attempts' THEN v_since := sealed_until(v_day); END IF;
  SELECT * INTO v_thin FROM thinned_partitions t WHERE t.partition = p_partition;
  IF to_regclass(quote_ident(v_copy)) IS NULL THEN
    PERFORM make_partition_table(v_parent, v_copy);
    -- with it, attaching the copy need not read it
    EXECUTE format(
      'ALTER TABLE %1$I ADD CONSTRAINT of_its_day CHECK (%2$I IS NOT NULL AND %2$I >= %3$L AND %2$I < %4$L)',
      v_copy, CASE v_parent WHEN 'messages' THEN 'id' ELSE 'message_id' END, v_from, v_to);
    v_thin.copied_by := NULL;
  END IF;
  v_added := copy_kept_rows(v_parent, p_partition, v_from, v_to, v_since);
  IF v_added > 0 OR v_thin.copied_by IS NULL OR v_thin.copied_by = pg_current_xact_id() THEN
    DELETE FROM thinned_partitions t WHERE to_regclass(quote_ident(t.partition)) IS NULL;
    INSERT INTO thinned_partitions AS t (partition, day, copied_by)
    VALUES (p_partition, v_day, pg_current_xact_id())
    ON CONFLICT (partition) DO UPDATE SET copied_by = excluded.copied_by, waits_for = NULL;
    EXECUTE format('ANALYZE %I', v_copy);
    RETURN 0;
  END IF;
  -- a snapshot that is older than the copy would miss its rows
  IF v_thin.waits_for IS NULL THEN
    v_open := open_transactions();
    UPDATE thinned_partitions t SET waits_for = v_open WHERE t.partition = p_partition;
    IF v_open <> '{}' THEN RETURN 0; END IF;
  ELSIF EXISTS (
          SELECT FROM pg_locks l
           WHERE l.locktype = 'virtualxid'
             AND l.granted
             AND l.virtualtransaction = ANY (v_thin.waits_for)) THEN
    RAISE EXCEPTION USING ERRCODE = '55P03',
      MESSAGE = format('%s is not thinned yet: transactions from before its copy are open', p_partition);
  END IF;
  EXECUTE format('SELECT count(*) FROM %I', p_partition) INTO v_rows;
  IF v_parent = 'attempts' THEN PERFORM seal_thinning(v_day, v_copy, v_since); END IF;
  RETURN replace_by_copy(v_parent, p_partition, v_day, v_from, v_to, v_since, v_rows);
END $$;
