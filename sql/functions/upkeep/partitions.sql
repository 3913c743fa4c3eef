-- Partitions: one per day, for messages and attempts. Migrations, relays and drains create them ahead of time. There is
-- no default partition, because it would block both creating partitions and DETACH CONCURRENTLY.
--
-- A partition is made by CREATE TABLE LIKE and ATTACH, whose lock does not block producers. CREATE TABLE PARTITION OF
-- would queue an ACCESS EXCLUSIVE lock in front of them.

-- The partitions of a table with their days.
CREATE OR REPLACE FUNCTION partition_bounds(p_table regclass)
RETURNS TABLE (partition regclass, day date, detaching boolean)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT i.inhrelid::regclass, to_date(right(c.relname, 8), 'YYYYMMDD'), i.inhdetachpending
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
   WHERE i.inhparent = p_table
     AND c.relname ~ '_[0-9]{8}$'
$$;

-- Creates the missing partitions from p_from to p_days ahead; returns how many. Any number of relays can call it at any
-- time: it takes the lock only if a partition is missing.
CREATE OR REPLACE FUNCTION make_partitions(p_days int DEFAULT 60, p_from date DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET timezone = 'UTC' SET lock_timeout = '2s'
AS $$
DECLARE
  v_first date := coalesce(p_from, current_date - 1);
  v_last  date := current_date + p_days;
  v_row   record;
  v_count int := 0;
  v_names jsonb := role_names();
BEGIN
  PERFORM checked_number('p_days', p_days, -3650, 3650);
  FOR v_row IN
    -- reads the catalog once per table instead of once per day: usually nothing is missing, and every relay asks at
    -- start
    WITH made AS MATERIALIZED (
      SELECT t.name, b.day
        FROM (VALUES ('messages'), ('attempts')) t(name), partition_bounds(t.name::regclass) b)
    SELECT t.name AS parent, t.name || to_char(d, '_YYYYMMDD') AS partition, d::date AS day
      FROM generate_series(v_first::timestamp, v_last, '1 day') d, (VALUES ('messages'), ('attempts')) t(name)
     WHERE NOT EXISTS (SELECT FROM made m WHERE m.name = t.name AND m.day = d::date)
     ORDER BY d, t.name
  LOOP
    IF v_count = 0 THEN PERFORM take_lock('partitions'); END IF;
    CONTINUE WHEN EXISTS (
      SELECT FROM partition_bounds(v_row.parent::regclass) b WHERE b.day = v_row.day);
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', v_row.partition, v_row.parent);
    -- own protection: a statement that names the partition does not meet the policies and triggers of its parent
    EXECUTE coalesce((SELECT string_agg(m, '; ') FROM missing_protection(v_names, v_row.partition::regclass) m), '');
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', v_row.parent, v_row.partition,
                   id_at(v_row.day::timestamp AT TIME ZONE 'UTC'),
                   id_at((v_row.day + 1)::timestamp AT TIME ZONE 'UTC'));
    -- The planner assumes ten pages for an empty table that was never analyzed. With sixty of them, queries over all
    -- partitions would seem expensive enough for JIT compilation, which takes many seconds.
    EXECUTE format('ANALYZE %I', v_row.partition);
    v_count := v_count + 1;
  END LOOP;
  RETURN v_count;
END $$;

-- The number of days from today for which partitions exist.
CREATE OR REPLACE FUNCTION partition_days_ahead() RETURNS int
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
  SELECT coalesce(min(last - current_date), -1)::int
    FROM (VALUES ('messages'::regclass), ('attempts'::regclass)) t(parent)
   CROSS JOIN LATERAL (
          SELECT max(day) AS last
            FROM partition_bounds(t.parent)
           WHERE NOT detaching) b
$$;

-- Whether an open transaction has written to a partition. No other transaction starts to: ids of a past day are no
-- longer created.
CREATE OR REPLACE FUNCTION is_written(p_partition regclass) RETURNS boolean
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM pg_locks l
     WHERE l.locktype = 'relation'
       AND l.relation = p_partition
       AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
       AND l.mode IN ('RowExclusiveLock', 'RowShareLock'))
$$;

-- Why a partition cannot be removed yet, or null. First it checks that no open transaction has written to the
-- partition, because the second check would not see such rows. Then it checks that nothing refers to the day's
-- messages.
CREATE OR REPLACE FUNCTION partition_in_use(p_partition regclass, p_day date) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_from uuid := id_at(p_day::timestamp AT TIME ZONE 'UTC');
  v_to   uuid := id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_name text;
BEGIN
  IF is_written(p_partition) THEN RETURN 'an open transaction has written into it'; END IF;
  IF EXISTS (
       SELECT FROM deliveries d
        WHERE d.message_id >= v_from
          AND d.message_id < v_to) THEN
    RETURN 'deliveries are waiting';
  END IF;
  IF EXISTS (
       SELECT FROM leases l, unnest(l.message_ids) i(id)
        WHERE i.id >= v_from
          AND i.id < v_to) THEN
    RETURN 'deliveries are in flight';
  END IF;
  IF EXISTS (
       SELECT FROM dead_letters d
        WHERE d.message_id >= v_from
          AND d.message_id < v_to) THEN
    RETURN 'dead letters wait for an operator';
  END IF;
  -- one index look-up, however many messages there are
  IF EXISTS (
       SELECT FROM unrouted_messages u
        WHERE u.message_id >= v_from
          AND u.message_id < v_to) THEN
    RETURN 'messages without a route wait for one';
  END IF;
  v_name := cursor_ahead_of(v_from, v_to);
  IF v_name IS NOT NULL THEN
    RETURN format(
      CASE
        WHEN v_name LIKE '%~%'
        THEN 'unread messages of the cursor %s, which does not want them any more, are not checked yet'
        ELSE 'the cursor %s has not read it yet'
      END,
      remainder_of(v_name));
  END IF;
  RETURN NULL;
END $$;

-- Lists the expired partitions, each with the next statement towards its removal, or with the reason why it stays. The
-- statements are: record the day's topics (record_day), keep the identities of its messages (keep_identities), detach
-- it, drop it. No function can run DETACH CONCURRENTLY,
-- which must be a statement of its own. In psql: SELECT statement FROM ... \gexec, until no statement is left. An
-- interrupted detach is finished, and a partition that was detached but not dropped is dropped. A retention floor keeps
-- a day, attached or not, whatever the arguments are. p_only: list this partition only.
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
  v_row record;
BEGIN
  -- null keeps all partitions
  IF p_messages_for IS NOT NULL THEN
    PERFORM checked_interval('p_messages_for', p_messages_for, '1 day', '100 years');
  END IF;
  IF p_attempts_for IS NOT NULL THEN
    PERFORM checked_interval('p_attempts_for', p_attempts_for, '1 day', '100 years');
  END IF;
  FOR v_row IN
    SELECT c.oid, c.relname::text AS name, x.parent, x.day, b.detaching, b.day IS NOT NULL AS attached
      FROM pg_class c
     CROSS JOIN LATERAL (
            SELECT left(c.relname, -9) AS parent, to_date(right(c.relname, 8), 'YYYYMMDD') AS day) x
      LEFT JOIN (SELECT * FROM partition_bounds('messages')
                 UNION ALL
                 SELECT * FROM partition_bounds('attempts')
                 UNION ALL
                 SELECT * FROM partition_bounds('message_identities')) b
        ON b.partition = c.oid
     WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
       AND c.relkind = 'r'
       AND c.relname ~ '^(messages|attempts|message_identities)_[0-9]{8}$'
       AND (p_only IS NULL OR c.relname = p_only)
       AND (b.detaching
            OR b.day IS NULL
            OR CASE x.parent
                 WHEN 'messages' THEN (x.day + 1)::timestamp AT TIME ZONE 'UTC' <= now() - p_messages_for
                 WHEN 'attempts' THEN (x.day + 1)::timestamp AT TIME ZONE 'UTC' <= now() - p_attempts_for
                 -- identities are kept with the attempts of their day
                 ELSE to_regclass('attempts_' || to_char(x.day, 'YYYYMMDD')) IS NULL
               END)
     ORDER BY x.day, x.parent DESC
  LOOP
    partition := v_row.name;
    day := v_row.day;
    in_use := NULL;
    statement := NULL;
    IF v_row.detaching THEN
      statement := format('ALTER TABLE %1$I.%2$I DETACH PARTITION %1$I.%3$I FINALIZE',
                          current_schema(), v_row.parent, v_row.name);
    ELSIF v_row.parent = 'messages' AND needs_record(v_row.oid, v_row.day) THEN
      IF is_written(v_row.oid) THEN
        in_use := 'an open transaction has written into it';
      ELSE
        statement := format('SELECT %I.record_day(%L)', current_schema(), v_row.day);
      END IF;
    ELSE
      in_use := coalesce(
        CASE WHEN v_row.parent <> 'message_identities' THEN kept_by_floor(v_row.day, v_row.parent) END,
        CASE WHEN v_row.attached THEN
          coalesce(
            partition_in_use(v_row.oid, v_row.day),
            CASE WHEN v_row.parent = 'attempts' THEN messages_needed(v_row.day, p_messages_for) END)
        END);
      IF in_use IS NULL AND v_row.parent = 'messages' AND needs_identities(v_row.day) THEN
        statement := format('SELECT %I.keep_identities(%L)', current_schema(), v_row.day);
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

-- Why the attempts of a day must stay for the sake of its messages, or null: a message may still get attempts.
CREATE OR REPLACE FUNCTION messages_needed(p_day date, p_messages_for interval) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_partition regclass := (SELECT b.partition FROM partition_bounds('messages') b WHERE b.day = p_day);
BEGIN
  IF v_partition IS NULL THEN RETURN NULL; END IF;
  IF p_messages_for IS NULL
     OR (p_day + 1)::timestamp AT TIME ZONE 'UTC' > now() - p_messages_for
     OR kept_by_floor(p_day, 'messages') IS NOT NULL THEN
    RETURN 'messages of that day are kept';
  END IF;
  RETURN partition_in_use(v_partition, p_day);
END $$;

-- Removes one partition that expired_partitions lists, for callers that do not own the tables. Returns the number of
-- rows removed, or null if the partition is in use or not expired. Unlike DETACH CONCURRENTLY, this locks the whole
-- table for a moment; it gives up after 200 ms, so no session waits longer. If there are seals, a day of attempts is
-- removed only after seal_expiry.
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
    EXIT WHEN v_next.statement NOT LIKE 'SELECT %' AND v_next.statement NOT LIKE '% FINALIZE';
    EXECUTE v_next.statement;
  END LOOP;
  -- before the table is locked: the rows of an expired day do not change
  EXECUTE format('SELECT count(*) FROM %I', p_partition) INTO v_rows;
  IF v_next.statement LIKE 'ALTER %' THEN
    IF p_partition LIKE 'attempts%' AND NOT is_sealed_to_its_end(v_next.day) THEN
      RAISE EXCEPTION USING ERRCODE = '55P03',
        MESSAGE = format('%s is not sealed to its end', p_partition),
        HINT = 'Call seal_expiry first, until it returns true.';
    END IF;
    EXECUTE regexp_replace(v_next.statement, ' CONCURRENTLY$', '');
    -- checked again under the lock: the partition may have come into use meanwhile
    IF partition_in_use(p_partition::regclass, v_next.day) IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = format('%s is in use again', p_partition);
    END IF;
  END IF;
  EXECUTE format('DROP TABLE %I', p_partition);
  RETURN v_rows;
END $$;
