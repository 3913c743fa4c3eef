-- Statistics: recent activity in slices of ten seconds, for rates, charts and alerts. Relays add their counts. The
-- first relay in each slice takes a sample of pending work. All of it is derived; the record itself is in attempts.

-- Adds the counts of one relay since its last call, by destination.
CREATE OR REPLACE FUNCTION add_statistics(
  p_destination_ids int[],
  p_delivered       bigint[],
  p_retried         bigint[],
  p_died            bigint[],
  p_expired         bigint[] DEFAULT NULL)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  INSERT INTO statistics AS s (slice, destination_id, delivered, retried, died, expired)
  SELECT date_bin('10 seconds', clock_timestamp(), 'epoch'), x.destination_id, x.delivered, x.retried, x.died,
         coalesce(x.expired, 0)
    FROM unnest(p_destination_ids, p_delivered, p_retried, p_died, p_expired)
         x(destination_id, delivered, retried, died, expired)
   ORDER BY x.destination_id
  ON CONFLICT (slice, destination_id) DO UPDATE
    SET delivered = s.delivered + excluded.delivered, retried = s.retried + excluded.retried,
        died = s.died + excluded.died, expired = s.expired + excluded.expired
$$;

-- Takes the sample of the last complete slice, unless another session has taken it or is taking it. True if it was
-- taken.
CREATE OR REPLACE FUNCTION take_sample(p_at timestamptz DEFAULT clock_timestamp()) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET jit = off
AS $$
DECLARE
  v_end    timestamptz := date_bin('10 seconds', p_at, 'epoch');
  v_slice  timestamptz := v_end - interval '10 seconds';
  v_taken  boolean;
  v_id     int;
  v_due_at timestamptz;
  v_oldest timestamptz;
BEGIN
  IF EXISTS (SELECT FROM samples WHERE slice = v_slice) OR NOT try_lock('sample') THEN
    RETURN false;
  END IF;
  -- In the order of their due times, until no later one can be older (oldest_due_at). Those with tickets come first:
  -- first_due calls them due now, however long their keys have waited.
  FOR v_id, v_due_at IN
    SELECT f.destination_id, CASE WHEN t.found THEN '-infinity' ELSE f.due_at END
      FROM first_due() f
      LEFT JOIN LATERAL (
            SELECT true AS found
              FROM lane_tickets t
             WHERE t.destination_id = f.destination_id
             LIMIT 1) t ON true
     ORDER BY 2
  LOOP
    EXIT WHEN v_due_at >= v_oldest;
    v_oldest := least(v_oldest, oldest_due_at(v_id));
  END LOOP;
  INSERT INTO samples (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
  SELECT v_slice,
         (SELECT count(*)
            FROM (SELECT FROM messages m
                   WHERE m.id >= id_at(v_slice)
                     AND m.id < id_at(v_end)
                   LIMIT 1000000) x),
         counted_rows('SELECT FROM deliveries', 100000),
         counted_rows('SELECT FROM deliveries WHERE tries > 0', 100000),
         counted_rows('SELECT FROM dead_letters', 100000),
         round(extract(epoch FROM greatest(clock_timestamp() - v_oldest, interval '0')), 3),
         t.average_ms, t.p50_ms, t.p99_ms
    FROM delivery_times(interval '1 minute') t
  ON CONFLICT DO NOTHING;
  v_taken := FOUND;
  -- rows in the future, from before the clock was set back, would count as recent until their time comes
  DELETE FROM statistics WHERE slice > clock_timestamp() + clock_tolerance();
  DELETE FROM samples WHERE slice > clock_timestamp() + clock_tolerance();
  -- Compacts a little at a time, so that a chart of a day or a week reads about as many rows as it has points. Pruning
  -- compacts too, and a sample does not wait for it.
  IF v_taken AND v_end = date_bin('10 minutes', v_end, 'epoch') AND try_lock('compact') THEN
    PERFORM compact_statistics('10 minutes', '1 day', statement_timestamp() - interval '2 days');
    PERFORM compact_statistics('1 minute', '1 hour', statement_timestamp() - interval '2 days');
    PERFORM compact_samples(statement_timestamp() - interval '2 days');
  END IF;
  RETURN v_taken;
END $$;

-- Average, median and 99th percentile of the time from creation to delivery, over at most the last 10,000 messages of
-- p_window.
CREATE OR REPLACE FUNCTION delivery_times(
  p_window       interval,
  OUT average_ms numeric,
  OUT p50_ms     numeric,
  OUT p99_ms     numeric)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
BEGIN
  SELECT round(avg(t.ms), 1),
         round((percentile_cont(0.5) WITHIN GROUP (ORDER BY t.ms))::numeric, 1),
         round((percentile_cont(0.99) WITHIN GROUP (ORDER BY t.ms))::numeric, 1)
    INTO average_ms, p50_ms, p99_ms
    -- durations are never negative; messages that a wrong clock dated into the future are left out
    FROM (SELECT greatest(extract(epoch FROM a.ended_at - id_time(a.message_id)) * 1000, 0) AS ms
            FROM attempts a
           WHERE a.message_id >= id_at(statement_timestamp() - p_window)
             AND a.message_id < id_at(statement_timestamp() + interval '1 minute')
             AND a.state = 'dispatched'
           ORDER BY a.message_id DESC
           LIMIT 10000) t;
END $$;

-- The two rates of the deliveries in the last p_window, at one destination or at all. delivery_rate: the share of the
-- deliveries that ended and were delivered, after however many tries; the others are dead. success_rate: the share of
-- the single tries that succeeded. Null if there were none. Relays count them; workers in SQL do not. Slices are kept
-- for 31 days.
CREATE OR REPLACE FUNCTION delivery_rates(
  p_window          interval DEFAULT '1 day',
  p_destination     text DEFAULT NULL,
  OUT delivered     bigint,
  OUT retried       bigint,
  OUT died          bigint,
  OUT delivery_rate numeric,
  OUT success_rate  numeric)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET jit = off
AS $$
DECLARE
  v_destination_id int := CASE WHEN p_destination IS NOT NULL THEN (find_destination(p_destination)).id END;
BEGIN
  PERFORM checked_interval('p_window', p_window, '10 seconds', '100 years');
  SELECT coalesce(sum(s.delivered), 0), coalesce(sum(s.retried), 0), coalesce(sum(s.died), 0)
    INTO delivered, retried, died
    FROM statistics s
   WHERE s.slice >= statement_timestamp() - p_window
     AND (v_destination_id IS NULL OR s.destination_id = v_destination_id);
  -- truncated, so that one of a million that died does not look like none
  delivery_rate := trunc(delivered::numeric / nullif(delivered + died, 0), 6);
  success_rate := trunc(delivered::numeric / nullif(delivered + retried + died, 0), 6);
END $$;

-- A sample of the recent attempts of one destination: those that ended in its newest slices with tries, within
-- p_window, up to p_most. Attempts have no index by destination, so it reads everything that ended in such a slice and
-- in the ten seconds before it, in which relays collect their counts. Bounds: 50,000 attempts for each slice, in no
-- order, and no further slice after 50 milliseconds. Tries of workers in SQL are not counted, so they are found only
-- beside those of relays. Attempts of messages older than seven days are left out.
CREATE OR REPLACE FUNCTION recent_attempts(p_destination_id int, p_window interval, p_most int)
RETURNS TABLE (message_id uuid, ended_at timestamptz, state text, latency_ms int, error_code text, remote_code text,
               error_message text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET jit = off SET enable_seqscan = off SET enable_indexscan = off
AS $$
DECLARE
  v_began timestamptz := clock_timestamp();
  v_left  int := p_most;
  v_from  timestamptz := 'infinity';
  v_until timestamptz;
  v_slice timestamptz;
  v_first uuid;
  v_last  uuid;
  v_found int;
BEGIN
  FOR v_slice IN
    SELECT s.slice
      FROM statistics s
     WHERE s.destination_id = p_destination_id
       AND s.slice >= statement_timestamp() - p_window
       AND s.delivered + s.retried + s.died > 0
     ORDER BY s.slice DESC
     LIMIT 100
  LOOP
    -- after an hour, slices are merged into minutes; attempts of the slice before are not read twice
    v_until := least(v_from, v_slice + CASE
      WHEN v_slice < statement_timestamp() - interval '1 hour' THEN interval '1 minute'
      ELSE interval '10 seconds'
    END);
    v_from := v_slice - interval '10 seconds';
    -- constants in the plan, which then has no other days: each further day costs one more look-up
    v_first := id_at(v_from - interval '7 days');
    v_last := id_at(v_until + interval '1 day');
    RETURN QUERY
      SELECT a.message_id, a.ended_at, a.state::text, a.latency_ms, a.error_code, a.remote_code, a.error_message
        FROM (SELECT x.message_id, x.ended_at, x.state, x.latency_ms, x.error_code, x.remote_code, x.error_message,
                     x.destination_id
                FROM attempts x
               WHERE x.ended_at >= v_from
                 AND x.ended_at < v_until
                 AND x.message_id >= v_first
                 AND x.message_id < v_last
               LIMIT 50000) a
       WHERE a.destination_id = p_destination_id
       LIMIT v_left;
    GET DIAGNOSTICS v_found = ROW_COUNT;
    v_left := v_left - v_found;
    EXIT WHEN v_left <= 0 OR clock_timestamp() > v_began + interval '50 milliseconds';
  END LOOP;
END $$;

-- Merges slices that are older than p_older_than into slices of p_step, so that old charts have fewer points. It reads
-- only slices since p_since. Callers hold the lock "compact". Two concurrent calls would lose or double nothing,
-- because one of them deletes a row and adds it to the merged one. But they could deadlock, and one of them would fail
-- with its sample.
CREATE OR REPLACE FUNCTION compact_statistics(p_step interval, p_older_than interval, p_since timestamptz) RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  WITH fine AS (
    DELETE FROM statistics s
     WHERE s.slice >= p_since
       AND s.slice < date_bin(p_step, statement_timestamp() - p_older_than, 'epoch')
       AND s.slice <> date_bin(p_step, s.slice, 'epoch')
    RETURNING s.*)
  INSERT INTO statistics AS s (slice, destination_id, delivered, retried, died, expired)
  SELECT date_bin(p_step, f.slice, 'epoch'), f.destination_id, sum(f.delivered), sum(f.retried), sum(f.died),
         sum(f.expired)
    FROM fine f
   GROUP BY 1, 2
   ORDER BY 1, 2
  ON CONFLICT (slice, destination_id) DO UPDATE
    SET delivered = s.delivered + excluded.delivered, retried = s.retried + excluded.retried,
        died = s.died + excluded.died, expired = s.expired + excluded.expired
$$;

-- The number of seconds that a sample covers. A merged sample of ten minutes is marked by a start five seconds late,
-- where no slice of ten seconds starts.
CREATE OR REPLACE FUNCTION sample_seconds(p_slice timestamptz) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN extract(epoch FROM p_slice)::bigint % 10 = 5 THEN 600 ELSE 10 END
$$;

-- Merges samples older than a day into samples of ten minutes. enqueued is scaled to ten minutes; waiting, retrying,
-- dead, oldest_seconds and p99_ms are maxima; average_ms and p50_ms are averages.
CREATE OR REPLACE FUNCTION compact_samples(p_since timestamptz) RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  WITH fine AS (
    DELETE FROM samples s
     WHERE s.slice >= p_since
       AND s.slice < date_bin('10 minutes', statement_timestamp() - interval '1 day', 'epoch')
       AND sample_seconds(s.slice) = 10
    RETURNING s.*)
  INSERT INTO samples AS s (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
  SELECT date_bin('10 minutes', f.slice, 'epoch') + interval '5 seconds', round(60 * avg(f.enqueued)),
         max(f.waiting), max(f.retrying), max(f.dead), max(f.oldest_seconds), round(avg(f.average_ms), 1),
         round(avg(f.p50_ms), 1), max(f.p99_ms)
    FROM fine f
   GROUP BY 1
  ON CONFLICT (slice) DO UPDATE
    SET enqueued = greatest(s.enqueued, excluded.enqueued),
        waiting = greatest(s.waiting, excluded.waiting),
        retrying = greatest(s.retrying, excluded.retrying),
        dead = greatest(s.dead, excluded.dead),
        oldest_seconds = greatest(s.oldest_seconds, excluded.oldest_seconds),
        p99_ms = greatest(s.p99_ms, excluded.p99_ms)
$$;

-- Deletes slices older than p_older_than, and merges older ones: into minutes after an hour, into ten minutes after a
-- day. Returns how many were deleted. Also deletes clock steps that are older than the whole log.
CREATE OR REPLACE FUNCTION prune_statistics(p_older_than interval DEFAULT '31 days') RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT checked_interval('p_older_than', p_older_than, '1 day', '100 years');
  SELECT take_lock('compact');
  SELECT compact_statistics('10 minutes', '1 day', statement_timestamp() - p_older_than);
  SELECT compact_statistics('1 minute', '1 hour', statement_timestamp() - interval '2 days');
  SELECT compact_samples(statement_timestamp() - p_older_than);
  SELECT forget_clock_steps();
  WITH a AS (DELETE FROM statistics WHERE slice < statement_timestamp() - p_older_than RETURNING 1),
       b AS (DELETE FROM samples WHERE slice < statement_timestamp() - p_older_than RETURNING 1)
  SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b)
$$;
