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

-- Why a partition cannot be removed yet, or null. First it checks that no open transaction has written to the
-- partition, because the second check would not see such rows. New writers do not appear, because ids of a past day are
-- no longer created. Then it checks that nothing refers to the day's messages.
CREATE OR REPLACE FUNCTION partition_in_use(p_partition regclass, p_day date) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_from uuid := id_at(p_day::timestamp AT TIME ZONE 'UTC');
  v_to   uuid := id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_name text;
BEGIN
  IF EXISTS (
       SELECT FROM pg_locks l
        WHERE l.locktype = 'relation'
          AND l.relation = p_partition
          AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND l.mode IN ('RowExclusiveLock', 'RowShareLock')) THEN
    RETURN 'an open transaction has written into it';
  END IF;
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

-- Lists the expired partitions with the statements that remove them. No function can run these, because DETACH
-- CONCURRENTLY must be a statement of its own. In psql: SELECT statement FROM ... \gexec. An interrupted detach is
-- finished, and a partition that was detached but not dropped is dropped.
CREATE OR REPLACE FUNCTION expired_partitions(p_messages_for interval, p_attempts_for interval)
RETURNS TABLE (partition text, day date, in_use text, statement text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
#variable_conflict use_column
BEGIN
  -- null keeps all partitions
  IF p_messages_for IS NOT NULL THEN
    PERFORM checked_interval('p_messages_for', p_messages_for, '1 day', '100 years');
  END IF;
  IF p_attempts_for IS NOT NULL THEN
    PERFORM checked_interval('p_attempts_for', p_attempts_for, '1 day', '100 years');
  END IF;
  SELECT CASE WHEN p_messages_for IS NOT NULL THEN greatest(p_messages_for, f.messages_for) END,
         CASE WHEN p_attempts_for IS NOT NULL THEN greatest(p_attempts_for, f.attempts_for) END
    INTO p_messages_for, p_attempts_for
    FROM retention_floor f;
  RETURN QUERY
    SELECT c.relname::text, b.day, u.reason,
           CASE WHEN u.reason IS NULL THEN
             format(
               CASE
                 WHEN b.detaching THEN 'ALTER TABLE %1$I.%2$I DETACH PARTITION %1$I.%3$I FINALIZE'
                 ELSE 'ALTER TABLE %1$I.%2$I DETACH PARTITION %1$I.%3$I CONCURRENTLY'
               END,
               current_schema(), t.name, c.relname)
           END
      FROM (VALUES ('messages', p_messages_for), ('attempts', p_attempts_for)) t(name, kept_for)
     CROSS JOIN LATERAL partition_bounds(t.name::regclass) b
      JOIN pg_class c ON c.oid = b.partition
      -- attempts of a day are kept while its messages are: a message may still get attempts
      LEFT JOIN LATERAL (
             SELECT m.partition
               FROM partition_bounds('messages') m
              WHERE t.name = 'attempts'
                AND m.day = b.day) m ON true
     CROSS JOIN LATERAL (
            SELECT CASE
              WHEN b.detaching THEN NULL
              WHEN m.partition IS NULL THEN partition_in_use(b.partition, b.day)
              WHEN (p_messages_for IS NOT NULL
                    AND ((b.day + 1)::timestamp AT TIME ZONE 'UTC') <= now() - p_messages_for)
              THEN coalesce(partition_in_use(b.partition, b.day), partition_in_use(m.partition, b.day))
              ELSE coalesce(partition_in_use(b.partition, b.day), 'messages of that day are kept')
            END AS reason) u
     WHERE b.detaching
        OR ((b.day + 1)::timestamp AT TIME ZONE 'UTC') <= now() - t.kept_for
     ORDER BY b.day, t.name DESC;
  RETURN QUERY
    SELECT c.relname::text, to_date(right(c.relname, 8), 'YYYYMMDD'), NULL::text,
           format('DROP TABLE %I.%I', current_schema(), c.relname)
      FROM pg_class c
     WHERE c.relnamespace = quote_ident(current_schema())::regnamespace
       AND c.relkind = 'r'
       AND NOT c.relispartition
       AND c.relname ~ '^(messages|attempts)_[0-9]{8}$'
     ORDER BY 1;
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
  v_statement text := (
    SELECT e.statement
      FROM expired_partitions(p_messages_for, p_attempts_for) e
     WHERE e.partition = p_partition);
  v_rows      bigint;
BEGIN
  IF v_statement IS NULL THEN RETURN NULL; END IF;
  IF v_statement LIKE 'ALTER %' THEN
    IF p_partition LIKE 'attempts%' AND NOT is_sealed_to_its_end(to_date(right(p_partition, 8), 'YYYYMMDD')) THEN
      RAISE EXCEPTION USING ERRCODE = '55P03',
        MESSAGE = format('%s is not sealed to its end', p_partition),
        HINT = 'Call seal_expiry first, until it returns true.';
    END IF;
    EXECUTE regexp_replace(v_statement, ' CONCURRENTLY$', '');
    -- checked again under the lock: the partition may have come into use meanwhile
    IF partition_in_use(p_partition::regclass, to_date(right(p_partition, 8), 'YYYYMMDD')) IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = format('%s is in use again', p_partition);
    END IF;
  END IF;
  EXECUTE format('SELECT count(*) FROM %I', p_partition) INTO v_rows;
  EXECUTE format('DROP TABLE %I', p_partition);
  RETURN v_rows;
END $$;
