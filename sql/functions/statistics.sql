-- What happened lately, in slices of ten seconds: for rates, charts and alerts. Relays add what they did; whoever
-- comes first in a slice takes a sample of what waits. All of it is derived: the record is in attempts.

-- Adds what one relay did since it last said so, by destination.
CREATE OR REPLACE FUNCTION add_statistics(
  p_destination_ids smallint[], p_delivered bigint[], p_retried bigint[], p_died bigint[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  INSERT INTO statistics AS s (slice, destination_id, delivered, retried, died)
  SELECT date_bin('10 seconds', clock_timestamp(), 'epoch'), x.destination_id, x.delivered, x.retried, x.died
    FROM unnest(p_destination_ids, p_delivered, p_retried, p_died) x(destination_id, delivered, retried, died)
   ORDER BY x.destination_id
  ON CONFLICT (slice, destination_id) DO UPDATE
    SET delivered = s.delivered + excluded.delivered, retried = s.retried + excluded.retried, died = s.died + excluded.died
$$;

-- Takes the sample of the slice that had ended by then, unless somebody has or does. True if it was taken.
CREATE OR REPLACE FUNCTION take_sample(p_at timestamptz DEFAULT clock_timestamp()) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  v_end   timestamptz := date_bin('10 seconds', p_at, 'epoch');
  v_slice timestamptz := v_end - interval '10 seconds';
  v_taken boolean;
BEGIN
  IF EXISTS (SELECT FROM samples WHERE slice = v_slice)
     OR NOT pg_try_advisory_xact_lock(hashtextextended('waybill sample ' || current_schema(), 0)) THEN
    RETURN false;
  END IF;
  INSERT INTO samples (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
  SELECT v_slice,
         (SELECT count(*) FROM (SELECT FROM messages m WHERE m.id >= id_at(v_slice) AND m.id < id_at(v_end) LIMIT 1000000) x),
         h.waiting, h.retrying, h.dead, h.oldest_seconds, t.average_ms, t.p50_ms, t.p99_ms
    FROM (SELECT coalesce(sum(l.pending), 0) AS waiting, coalesce(sum(l.retrying), 0) AS retrying, coalesce(sum(l.dead), 0) AS dead,
                 max(l.oldest_due_seconds) AS oldest_seconds FROM destination_load l) h,
         delivery_times(interval '1 minute') t
  ON CONFLICT DO NOTHING;
  v_taken := FOUND;
  -- a little at a time, so that a chart of a day or a week reads about as many rows as it has points; whoever prunes
  -- puts slices together too, and a sample does not wait for that
  IF v_taken AND v_end = date_bin('10 minutes', v_end, 'epoch')
     AND pg_try_advisory_xact_lock(hashtextextended('waybill compact ' || current_schema(), 0)) THEN
    PERFORM compact_statistics('10 minutes', '1 day', statement_timestamp() - interval '2 days');
    PERFORM compact_statistics('1 minute', '1 hour', statement_timestamp() - interval '2 days');
    PERFORM compact_samples(statement_timestamp() - interval '2 days');
  END IF;
  RETURN v_taken;
END $$;

-- How long deliveries took from creation to delivery, over at most the last 10,000 messages of the time given.
CREATE OR REPLACE FUNCTION delivery_times(p_window interval, OUT average_ms numeric, OUT p50_ms numeric, OUT p99_ms numeric)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off AS $$
BEGIN
  SELECT round(avg(t.ms), 1), round((percentile_cont(0.5) WITHIN GROUP (ORDER BY t.ms))::numeric, 1),
         round((percentile_cont(0.99) WITHIN GROUP (ORDER BY t.ms))::numeric, 1)
    INTO average_ms, p50_ms, p99_ms
    FROM (SELECT extract(epoch FROM a.ended_at - id_time(a.message_id)) * 1000 AS ms FROM attempts a
           WHERE a.message_id >= id_at(statement_timestamp() - p_window) AND a.state = 'dispatched'
           ORDER BY a.message_id DESC LIMIT 10000) t;
END $$;

-- Puts slices together once they are so old: the further back, the further apart the points of a chart. Only those since
-- p_since are looked at. Callers hold the lock "waybill compact". Two at once would lose and double nothing, as a row is
-- deleted by one of them and added to what is there; but each may hold rows that the other wants, and one would be
-- ended as a deadlock, with its sample.
CREATE OR REPLACE FUNCTION compact_statistics(p_step interval, p_older_than interval, p_since timestamptz) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  WITH fine AS (
    DELETE FROM statistics s
     WHERE s.slice >= p_since AND s.slice < date_bin(p_step, statement_timestamp() - p_older_than, 'epoch')
       AND s.slice <> date_bin(p_step, s.slice, 'epoch')
    RETURNING s.*)
  INSERT INTO statistics AS s (slice, destination_id, delivered, retried, died)
  SELECT date_bin(p_step, f.slice, 'epoch'), f.destination_id, sum(f.delivered), sum(f.retried), sum(f.died)
    FROM fine f GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (slice, destination_id) DO UPDATE
    SET delivered = s.delivered + excluded.delivered, retried = s.retried + excluded.retried, died = s.died + excluded.died
$$;

-- How many seconds a sample speaks for. One that ten minutes were put together in begins five seconds late: where none
-- of ten seconds begins.
CREATE OR REPLACE FUNCTION sample_seconds(p_slice timestamptz) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT CASE WHEN extract(epoch FROM p_slice)::bigint % 10 = 5 THEN 600 ELSE 10 END $$;

-- The same for samples older than a day: of what came in as much as in ten minutes like these, the most that waited,
-- and the longest times.
CREATE OR REPLACE FUNCTION compact_samples(p_since timestamptz) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  WITH fine AS (
    DELETE FROM samples s
     WHERE s.slice >= p_since AND s.slice < date_bin('10 minutes', statement_timestamp() - interval '1 day', 'epoch') AND sample_seconds(s.slice) = 10
    RETURNING s.*)
  INSERT INTO samples AS s (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
  SELECT date_bin('10 minutes', f.slice, 'epoch') + interval '5 seconds', round(60 * avg(f.enqueued)), max(f.waiting), max(f.retrying), max(f.dead),
         max(f.oldest_seconds), round(avg(f.average_ms), 1), round(avg(f.p50_ms), 1), max(f.p99_ms)
    FROM fine f GROUP BY 1
  ON CONFLICT (slice) DO UPDATE
    SET enqueued = greatest(s.enqueued, excluded.enqueued), waiting = greatest(s.waiting, excluded.waiting), retrying = greatest(s.retrying, excluded.retrying),
        dead = greatest(s.dead, excluded.dead), oldest_seconds = greatest(s.oldest_seconds, excluded.oldest_seconds), p99_ms = greatest(s.p99_ms, excluded.p99_ms)
$$;

-- Forgets slices older than this, and puts older ones together: minutes after an hour, ten minutes after a day. Returns
-- how many were forgotten.
CREATE OR REPLACE FUNCTION prune_statistics(p_older_than interval DEFAULT '31 days') RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT pg_advisory_xact_lock(hashtextextended('waybill compact ' || current_schema(), 0));
  SELECT compact_statistics('10 minutes', '1 day', statement_timestamp() - p_older_than);
  SELECT compact_statistics('1 minute', '1 hour', statement_timestamp() - interval '2 days');
  SELECT compact_samples(statement_timestamp() - p_older_than);
  WITH a AS (DELETE FROM statistics WHERE slice < statement_timestamp() - p_older_than RETURNING 1),
       b AS (DELETE FROM samples WHERE slice < statement_timestamp() - p_older_than RETURNING 1)
  SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b)
$$;
