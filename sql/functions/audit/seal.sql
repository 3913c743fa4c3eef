-- Seals: a hash chain over ranges of attempts and operator actions. With copies of its heads kept elsewhere, an auditor
-- can tell later whether sealed rows were changed, removed or added, by any role.
--
-- A range is defined by the contents of its rows (a range of message ids, a span of ended_at), not by transaction ids
-- or file positions. So it is the same after a dump, on a copy and in another version. It is closed when no transaction
-- can add rows to it any more (close_rows). Later attempts for the same messages ended later, and belong to a later
-- range. Sealing is not part of a settle, and makes no writer wait.

-- The digest of one attempt: its values as a JSON array, times as seconds. No session setting changes it. Keep it in
-- step with src/features/audit/sealed-rows.ts, which computes it without trusting this function.
CREATE OR REPLACE FUNCTION attempt_digest(a attempts) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT sha256(convert_to(jsonb_build_array(
           a.message_id, a.destination_id, a.claim_no, a.tries, a.state,
           extract(epoch FROM a.claimed_at)::text, extract(epoch FROM a.ended_at)::text,
           a.relay_id, a.latency_ms, a.error_code, a.remote_code, a.error_message, a.reference, a.response
         )::text, 'UTF8'))
$$;

-- The digest of one operator action, made in the same way.
CREATE OR REPLACE FUNCTION action_digest(a operator_actions) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
  SELECT sha256(convert_to(jsonb_build_array(
           a.id, extract(epoch FROM a.at)::text, a.actor, a.action, a.subject, a.count, a.database_user
         )::text, 'UTF8'))
$$;

-- Takes the lock for adding to the chain; false if another session has it.
CREATE OR REPLACE FUNCTION begin_sealing() RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM assert_read_committed('sealing');
  RETURN try_lock('seal');
END $$;

-- Appends a seal. Its head is the SHA-256 of the fields, one per line; src/features/audit/chain.ts computes the same.
CREATE OR REPLACE FUNCTION append_seal(
  p_kind      text,
  p_from_id   uuid,
  p_to_id     uuid,
  p_since     timestamptz,
  p_until     timestamptz,
  p_row_count bigint,
  p_digest    bytea,
  p_details   jsonb,
  p_leaves    bytea)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_last seals;
  v_seal seals;
BEGIN
  SELECT * INTO v_last FROM seals ORDER BY number DESC LIMIT 1;
  v_seal := (coalesce(v_last.number, 0) + 1, p_kind, p_from_id, p_to_id, p_since, p_until, p_row_count, p_digest,
             p_details, clock_timestamp(), coalesce(v_last.head, ''), '');
  v_seal.head := sha256(convert_to(array_to_string(ARRAY[
    'waybill seal 1',
    v_seal.number::text,
    p_kind,
    p_from_id::text,
    p_to_id::text,
    extract(epoch FROM p_since)::text,
    extract(epoch FROM p_until)::text,
    p_row_count::text,
    encode(p_digest, 'hex'),
    p_details::text,
    extract(epoch FROM v_seal.sealed_at)::text,
    encode(v_seal.previous, 'hex')], E'\n', ''), 'UTF8'));
  INSERT INTO seals SELECT v_seal.*;
  IF p_leaves <> '' THEN INSERT INTO seal_leaves VALUES (v_seal.number, p_leaves); END IF;
  RETURN v_seal.number;
END $$;

-- Seals one range of attempts; returns its number of rows. An empty range gets no seal if it is one for late rows.
CREATE OR REPLACE FUNCTION seal_range(p_from_id uuid, p_to_id uuid, p_since timestamptz, p_until timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_count  bigint;
  v_digest bytea;
  v_leaves bytea;
BEGIN
  SELECT count(*),
         sha256(coalesce(
           string_agg(r.digest, ''::bytea ORDER BY r.message_id, r.destination_id, r.claim_no), '')),
         coalesce(
           string_agg(substring(r.digest FROM 1 FOR 8), ''::bytea
                      ORDER BY r.message_id, r.destination_id, r.claim_no), '')
    INTO v_count, v_digest, v_leaves
    FROM (SELECT a.message_id, a.destination_id, a.claim_no, attempt_digest(a) AS digest
            FROM attempts a
           WHERE a.message_id >= p_from_id
             AND a.message_id < p_to_id
             AND a.ended_at >= p_since
             AND a.ended_at < p_until
          OFFSET 0) r;
  IF v_count > 0 OR p_since = '-infinity' THEN
    PERFORM append_seal('attempts', p_from_id, p_to_id, p_since, p_until, v_count, v_digest, '{}', v_leaves);
  END IF;
  RETURN v_count;
END $$;

-- Seals the next unsealed range of a day's messages, up to p_limit; returns its number of rows, or null if there is no
-- range to seal yet. A range ends when it has p_max_rows, when it is as long as p_every, or at the end of the day.
CREATE OR REPLACE FUNCTION seal_fresh(p_day date, p_limit uuid, p_until timestamptz, p_max_rows int, p_every interval)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_end   uuid := id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_from  uuid := coalesce((SELECT d.sealed_to FROM seal_days d WHERE d.day = p_day),
                           id_at(p_day::timestamp AT TIME ZONE 'UTC'));
  v_limit uuid := least(v_end, p_limit);
  v_to    uuid;
  v_count bigint;
BEGIN
  IF v_from >= v_limit THEN RETURN NULL; END IF;
  SELECT a.message_id
    INTO v_to
    FROM attempts a
   WHERE a.message_id >= v_from
     AND a.message_id < v_limit
   ORDER BY a.message_id, a.destination_id, a.claim_no
  OFFSET p_max_rows
   LIMIT 1;
  IF v_to = v_from THEN
    -- one message alone exceeds the limit: its attempts are not divided
    SELECT a.message_id
      INTO v_to
      FROM attempts a
     WHERE a.message_id > v_from
       AND a.message_id < v_limit
     ORDER BY a.message_id, a.destination_id, a.claim_no
     LIMIT 1;
  END IF;
  IF v_to IS NULL THEN
    IF v_limit < v_end AND id_time(v_from) > id_time(v_limit) - p_every THEN RETURN NULL; END IF;
    v_to := v_limit;
  END IF;
  v_count := seal_range(v_from, v_to, '-infinity', p_until);
  INSERT INTO seal_days (day, sealed_to)
  VALUES (p_day, v_to)
  ON CONFLICT (day) DO UPDATE SET sealed_to = excluded.sealed_to;
  RETURN v_count;
END $$;

-- Searches sealed ranges of a day for rows that ended after they were sealed, from where the last call stopped, and
-- seals these rows. Reads about p_max_rows. Returns how many it sealed; searched_to is null when the day is finished.
CREATE OR REPLACE FUNCTION seal_late(p_day date, p_until timestamptz, p_max_rows int) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_after  uuid := (SELECT d.searched_to FROM seal_days d WHERE d.day = p_day);
  v_end    uuid := id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_until  timestamptz;
  v_range  record;
  v_looked bigint := 0;
  v_sealed bigint := 0;
BEGIN
  -- all calls of one search count as if they had sealed up to the earliest of their times
  SELECT least(p_until, d.search_until)
    INTO v_until
    FROM seal_days d
   WHERE d.day = p_day;
  FOR v_range IN
    SELECT s.from_id, s.to_id, s.row_count, n.until
      FROM seals s
     CROSS JOIN LATERAL (
            SELECT x.until
              FROM seals x
             WHERE x.kind = 'attempts'
               AND x.from_id = s.from_id
             ORDER BY x.until DESC
             LIMIT 1) n
     WHERE s.kind = 'attempts'
       AND s.since = '-infinity'
       AND s.from_id >= id_at(p_day::timestamp AT TIME ZONE 'UTC')
       AND s.from_id < v_end
       AND (v_after IS NULL OR s.from_id > v_after)
     ORDER BY s.from_id
  LOOP
    IF v_looked >= p_max_rows THEN
      UPDATE seal_days SET searched_to = v_after, search_until = v_until WHERE day = p_day;
      RETURN v_sealed;
    END IF;
    v_sealed := v_sealed + seal_range(v_range.from_id, v_range.to_id, v_range.until, greatest(p_until, v_range.until));
    v_looked := v_looked + v_range.row_count + 1;
    v_after := v_range.from_id;
  END LOOP;
  UPDATE seal_days d
     SET searched_to = NULL,
         search_until = NULL,
         sealed_until = CASE
           WHEN isfinite(v_until) AND d.sealed_to >= v_end THEN greatest(d.sealed_until, v_until)
           ELSE d.sealed_until
         END
   WHERE d.day = p_day;
  RETURN v_sealed;
END $$;

-- Seals attempts that ended at least p_delay ago, one step per call, in ranges of about p_max_rows. Returns how many
-- rows were sealed, or null if there is nothing to do at present. Days that are sealed completely are searched for late
-- rows every p_every, as long as the server's statistics count new rows.
CREATE OR REPLACE FUNCTION seal_attempts(
  p_max_rows int DEFAULT 10000,
  p_delay    interval DEFAULT '10 minutes',
  p_every    interval DEFAULT '1 hour')
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_until timestamptz;
  v_count bigint;
  v_day   record;
BEGIN
  PERFORM checked_number('p_max_rows', p_max_rows, 1, 1000000);
  PERFORM checked_interval('p_delay', p_delay, '0', '7 days');
  PERFORM checked_interval('p_every', p_every, '0', '1 day');
  IF NOT begin_sealing() THEN RETURN NULL; END IF;
  v_until := closed_attempts('attempts', p_delay);
  IF v_until = '-infinity' THEN RETURN NULL; END IF;
  DELETE FROM seal_days d
   WHERE NOT EXISTS (SELECT FROM partition_bounds('attempts') b WHERE b.day = d.day);
  FOR v_day IN
    SELECT b.day
      FROM partition_bounds('attempts') b
     WHERE NOT b.detaching
       AND b.day <= v_until::date
     ORDER BY b.day
  LOOP
    v_count := seal_fresh(v_day.day, id_at(v_until), v_until, p_max_rows, p_every);
    IF v_count IS NOT NULL THEN RETURN v_count; END IF;
  END LOOP;

  FOR v_day IN
    SELECT d.*, b.inserted AS inserted_now
      FROM seal_days d
      JOIN (SELECT x.day, pg_stat_get_tuples_inserted(x.partition) AS inserted
              FROM partition_bounds('attempts') x
             WHERE NOT x.detaching) b
        ON b.day = d.day
     WHERE d.searched_to IS NOT NULL
        OR (d.searched_at <= clock_timestamp() - p_every AND NOT (d.quiet AND d.inserted = b.inserted))
     ORDER BY d.day
     LIMIT 1
  LOOP
    IF v_day.searched_to IS NULL THEN
      -- quiet: all rows that the last search counted are old enough to be sealed by this one
      UPDATE seal_days d
         SET searched_at = clock_timestamp(),
             inserted = v_day.inserted_now,
             quiet = coalesce(v_day.inserted = v_day.inserted_now, false) AND v_until > v_day.searched_at
       WHERE d.day = v_day.day;
    END IF;
    RETURN seal_late(v_day.day, v_until, p_max_rows);
  END LOOP;
  RETURN NULL;
END $$;

-- Seals the next range of operator_actions; returns its number of rows, or null if there is nothing to seal.
CREATE OR REPLACE FUNCTION seal_actions(p_max_rows int DEFAULT 10000, p_delay interval DEFAULT '10 minutes')
RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_since  timestamptz;
  v_until  timestamptz;
  v_cut    timestamptz;
  v_count  bigint;
  v_digest bytea;
  v_leaves bytea;
BEGIN
  PERFORM checked_number('p_max_rows', p_max_rows, 1, 1000000);
  PERFORM checked_interval('p_delay', p_delay, '0', '7 days');
  IF NOT begin_sealing() THEN RETURN NULL; END IF;
  v_until := least(close_rows('actions', ARRAY['operator_actions'::regclass]), clock_timestamp() - p_delay);
  v_since := coalesce(
    (SELECT s.until FROM seals s WHERE s.kind = 'actions' ORDER BY s.number DESC LIMIT 1),
    '-infinity');
  SELECT a.at
    INTO v_cut
    FROM operator_actions a
   WHERE a.at >= v_since
     AND a.at < v_until
   ORDER BY a.at
  OFFSET p_max_rows
   LIMIT 1;
  IF v_cut > v_since THEN v_until := v_cut; END IF;
  SELECT count(*),
         sha256(coalesce(string_agg(r.digest, ''::bytea ORDER BY r.id), '')),
         coalesce(string_agg(substring(r.digest FROM 1 FOR 8), ''::bytea ORDER BY r.id), '')
    INTO v_count, v_digest, v_leaves
    FROM (SELECT a.id, action_digest(a) AS digest
            FROM operator_actions a
           WHERE a.at >= v_since
             AND a.at < v_until
          OFFSET 0) r;
  IF v_count = 0 THEN RETURN NULL; END IF;
  PERFORM append_seal('actions', NULL, NULL, v_since, v_until, v_count, v_digest, '{}', v_leaves);
  RETURN v_count;
END $$;

-- Whether retention may remove a day of attempts: its expiry is in the chain, or there is no chain.
CREATE OR REPLACE FUNCTION is_sealed_to_its_end(p_day date) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT NOT EXISTS (SELECT FROM seals)
      OR EXISTS (
           SELECT FROM seals s
            WHERE s.kind = 'expired'
              AND s.from_id = id_at(p_day::timestamp AT TIME ZONE 'UTC'))
$$;

-- Prepares a day of attempts for removal by retention: seals the rest of it, then records in the chain that it expired,
-- and after how many days: p_kept_days, or the minimum that the owner has set, if that is more. A day that still has
-- messages is prepared for thinning instead, which records itself (seal_thinning). False: call again.
-- Without a chain there is nothing to record.
CREATE OR REPLACE FUNCTION seal_expiry(p_day date, p_kept_days int, p_max_rows int DEFAULT 10000) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_from uuid := id_at(p_day::timestamp AT TIME ZONE 'UTC');
  v_to   uuid := id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_kept float8;
BEGIN
  PERFORM checked_number('p_kept_days', p_kept_days, 1, 36500);
  PERFORM checked_number('p_max_rows', p_max_rows, 1, 1000000);
  SELECT greatest(p_kept_days, max(ceil(f.attempts_days)))
    INTO v_kept
    FROM floors_of_day(p_day) f;
  PERFORM assert_read_committed('sealing');
  PERFORM take_lock('seal');
  IF is_sealed_to_its_end(p_day) THEN RETURN true; END IF;
  IF v_kept = 'infinity' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_day is %s: attempts of that day are kept for ever', p_day);
  END IF;
  IF (p_day + 1 + v_kept::int)::timestamp AT TIME ZONE 'UTC' > clock_timestamp() THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_day is %s: attempts of that day are kept until %s', p_day, p_day + 1 + v_kept::int);
  END IF;
  -- a replay may bring back any message that is still there
  IF EXISTS (SELECT FROM needed_messages(v_from, v_to))
     OR EXISTS (SELECT FROM partition_bounds('messages') b WHERE b.day = p_day) THEN
    RETURN prepare_thinning(p_day, v_from, v_to, v_kept, p_max_rows);
  END IF;
  -- no transaction writes to this day any more, so it is sealed without an upper bound
  IF seal_fresh(p_day, v_to, 'infinity', p_max_rows, '0') IS NOT NULL THEN RETURN false; END IF;
  PERFORM seal_late(p_day, 'infinity', p_max_rows);
  IF EXISTS (SELECT FROM seal_days d WHERE d.day = p_day AND d.searched_to IS NOT NULL) THEN
    RETURN false;
  END IF;
  PERFORM append_seal('expired', v_from, v_to, NULL, NULL,
                      (SELECT coalesce(sum(s.row_count), 0)::bigint
                         FROM seals s
                        WHERE s.kind = 'attempts'
                          AND s.from_id >= v_from
                          AND s.from_id < v_to),
                      sha256(''), jsonb_build_object('day', p_day, 'keptDays', v_kept), '');
  DELETE FROM seal_leaves l
   USING seals s
   WHERE s.number = l.number
     AND s.kind = 'attempts'
     AND s.from_id >= v_from
     AND s.from_id < v_to;
  RETURN true;
END $$;

-- The number of the last head that was exported to a sink outside the database, and of the last head that exists.
CREATE OR REPLACE FUNCTION export_state(p_sink text, OUT exported bigint, OUT last bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT coalesce((SELECT e.number FROM seal_exports e WHERE e.sink = p_sink), 0),
         coalesce((SELECT max(s.number) FROM seals s), 0)
$$;

-- The heads of the chain after this number, in order.
CREATE OR REPLACE FUNCTION heads_after(p_number bigint, p_limit int)
RETURNS TABLE (number bigint, head text, sealed_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT s.number, encode(s.head, 'hex'), s.sealed_at
    FROM seals s
   WHERE s.number > p_number
   ORDER BY s.number
   LIMIT p_limit
$$;

-- Records which heads a sink has, or why an export failed.
CREATE OR REPLACE FUNCTION note_export(p_sink text, p_number bigint, p_error text DEFAULT NULL) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  INSERT INTO seal_exports AS e (sink, number, exported_at, failed_at, error)
  VALUES (p_sink, p_number,
          CASE WHEN p_error IS NULL THEN clock_timestamp() END,
          CASE WHEN p_error IS NOT NULL THEN clock_timestamp() END,
          left(p_error, 500))
  ON CONFLICT (sink) DO UPDATE
     SET number = greatest(e.number, excluded.number),
         tried_at = excluded.tried_at,
         exported_at = coalesce(excluded.exported_at, e.exported_at),
         failed_at = CASE WHEN excluded.error IS NOT NULL THEN coalesce(e.failed_at, excluded.failed_at) END,
         error = excluded.error
$$;
