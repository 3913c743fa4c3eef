-- Filling the reports: relays count messages and attempts in the order of time, a piece at a time. They count up to a
-- time before which no row can be added any more (closed_rows.sql). A piece and the progress commit together, so each
-- row is counted exactly once. A slice behind the progress never changes again, unless the clock is set back
-- (report_progress_of).

-- The most names of a slice: in slices of 10 minutes the first ones, in longer slices the largest. All others are
-- counted together, so the report of one of them can be too low.
CREATE OR REPLACE FUNCTION most_report_names(p_step int) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE p_step WHEN 600 THEN 2000 ELSE 1000 END
$$;

-- The bucket of a time to delivery. Bucket i begins at 2^(i/2) ms and ends where the next one begins; the first one
-- begins at 0, the last one (55) begins at about two days and has no end. In a histogram, bucket i is the number of
-- twelve digits before the last 12 i digits. Keep it in step with src/features/reports/percentiles.ts.
CREATE OR REPLACE FUNCTION delivery_bucket(p_time interval) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  -- in binary: the logarithm of a numeric takes a hundred times as long
  SELECT least(floor(2 / ln(2::float8) * ln(greatest(extract(epoch FROM p_time)::float8 * 1000, 1)))::int, 55)
$$;

-- Adds counts to a slice of 10 minutes. Names that the slice does not have yet are added up to the limit, the largest
-- first; the rest is counted without a name.
CREATE OR REPLACE FUNCTION add_report_counts(
  p_slice     timestamptz,
  p_kinds     text[],
  p_names     text[],
  p_counts    bigint[],
  p_delivered bigint[] DEFAULT NULL,
  p_failed    bigint[] DEFAULT NULL,
  p_dead      bigint[] DEFAULT NULL,
  p_histogram numeric[] DEFAULT NULL)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT SET jit = off
AS $$
  WITH known AS (
    SELECT r.kind, r.name
      FROM report_counts r
     WHERE r.kind IN (SELECT k FROM unnest(p_kinds) k)
       AND r.step = 600
       AND r.slice = p_slice
       AND r.name IS NOT NULL),
  given AS (
    SELECT g.*, k.name IS NOT NULL AS is_known,
           row_number() OVER (PARTITION BY g.kind, k.name IS NOT NULL ORDER BY g.count DESC, g.name) AS place
      FROM unnest(p_kinds, p_names, p_counts, p_delivered, p_failed, p_dead, p_histogram)
           g(kind, name, count, delivered, failed, dead, histogram)
      LEFT JOIN known k ON k.kind = g.kind AND k.name = g.name),
  named AS (
    SELECT g.*,
           CASE
             WHEN g.is_known OR g.place + coalesce(c.names, 0) <= most_report_names(600) THEN g.name
           END AS kept_name
      FROM given g
      LEFT JOIN (SELECT k.kind, count(*) AS names
                   FROM known k
                  GROUP BY k.kind) c
        ON c.kind = g.kind)
  INSERT INTO report_counts AS r (kind, step, slice, name, count, delivered, failed, dead, histogram)
  SELECT n.kind, 600, p_slice, n.kept_name, sum(n.count), coalesce(sum(n.delivered), 0), coalesce(sum(n.failed), 0),
         coalesce(sum(n.dead), 0), coalesce(sum(n.histogram), 0)
    FROM named n
   GROUP BY n.kind, n.kept_name
  ON CONFLICT (kind, step, slice, name) DO UPDATE
     SET count = r.count + excluded.count, delivered = r.delivered + excluded.delivered,
         failed = r.failed + excluded.failed, dead = r.dead + excluded.dead,
         histogram = r.histogram + excluded.histogram
$$;

-- Makes the slices of p_step from those of p_of_step, from p_since to before p_until. The largest names stay.
CREATE OR REPLACE FUNCTION merge_report_counts(
  p_kinds   text[],
  p_of_step int,
  p_step    int,
  p_since   timestamptz,
  p_until   timestamptz)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT SET jit = off
AS $$
  INSERT INTO report_counts (kind, step, slice, name, count, delivered, failed, dead, histogram)
  SELECT k.kind, p_step, k.slice, k.kept_name, sum(k.count), sum(k.delivered), sum(k.failed), sum(k.dead),
         sum(k.histogram)
    FROM (SELECT s.*,
                 CASE
                   WHEN row_number() OVER (PARTITION BY s.kind, s.slice
                                           ORDER BY s.name IS NULL, s.count DESC, s.name)
                        <= most_report_names(p_step)
                   THEN s.name
                 END AS kept_name
            FROM (SELECT r.kind, date_bin(p_step * interval '1 second', r.slice, 'epoch') AS slice, r.name,
                         sum(r.count) AS count, sum(r.delivered) AS delivered, sum(r.failed) AS failed,
                         sum(r.dead) AS dead, sum(r.histogram) AS histogram
                    FROM report_counts r
                   WHERE r.kind = ANY (p_kinds)
                     AND r.step = p_of_step
                     AND r.slice >= p_since
                     AND r.slice < p_until
                   GROUP BY 1, 2, 3) s) k
   GROUP BY k.kind, k.slice, k.kept_name
$$;

-- Records how far messages or attempts are counted, makes the slices of the hours and days that are complete now, and
-- deletes shorter slices that are not needed any more: those of 10 minutes after two days, of an hour after 32 days.
-- The hours of a day in UTC are deleted together: a period can begin with this day and end within it.
CREATE OR REPLACE FUNCTION move_report_progress(p_what text, p_to timestamptz, p_position uuid) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_kinds text[] := CASE p_what WHEN 'messages' THEN '{topic,tenant}' ELSE '{destination}' END;
  v_done  report_progress;
  v_hour  timestamptz := date_bin('1 hour', p_to, 'epoch');
  v_day   timestamptz := date_bin('1 day', p_to, 'epoch');
BEGIN
  SELECT * INTO STRICT v_done FROM report_progress p WHERE p.what = p_what;
  IF v_done.hours_to < v_hour THEN
    PERFORM merge_report_counts(v_kinds, 600, 3600, v_done.hours_to, v_hour);
    DELETE FROM report_counts r
     WHERE r.kind = ANY (v_kinds)
       AND r.step = 600
       AND r.slice < v_hour - interval '2 days';
    DELETE FROM report_counts r
     WHERE r.kind = ANY (v_kinds)
       AND r.step = 3600
       AND r.slice < date_bin('1 day', v_hour - interval '32 days', 'epoch');
  END IF;
  IF v_done.days_to < v_day THEN
    PERFORM merge_report_counts(v_kinds, 3600, 86400, v_done.days_to, v_day);
  END IF;
  UPDATE report_progress p
     SET counted_to = p_to, position = p_position, hours_to = v_hour, days_to = v_day
   WHERE p.what = p_what;
END $$;

-- The progress of messages or attempts. If it is in the future, the clock was set back: what was counted since the
-- beginning of today is removed, and counted again.
CREATE OR REPLACE FUNCTION report_progress_of(p_what text) RETURNS report_progress
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_kinds text[] := CASE p_what WHEN 'messages' THEN '{topic,tenant}' ELSE '{destination}' END;
  v_done  report_progress;
  v_day   timestamptz := date_bin('1 day', clock_timestamp(), 'epoch');
BEGIN
  SELECT * INTO STRICT v_done FROM report_progress p WHERE p.what = p_what;
  IF v_done.counted_to <= clock_timestamp() THEN RETURN v_done; END IF;
  DELETE FROM report_counts r
   WHERE r.kind = ANY (v_kinds)
     AND r.slice >= v_day;
  UPDATE report_progress p
     SET counted_to = v_day, position = id_at(v_day), hours_to = v_day, days_to = v_day
   WHERE p.what = p_what
  RETURNING * INTO v_done;
  RETURN v_done;
END $$;

-- Counts the next messages, at most p_rows, of one slice. False: all messages that are complete are counted.
CREATE OR REPLACE FUNCTION count_reported_messages(p_rows int, p_delay interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
  v_bound    timestamptz := date_trunc('milliseconds', closed_messages('report messages', p_delay));
  v_done     report_progress := report_progress_of('messages');
  v_first    uuid;
  v_slice    timestamptz;
  v_end      timestamptz;
  v_last     uuid;
  v_count    bigint;
  v_kinds    text[];
  v_names    text[];
  v_counts   bigint[];
BEGIN
  IF v_bound <= v_done.counted_to THEN RETURN false; END IF;
  SELECT m.id
    INTO v_first
    FROM messages m
   WHERE m.id > v_done.position
     AND m.id < id_at(v_bound)
   ORDER BY m.id
   LIMIT 1;
  IF v_first IS NULL THEN
    PERFORM move_report_progress('messages', v_bound, id_at(v_bound));
    RETURN false;
  END IF;
  v_slice := date_bin('10 minutes', id_time(v_first), 'epoch');
  v_end := least(v_slice + interval '10 minutes', v_bound);
  WITH piece AS MATERIALIZED (
    SELECT m.id, m.topic, coalesce(m.tenant_id, '') AS tenant_id
      FROM messages m
     WHERE m.id >= v_first
       AND m.id < id_at(v_end)
     ORDER BY m.id
     LIMIT p_rows),
  counted AS (
    SELECT p.topic, p.tenant_id, count(*) AS count
      FROM piece p
     GROUP BY GROUPING SETS ((p.topic), (p.tenant_id)))
  SELECT array_agg(CASE WHEN c.topic IS NULL THEN 'tenant' ELSE 'topic' END),
         array_agg(coalesce(c.topic, c.tenant_id)), array_agg(c.count),
         (SELECT count(*) FROM piece), (SELECT p.id FROM piece p ORDER BY p.id DESC LIMIT 1)
    INTO v_kinds, v_names, v_counts, v_count, v_last
    FROM counted c;
  PERFORM add_report_counts(v_slice, v_kinds, v_names, v_counts);
  IF v_count < p_rows THEN
    PERFORM move_report_progress('messages', v_end, id_at(v_end));
    RETURN v_end < v_bound;
  END IF;
  -- ids have whole milliseconds: everything before that of the last id is counted; the rest of that millisecond
  -- follows after v_last
  PERFORM move_report_progress('messages', id_time(v_last), v_last);
  RETURN true;
END $$;

-- Counts the next attempts, at most p_rows, of one slice: those that ended in a span of time. There is no B-tree of
-- ended_at, so the span is found by trying. It begins with that of the last piece, and is halved until the piece is
-- small enough; after a small piece it is doubled, so that time without attempts is left behind in a few steps. Only
-- more than p_rows attempts of the same millisecond make a larger piece. False: all that are complete are counted.
CREATE OR REPLACE FUNCTION count_reported_attempts(p_rows int, p_delay interval) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET jit = off SET enable_seqscan = off
AS $$
DECLARE
  v_bound     timestamptz := closed_attempts('report attempts', p_delay);
  v_done      report_progress := report_progress_of('attempts');
  v_since     timestamptz := v_done.counted_to;
  v_span      interval := v_done.span;
  v_end       timestamptz;
  v_until     timestamptz;
  v_limit     int;
  v_count     bigint;
  v_kinds     text[];
  v_names     text[];
  v_counts    bigint[];
  v_delivered bigint[];
  v_failed    bigint[];
  v_dead      bigint[];
  v_histogram numeric[];
BEGIN
  IF v_bound <= v_since THEN RETURN false; END IF;
  IF v_since = '-infinity' THEN
    -- no attempt ended before the first message was created
    SELECT id_time(a.message_id)
      INTO v_since
      FROM attempts a
     ORDER BY a.message_id, a.destination_id, a.claim_no
     LIMIT 1;
    v_since := least(coalesce(v_since, v_bound), v_bound);
  END IF;
  v_end := date_bin('10 minutes', v_since, 'epoch') + interval '10 minutes';
  v_until := least(v_bound, v_since + v_span);
  LOOP
    v_limit := CASE
      -- a span over several slices is only taken if it is empty: one row is enough to know
      WHEN v_until > v_end THEN 1
      WHEN v_until - v_since > interval '1 ms' THEN p_rows + 1
    END;
    WITH piece AS MATERIALIZED (
      SELECT a.destination_id, a.state, a.ended_at, a.message_id
        FROM attempts a
       WHERE a.ended_at >= v_since
         AND a.ended_at < v_until
       LIMIT v_limit),
    ended AS (
      SELECT p.destination_id, p.state,
             CASE WHEN p.state = 'dispatched' THEN delivery_bucket(p.ended_at - id_time(p.message_id)) END AS bucket,
             count(*) AS count
        FROM piece p
       WHERE p.state IN ('dispatched', 'retryable', 'failed', 'zombie_requeue')
         AND (v_limit IS NULL OR (SELECT count(*) FROM piece) < v_limit)
       GROUP BY 1, 2, 3),
    counted AS (
      SELECT e.destination_id, sum(e.count)::bigint AS count,
             coalesce(sum(e.count) FILTER (WHERE e.state = 'dispatched'), 0)::bigint AS delivered,
             coalesce(sum(e.count) FILTER (WHERE e.state <> 'dispatched'), 0)::bigint AS failed,
             coalesce(sum(e.count) FILTER (WHERE e.state = 'failed'), 0)::bigint AS dead,
             coalesce(sum(e.count * rpad('1', 12 * e.bucket + 1, '0')::numeric), 0) AS histogram
        FROM ended e
       GROUP BY e.destination_id)
    SELECT array_agg('destination'::text), array_agg(c.destination_id::text), array_agg(c.count),
           array_agg(c.delivered), array_agg(c.failed), array_agg(c.dead), array_agg(c.histogram),
           (SELECT count(*) FROM piece)
      INTO v_kinds, v_names, v_counts, v_delivered, v_failed, v_dead, v_histogram, v_count
      FROM counted c;
    EXIT WHEN v_limit IS NULL OR v_count < v_limit;
    v_until := CASE WHEN v_until > v_end THEN v_end ELSE v_since + (v_until - v_since) / 2 END;
    v_span := v_until - v_since;
  END LOOP;
  IF v_names IS NOT NULL THEN
    PERFORM add_report_counts(date_bin('10 minutes', v_since, 'epoch'), v_kinds, v_names, v_counts, v_delivered,
                              v_failed, v_dead, v_histogram);
  END IF;
  UPDATE report_progress p
     SET span = greatest(v_span * CASE WHEN v_count <= p_rows / 2 AND v_until = v_since + v_span THEN 2 ELSE 1 END,
                         interval '1 second')
   WHERE p.what = 'attempts';
  PERFORM move_report_progress('attempts', v_until, v_done.position);
  RETURN v_until < v_bound;
END $$;

-- Counts the next piece of messages and the next piece of attempts, at most p_rows each. Only rows older than p_delay
-- are counted, so a clock that is set back by less is harmless. False: there is nothing to count at present, or another
-- session counts.
CREATE OR REPLACE FUNCTION fill_reports(p_rows int DEFAULT 100000, p_delay interval DEFAULT '10 seconds')
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_more boolean;
BEGIN
  PERFORM checked_number('p_rows', p_rows, 1, 1000000);
  PERFORM checked_interval('p_delay', p_delay, '0', '1 day');
  PERFORM assert_read_committed('filling reports');
  IF NOT try_lock('reports') THEN RETURN false; END IF;
  v_more := count_reported_messages(p_rows, p_delay);
  RETURN count_reported_attempts(p_rows, p_delay) OR v_more;
END $$;

-- Deletes slices of a day that are older than p_older_than, at most p_batch; returns how many.
CREATE OR REPLACE FUNCTION prune_reports(p_older_than interval DEFAULT '400 days', p_batch int DEFAULT 1000) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count int;
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  PERFORM checked_interval('p_older_than', p_older_than, '32 days', '100 years');
  DELETE FROM report_counts r
   WHERE r.ctid = ANY (ARRAY (
           SELECT x.ctid
             FROM report_counts x
            WHERE x.kind IN ('topic', 'tenant', 'destination')
              AND x.step = 86400
              AND x.slice < now() - p_older_than
            LIMIT p_batch
              FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;
