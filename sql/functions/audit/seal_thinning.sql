-- Seals and thinning: retention removes most attempts of a day and keeps those of messages that are still needed. The
-- chain says which rows stay. Each of these can still be compared with the seal that it had before: for a range that
-- loses some of its rows, the digests of all of them are kept.

-- Seals the rest of a day, and keeps the digests of the ranges that will lose only some of their rows. False: call
-- again.
CREATE OR REPLACE FUNCTION prepare_thinning(p_day date, p_from uuid, p_to uuid, p_kept_days float8, p_max_rows int)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_until  timestamptz := closed_attempts('attempts', '10 minutes');
  v_seal   seals;
  v_looked bigint := 0;
BEGIN
  IF v_until = '-infinity' THEN
    RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = 'open transactions may still add attempts';
  END IF;
  IF seal_fresh(p_day, p_to, v_until, p_max_rows, '0') IS NOT NULL THEN RETURN false; END IF;
  PERFORM seal_late(p_day, v_until, p_max_rows);
  IF EXISTS (SELECT FROM seal_days d WHERE d.day = p_day AND d.searched_to IS NOT NULL) THEN
    RETURN false;
  END IF;
  FOR v_seal IN
    SELECT s.*
      FROM seals s
      JOIN seal_leaves l ON l.number = s.number
     WHERE s.kind = 'attempts'
       AND s.from_id >= p_from
       AND s.from_id < p_to
       AND octet_length(l.leaves) = 8 * s.row_count
       AND EXISTS (
             SELECT FROM messages m
               JOIN attempts a ON a.message_id = m.id
              WHERE m.id >= s.from_id
                AND m.id < s.to_id
                AND a.ended_at >= s.since
                AND a.ended_at < s.until)
     ORDER BY s.number
  LOOP
    IF v_looked >= p_max_rows THEN RETURN false; END IF;
    PERFORM widen_leaves(v_seal);
    v_looked := v_looked + v_seal.row_count;
  END LOOP;
  UPDATE seal_days d SET kept_days = p_kept_days WHERE d.day = p_day;
  RETURN true;
END $$;

-- Keeps the whole digest of each row of a range, in the place of its first bytes. Rows that are not as they were sealed
-- stay, so that verify finds them.
CREATE OR REPLACE FUNCTION widen_leaves(p_seal seals) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_digests bytea;
BEGIN
  SELECT coalesce(string_agg(r.digest, ''::bytea ORDER BY r.message_id, r.destination_id, r.claim_no), '')
    INTO v_digests
    FROM (SELECT a.message_id, a.destination_id, a.claim_no, attempt_digest(a) AS digest
            FROM attempts a
           WHERE a.message_id >= p_seal.from_id
             AND a.message_id < p_seal.to_id
             AND a.ended_at >= p_seal.since
             AND a.ended_at < p_seal.until
          OFFSET 0) r;
  IF sha256(v_digests) <> p_seal.digest THEN PERFORM refuse_changed(p_seal.number); END IF;
  INSERT INTO seal_leaves AS l (number, leaves)
  VALUES (p_seal.number, v_digests)
  ON CONFLICT (number) DO UPDATE SET leaves = excluded.leaves;
END $$;

-- Refuses to thin a day whose rows are not those that were sealed.
CREATE OR REPLACE FUNCTION refuse_changed(p_number bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = '55P03',
    MESSAGE = format('the attempts of seal %s are not as they were sealed', p_number),
    HINT = 'Run waybill audit verify. Retention keeps the day.';
END $$;

-- The time before which all attempts of a day are sealed: thinning keeps the others. Without a chain, none has to be.
CREATE OR REPLACE FUNCTION sealed_until(p_day date) RETURNS timestamptz
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_until timestamptz;
BEGIN
  IF NOT EXISTS (SELECT FROM seals) THEN RETURN 'infinity'; END IF;
  SELECT d.sealed_until
    INTO v_until
    FROM seal_days d
   WHERE d.day = p_day
     AND d.kept_days IS NOT NULL;
  IF v_until IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55P03',
      MESSAGE = format('the attempts of %s are not sealed', p_day),
      HINT = 'Call seal_expiry first, until it returns true.';
  END IF;
  RETURN v_until;
END $$;

-- Records in the chain which attempts of a day stay: those of the copy that ended before p_until. It is called in the
-- transaction that puts the copy in the place of the partition. A row that is missing already must not count as
-- removed by retention: the rows that the last thinning kept must be there, and as many rows of each later range as
-- were sealed.
CREATE OR REPLACE FUNCTION seal_thinning(p_day date, p_copy text, p_until timestamptz) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC' SET jit = off
AS $$
DECLARE
  v_from   uuid := id_at(p_day::timestamp AT TIME ZONE 'UTC');
  v_to     uuid := id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC');
  v_last   seals;
  v_seal   seals;
  v_count  bigint;
  v_digest bytea;
BEGIN
  IF NOT EXISTS (SELECT FROM seals) THEN RETURN; END IF;
  PERFORM take_lock('seal');
  SELECT s.*
    INTO v_last
    FROM seals s
   WHERE s.kind = 'thinned'
     AND s.from_id = v_from
   ORDER BY s.number DESC
   LIMIT 1;
  IF FOUND THEN
    SELECT sha256(coalesce(string_agg(r.digest, ''::bytea ORDER BY r.message_id, r.destination_id, r.claim_no), ''))
      INTO v_digest
      FROM (SELECT a.message_id, a.destination_id, a.claim_no, attempt_digest(a) AS digest
              FROM attempts a
             WHERE a.message_id >= v_from
               AND a.message_id < v_to
               AND a.ended_at < v_last.until
            OFFSET 0) r;
    IF v_digest <> v_last.digest THEN PERFORM refuse_changed(v_last.number); END IF;
  END IF;
  FOR v_seal IN
    SELECT s.*
      FROM seals s
     WHERE s.kind = 'attempts'
       AND s.from_id >= v_from
       AND s.from_id < v_to
     ORDER BY s.number
  LOOP
    EXECUTE format('SELECT count(*) FROM %I a
                     WHERE a.message_id >= $1 AND a.message_id < $2 AND a.ended_at >= $3 AND a.ended_at < $4', p_copy)
      INTO v_count
      USING v_seal.from_id, v_seal.to_id, v_seal.since, v_seal.until;
    IF v_count = 0 THEN
      IF v_seal.number > coalesce(v_last.number, 0)
         AND v_seal.row_count <> (
               SELECT count(*)
                 FROM attempts a
                WHERE a.message_id >= v_seal.from_id
                  AND a.message_id < v_seal.to_id
                  AND a.ended_at >= v_seal.since
                  AND a.ended_at < v_seal.until) THEN
        PERFORM refuse_changed(v_seal.number);
      END IF;
      DELETE FROM seal_leaves l WHERE l.number = v_seal.number;
    ELSIF NOT EXISTS (
            SELECT FROM seal_leaves l
             WHERE l.number = v_seal.number
               AND octet_length(l.leaves) = 32 * v_seal.row_count) THEN
      PERFORM widen_leaves(v_seal);
    END IF;
  END LOOP;
  EXECUTE format(
    'SELECT count(*),
            sha256(coalesce(string_agg(attempt_digest(ROW(a.*)::attempts), $2
                                       ORDER BY a.message_id, a.destination_id, a.claim_no), $2))
       FROM %I a
      WHERE a.ended_at < $1', p_copy)
    INTO v_count, v_digest
    USING p_until, ''::bytea;
  PERFORM append_seal('thinned', v_from, v_to, '-infinity', p_until, v_count, v_digest,
                      jsonb_build_object('day', p_day, 'keptDays', (
                        SELECT d.kept_days FROM seal_days d WHERE d.day = p_day)), '');
  -- the server counts the rows of the new table from the beginning
  UPDATE seal_days d SET inserted = NULL, quiet = false, kept_days = NULL WHERE d.day = p_day;
END $$;
