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

-- Creates the table of a partition, with indexes and its own protection: a statement that names the partition does not
-- meet the policies and triggers of its parent. Its owner is that of the schema, also if a superuser or a member of the
-- owner runs the statements of expired_partitions.
CREATE OR REPLACE FUNCTION make_partition_table(p_parent text, p_name text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', p_name, p_parent);
  IF current_user <> role_names() ->> 'owner' THEN
    EXECUTE format('ALTER TABLE %I OWNER TO %I', p_name, role_names() ->> 'owner');
  END IF;
  EXECUTE coalesce(
    (SELECT string_agg(m, '; ') FROM missing_protection(role_names(), quote_ident(p_name)::regclass) m), '');
END $$;

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
    PERFORM make_partition_table(v_row.parent, v_row.partition);
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

-- Why a partition cannot be removed yet, or null; and whether it can be thinned out instead, because only some of its
-- messages are needed. First it checks that no open transaction has written to the partition, because the second check
-- would not see such rows. Then it checks that nothing refers to the day's messages: in one statement and thus one
-- snapshot, because a retry moves a message from one table to another, and a cursor may park one as a dead letter.
CREATE OR REPLACE FUNCTION partition_use(p_partition regclass, p_day date, OUT in_use text, OUT can_thin boolean)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_from   uuid := id_at(p_day::timestamp AT TIME ZONE 'UTC');
  v_to     uuid := id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_reader text;
BEGIN
  can_thin := false;
  IF is_written(p_partition) THEN
    in_use := 'an open transaction has written into it';
    RETURN;
  END IF;
  SELECT CASE
           WHEN EXISTS (
                  SELECT FROM deliveries d
                   WHERE d.message_id >= v_from
                     AND d.message_id < v_to) THEN 'deliveries are waiting'
           WHEN EXISTS (
                  SELECT FROM leases l, unnest(l.message_ids) i(id)
                   WHERE i.id >= v_from
                     AND i.id < v_to) THEN 'deliveries are in flight'
           WHEN EXISTS (
                  SELECT FROM dead_letters d
                   WHERE d.message_id >= v_from
                     AND d.message_id < v_to) THEN 'dead letters wait for an operator'
           -- one index look-up, however many messages there are
           WHEN EXISTS (
                  SELECT FROM unrouted_messages u
                   WHERE u.message_id >= v_from
                     AND u.message_id < v_to) THEN 'messages without a route wait for one'
         END,
         cursor_behind(v_from, v_to)
    INTO in_use, v_reader;
  can_thin := in_use IS NOT NULL AND v_reader IS NULL;
  in_use := coalesce(in_use, format(
    CASE
      WHEN v_reader LIKE '%~%'
      THEN 'unread messages of the cursor %s, which does not want them any more, are not checked yet'
      WHEN v_reader IS NOT NULL
      THEN 'the cursor %s has not read it yet'
    END,
    remainder_of(v_reader)));
END $$;
