-- Retention floors: the shortest retention of each kind of data, set by the owner in retention_floors. Every function
-- that removes data asks here, so no configuration, role or command can go below a floor.

-- The time before which data with this retention has expired; null has no floor.
CREATE OR REPLACE FUNCTION expired_before(p_days float8) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
  SELECT CASE
    WHEN p_days IS NULL THEN 'infinity'::timestamptz
    WHEN p_days = 'infinity' THEN '-infinity'::timestamptz
    ELSE now() - p_days * interval '1 day'
  END
$$;

-- A retention in words: for 400 days, for ever.
CREATE OR REPLACE FUNCTION shown_days(p_days float8) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE p_days WHEN 'infinity' THEN 'for ever' WHEN 1 THEN 'for 1 day' ELSE format('for %s days', p_days) END
$$;

-- The floors that protect a day of messages or attempts: those of its topics, as record_day has recorded them. All
-- floors protect a day without a record.
CREATE OR REPLACE FUNCTION floors_of_day(p_day date) RETURNS SETOF retention_floors
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT f.*
    FROM retention_floors f
   WHERE (f.topic = '*' AND f.namespace IS NULL)
      OR NOT EXISTS (SELECT FROM message_days d WHERE d.day = p_day)
      OR EXISTS (
           SELECT FROM message_days d
            CROSS JOIN LATERAL unnest(d.topics, d.namespaces) k(topic, namespace)
            WHERE d.day = p_day
              AND route_matches(f.topic, f.namespace, NULL, k.topic, k.namespace, NULL))
$$;

-- Which floor still protects a day of messages or attempts, as a sentence; null if none does.
CREATE OR REPLACE FUNCTION kept_by_floor(p_day date, p_table text) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
  SELECT format('the retention floor of %s%s keeps %s %s', f.topic, ' in ' || f.namespace, p_table, shown_days(x.days))
    FROM floors_of_day(p_day) f
   CROSS JOIN LATERAL (
          SELECT CASE p_table WHEN 'messages' THEN f.messages_days ELSE f.attempts_days END AS days) x
   WHERE (p_day + 1)::timestamp AT TIME ZONE 'UTC' > expired_before(x.days)
   ORDER BY x.days DESC
   LIMIT 1
$$;

-- Whether retention has to know the topics of a day of messages before it removes any: only if a floor concerns some
-- topics or namespaces, and not all. A day that was thinned without a record stays without one: what is left does not
-- tell which topics it had.
CREATE OR REPLACE FUNCTION needs_record(p_partition oid, p_day date) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM retention_floors f WHERE f.topic <> '*' OR f.namespace IS NOT NULL)
     AND NOT EXISTS (SELECT FROM message_days d WHERE d.day = p_day AND d.partition = p_partition)
     AND (EXISTS (SELECT FROM message_days d WHERE d.day = p_day) OR NOT is_thinned('messages', p_day))
$$;

-- Whether retention has thinned a partition.
CREATE OR REPLACE FUNCTION is_thinned(p_parent text, p_day date) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM thinned_partitions t
     WHERE t.partition = p_parent || to_char(p_day, '_YYYYMMDD')
       AND t.thinned_at IS NOT NULL)
$$;

-- Records in message_days which topics a past day of messages holds; returns how many. It reads the whole day once, and
-- is to be called when no transaction writes to that day any more. Topics that were recorded before stay recorded.
CREATE OR REPLACE FUNCTION record_day(p_day date) RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_table text := 'messages_' || to_char(p_day, 'YYYYMMDD');
  v_day   message_days;
BEGIN
  EXECUTE format(
    'SELECT $1, $2, coalesce(array_agg(k.topic), ''{}''), coalesce(array_agg(k.namespace), ''{}'')
       FROM (SELECT m.topic, m.namespace FROM %I m GROUP BY m.topic, m.namespace
             UNION
             SELECT u.* FROM message_days d, unnest(d.topics, d.namespaces) u WHERE d.day = $1) k', v_table)
    INTO v_day
    USING p_day, v_table::regclass::oid;
  INSERT INTO message_days
  SELECT v_day.*
  ON CONFLICT (day) DO UPDATE
     SET partition = excluded.partition, topics = excluded.topics, namespaces = excluded.namespaces;
  -- days of which nothing is left
  DELETE FROM message_days d
   WHERE to_regclass('messages_' || to_char(d.day, 'YYYYMMDD')) IS NULL
     AND to_regclass('attempts_' || to_char(d.day, 'YYYYMMDD')) IS NULL;
  RETURN cardinality(v_day.topics);
END $$;

-- The settings of a configured retention, in days, that a floor limits: the floor is longer. null: for ever.
CREATE OR REPLACE FUNCTION limited_settings(
  p_messages_days     int,
  p_attempts_days     int,
  p_dead_letters_days int,
  p_dedupe_keys_days  int,
  p_keys_days         int)
RETURNS TABLE (setting text, configured_days int, topic text, namespace text, kept text)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT x.setting, x.configured, f.topic, f.namespace, shown_days(x.floor)
    FROM retention_floors f
   CROSS JOIN LATERAL (VALUES
           ('messagesDays', p_messages_days, f.messages_days),
           ('attemptsDays', p_attempts_days, f.attempts_days),
           ('deadLettersDays', p_dead_letters_days, f.dead_letters_days),
           ('dedupeKeysDays', p_dedupe_keys_days, f.dedupe_keys_days),
           ('keysDays', p_keys_days, f.keys_days)) x(setting, configured, floor)
   WHERE x.floor > x.configured
   ORDER BY x.setting, f.topic, f.namespace
$$;
