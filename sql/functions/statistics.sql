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
BEGIN
  IF EXISTS (SELECT FROM samples WHERE slice = v_slice)
     OR NOT pg_try_advisory_xact_lock(hashtextextended('waybill sample ' || current_schema(), 0)) THEN
    RETURN false;
  END IF;
  INSERT INTO samples (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
  SELECT v_slice,
         (SELECT count(*) FROM (SELECT FROM messages m WHERE m.id >= id_at(v_slice) AND m.id < id_at(v_end) LIMIT 1000000) x),
         h.waiting, h.retrying, h.dead, h.oldest_seconds, t.average_ms, t.p50_ms, t.p99_ms
    FROM (SELECT max(value) FILTER (WHERE metric = 'waiting') AS waiting, max(value) FILTER (WHERE metric = 'retrying') AS retrying,
                 max(value) FILTER (WHERE metric = 'dead') AS dead, max(value) FILTER (WHERE metric = 'oldest_waiting_seconds') AS oldest_seconds
            FROM health) h,
         delivery_times(interval '1 minute') t
  ON CONFLICT DO NOTHING;
  RETURN FOUND;
END $$;

-- How long deliveries took from creation to delivery, over at most the last 10,000 messages of the time given.
CREATE OR REPLACE FUNCTION delivery_times(p_window interval, OUT average_ms numeric, OUT p50_ms numeric, OUT p99_ms numeric)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET jit = off AS $$
BEGIN
  SELECT round(avg(t.ms), 1), round((percentile_cont(0.5) WITHIN GROUP (ORDER BY t.ms))::numeric, 1),
         round((percentile_cont(0.99) WITHIN GROUP (ORDER BY t.ms))::numeric, 1)
    INTO average_ms, p50_ms, p99_ms
    FROM (SELECT extract(epoch FROM a.ended_at - id_time(a.message_id)) * 1000 AS ms FROM attempts a
           WHERE a.message_id >= id_at(statement_timestamp() - p_window) AND a.state = 'dispatched'
           ORDER BY a.message_id DESC LIMIT 10000) t;
END $$;

-- Forgets slices older than this, and puts those of ten minutes together once they are older than a day: a week is
-- asked for often, and looked at from afar. Returns how many were forgotten.
CREATE OR REPLACE FUNCTION prune_statistics(p_older_than interval DEFAULT '31 days') RETURNS bigint
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  WITH fine AS (
    DELETE FROM statistics s
     WHERE s.slice < date_bin('10 minutes', statement_timestamp() - interval '1 day', 'epoch')
       AND s.slice >= statement_timestamp() - p_older_than
       AND s.slice <> date_bin('10 minutes', s.slice, 'epoch')
    RETURNING s.*)
  INSERT INTO statistics AS s (slice, destination_id, delivered, retried, died)
  SELECT date_bin('10 minutes', f.slice, 'epoch'), f.destination_id, sum(f.delivered), sum(f.retried), sum(f.died)
    FROM fine f GROUP BY 1, 2 ORDER BY 1, 2
  ON CONFLICT (slice, destination_id) DO UPDATE
    SET delivered = s.delivered + excluded.delivered, retried = s.retried + excluded.retried, died = s.died + excluded.died;
  WITH a AS (DELETE FROM statistics WHERE slice < statement_timestamp() - p_older_than RETURNING 1),
       b AS (DELETE FROM samples WHERE slice < statement_timestamp() - p_older_than RETURNING 1)
  SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b)
$$;
