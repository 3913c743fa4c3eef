-- Partitions are days. They are made ahead by migrate, by every relay and by every drain, and there is
-- no default partition: it would block both the making of partitions and DETACH CONCURRENTLY.
--
-- Making one: CREATE LIKE, then ATTACH, which takes a lock that producers do not feel; CREATE ...
-- PARTITION OF would queue an ACCESS EXCLUSIVE lock in front of them.

CREATE OR REPLACE FUNCTION partition_bounds(p_table regclass)
RETURNS TABLE (partition regclass, day date, detaching boolean)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT i.inhrelid::regclass, to_date(right(c.relname, 8), 'YYYYMMDD'), i.inhdetachpending
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
   WHERE i.inhparent = p_table AND c.relname ~ '_[0-9]{8}$'
$$;

-- Makes the partitions from p_from to p_days ahead that are missing; returns how many. Safe to call any
-- number of times, by any number of relays: the lock is taken only if there is something to do.
CREATE OR REPLACE FUNCTION make_partitions(p_days int DEFAULT 60, p_from date DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' SET lock_timeout = '2s' AS $$
DECLARE
  v_first date := coalesce(p_from, current_date - 1);
  v_last  date := current_date + p_days;
  v_row   record;
  v_count int := 0;
  v_names jsonb := role_names();
BEGIN
  PERFORM checked_number('p_days', p_days, -3650, 3650);
  FOR v_row IN
    -- read once for each table, not once for each day: mostly nothing is missing, and every relay asks when it starts
    WITH made AS MATERIALIZED (
      SELECT t.name, b.day FROM (VALUES ('messages'), ('attempts')) t(name), partition_bounds(t.name::regclass) b)
    SELECT t.name AS parent, t.name || to_char(d, '_YYYYMMDD') AS partition, d::date AS day
      FROM generate_series(v_first::timestamp, v_last, '1 day') d, (VALUES ('messages'), ('attempts')) t(name)
     WHERE NOT EXISTS (SELECT FROM made m WHERE m.name = t.name AND m.day = d::date)
     ORDER BY d, t.name
  LOOP
    IF v_count = 0 THEN
      PERFORM pg_advisory_xact_lock(hashtextextended('waybill partitions ' || current_schema(), 0));
    END IF;
    CONTINUE WHEN EXISTS (SELECT FROM partition_bounds(v_row.parent::regclass) b WHERE b.day = v_row.day);
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', v_row.partition, v_row.parent);
    -- its own: a statement that names the partition meets neither the policies nor the triggers of the whole
    EXECUTE coalesce((SELECT string_agg(m, '; ') FROM missing_protection(v_names, v_row.partition::regclass) m), '');
    EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', v_row.parent, v_row.partition,
                   id_at(v_row.day::timestamp AT TIME ZONE 'UTC'), id_at((v_row.day + 1)::timestamp AT TIME ZONE 'UTC'));
    -- an empty table that was never analyzed counts as ten pages: with sixty such days every look at the whole
    -- seems expensive enough to be compiled, which takes many seconds
    EXECUTE format('ANALYZE %I', v_row.partition);
    v_count := v_count + 1;
  END LOOP;
  RETURN v_count;
END $$;

-- For how many days from today messages can be stored.
CREATE OR REPLACE FUNCTION partition_days_ahead() RETURNS int
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
  SELECT coalesce(min(last - current_date), -1)::int
    FROM (VALUES ('messages'::regclass), ('attempts'::regclass)) t(parent)
    CROSS JOIN LATERAL (SELECT max(day) AS last FROM partition_bounds(t.parent) WHERE NOT detaching) b
$$;

-- What keeps a day from being removed, or null. Looked at in this order: first that no transaction is
-- still writing into the partition (its rows would be invisible to the second look; nobody begins to,
-- because ids of a past day are no longer made), then that nothing points into the range.
CREATE OR REPLACE FUNCTION partition_in_use(p_partition regclass, p_day date) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
DECLARE
  v_from uuid := id_at(p_day::timestamp AT TIME ZONE 'UTC');
  v_to   uuid := id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_name text;
BEGIN
  IF EXISTS (SELECT FROM pg_locks l WHERE l.locktype = 'relation' AND l.relation = p_partition
                AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
                AND l.mode IN ('RowExclusiveLock', 'RowShareLock')) THEN
    RETURN 'an open transaction has written into it';
  END IF;
  IF EXISTS (SELECT FROM deliveries d WHERE d.message_id >= v_from AND d.message_id < v_to) THEN
    RETURN 'deliveries are waiting';
  END IF;
  IF EXISTS (SELECT FROM leases l, unnest(l.message_ids) i(id) WHERE i.id >= v_from AND i.id < v_to) THEN
    RETURN 'deliveries are in flight';
  END IF;
  IF EXISTS (SELECT FROM dead_letters d WHERE d.message_id >= v_from AND d.message_id < v_to) THEN
    RETURN 'dead letters wait for a person';
  END IF;
  v_name := cursor_ahead_of(v_from, v_to);
  IF v_name IS NOT NULL THEN
    RETURN format('the cursor %s has not read it yet', v_name);
  END IF;
  RETURN NULL;
END $$;

-- The expired partitions with the statements that remove them, which no function can run: DETACH
-- CONCURRENTLY needs to be a statement of its own. In psql: SELECT statement FROM ... \gexec.
-- A detach that was cut short is finished, and a partition that was detached and not dropped is dropped.
CREATE OR REPLACE FUNCTION expired_partitions(p_messages_for interval, p_attempts_for interval)
RETURNS TABLE (partition text, day date, in_use text, statement text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET timezone = 'UTC' AS $$
#variable_conflict use_column
BEGIN
  -- null keeps them for ever
  IF p_messages_for IS NOT NULL THEN PERFORM checked_interval('p_messages_for', p_messages_for, '1 day', '100 years'); END IF;
  IF p_attempts_for IS NOT NULL THEN PERFORM checked_interval('p_attempts_for', p_attempts_for, '1 day', '100 years'); END IF;
  SELECT CASE WHEN p_messages_for IS NOT NULL THEN greatest(p_messages_for, f.messages_for) END,
         CASE WHEN p_attempts_for IS NOT NULL THEN greatest(p_attempts_for, f.attempts_for) END
    INTO p_messages_for, p_attempts_for FROM retention_floor f;
  RETURN QUERY
    SELECT c.relname::text, b.day, u.reason,
           CASE WHEN u.reason IS NULL THEN format(
             CASE WHEN b.detaching THEN 'ALTER TABLE %1$I.%2$I DETACH PARTITION %1$I.%3$I FINALIZE'
                  ELSE 'ALTER TABLE %1$I.%2$I DETACH PARTITION %1$I.%3$I CONCURRENTLY' END, current_schema(), t.name, c.relname) END
      FROM (VALUES ('messages', p_messages_for), ('attempts', p_attempts_for)) t(name, kept_for)
      CROSS JOIN LATERAL partition_bounds(t.name::regclass) b
      JOIN pg_class c ON c.oid = b.partition
      -- whatever may still happen to a message of that day needs a place to be recorded
      LEFT JOIN LATERAL (SELECT m.partition FROM partition_bounds('messages') m WHERE t.name = 'attempts' AND m.day = b.day) m ON true
      CROSS JOIN LATERAL (SELECT CASE
        WHEN b.detaching THEN NULL
        WHEN m.partition IS NULL THEN partition_in_use(b.partition, b.day)
        WHEN (p_messages_for IS NOT NULL AND ((b.day + 1)::timestamp AT TIME ZONE 'UTC') <= now() - p_messages_for)
          THEN coalesce(partition_in_use(b.partition, b.day), partition_in_use(m.partition, b.day))
        ELSE coalesce(partition_in_use(b.partition, b.day), 'messages of that day are kept') END AS reason) u
     WHERE b.detaching OR ((b.day + 1)::timestamp AT TIME ZONE 'UTC') <= now() - t.kept_for
     ORDER BY b.day, t.name DESC;
  RETURN QUERY
    SELECT c.relname::text, to_date(right(c.relname, 8), 'YYYYMMDD'), NULL::text,
           format('DROP TABLE %I.%I', current_schema(), c.relname)
      FROM pg_class c
     WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r' AND NOT c.relispartition
       AND c.relname ~ '^(messages|attempts)_[0-9]{8}$'
     ORDER BY 1;
END $$;

-- Removes one partition that expired_partitions names, for those who may call this and own no table; returns how many rows
-- went with it, or null if something points into it, or if it is not expired. An owner's DETACH CONCURRENTLY makes nobody
-- wait; this one needs the whole table for a moment, and gives up after a fifth of a second so that nobody waits longer.
-- A day of attempts goes only after seal_expiry, if there are seals.
CREATE OR REPLACE FUNCTION remove_partition(p_partition text, p_messages_for interval, p_attempts_for interval) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
  v_statement text := (SELECT e.statement FROM expired_partitions(p_messages_for, p_attempts_for) e WHERE e.partition = p_partition);
  v_rows      bigint;
BEGIN
  IF v_statement IS NULL THEN RETURN NULL; END IF;
  IF v_statement LIKE 'ALTER %' THEN
    IF p_partition LIKE 'attempts%' AND NOT is_sealed_to_its_end(to_date(right(p_partition, 8), 'YYYYMMDD')) THEN
      RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = format('%s is not sealed to its end', p_partition), HINT = 'Call seal_expiry first, until it returns true.';
    END IF;
    EXECUTE regexp_replace(v_statement, ' CONCURRENTLY$', '');
    -- with the lock in hand: something may have begun to point into it while it was waited for
    IF partition_in_use(p_partition::regclass, to_date(right(p_partition, 8), 'YYYYMMDD')) IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = format('%s is in use again', p_partition);
    END IF;
  END IF;
  EXECUTE format('SELECT count(*) FROM %I', p_partition) INTO v_rows;
  EXECUTE format('DROP TABLE %I', p_partition);
  RETURN v_rows;
END $$;
