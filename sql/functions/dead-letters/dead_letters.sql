-- Operator actions on dead letters. Each is recorded in operator_actions with its actor. A dead letter that is retried
-- is new work: the earlier attempts stay, claim numbers go on, and tries start again at 0. One that was discarded can
-- be restored until retention removes its message: it is a dead letter again, with its tries, error and time of death.

-- Takes the lock that serializes changes of dead letters, until the end of the transaction. Waits for at most p_most.
CREATE OR REPLACE FUNCTION lock_dead_letters(p_most interval DEFAULT '10 seconds') RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT take_lock_within('dead letters', 'dead letters are being changed', p_most)
$$;

-- Requeues dead letters, at most max_count per call; letters that are parked behind them are requeued and counted too.
-- A caller with many repeats it in short transactions until it gets 0. Calls are serialized: of two that choose the
-- same letters, the second would get none and conclude that none are left. job_id: the job that retries them, which
-- remembers the first 1,000 of them.
CREATE OR REPLACE FUNCTION retry_dead_letters(
  destination  text DEFAULT NULL,
  ids          uuid[] DEFAULT NULL,
  error_code   text DEFAULT NULL,
  topic        text DEFAULT NULL,
  tenant_id    text DEFAULT NULL,
  dead_before  timestamptz DEFAULT NULL,
  max_count    int DEFAULT 1000,
  actor        text DEFAULT NULL,
  causes       text[] DEFAULT NULL,
  destinations text[] DEFAULT NULL,
  job_id       uuid DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_count   int;
  v_targets int[];
  v_ids     uuid[];
  v_keys    bigint[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000),
          limit_tenant('retry of dead letters', 600, '1 minute');
  PERFORM lock_dead_letters();
  WITH chosen AS MATERIALIZED (
    SELECT f.message_id, f.destination_id
      FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, 'sendable',
                             causes, destinations) f),
  raised AS (
    DELETE FROM dead_letters d
     USING chosen c
     WHERE d.message_id = c.message_id
       AND d.destination_id = c.destination_id
    RETURNING d.*),
  waiting AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, claim_no, tries, bytes, namespace, tenant_id,
                            key_id, sequence)
    SELECT r.message_id, r.destination_id, clock_timestamp(), r.claim_no, 0, r.bytes, r.namespace,
           fair_tenant(t.fairness, r.tenant_id), r.key_id, r.sequence
      FROM raised r
      JOIN destinations t ON t.id = r.destination_id
    RETURNING message_id, destination_id, key_id)
  SELECT count(*), array_agg(w.destination_id), array_agg(w.message_id), array_agg(w.key_id)
    INTO v_count, v_targets, v_ids, v_keys
    FROM waiting w;
  IF v_count > 0 THEN
    PERFORM recheck_lanes(v_targets, v_keys);
    v_count := v_count + (unblock_lanes(v_targets, v_ids, false)).unparked;
    PERFORM record_action(
      actor, 'retry_dead_letters',
      dead_letter_subject(destination, ids, error_code, topic, tenant_id, dead_before, causes, destinations),
      v_count);
    PERFORM notify_relays(v_targets);
    -- last, because it locks the job, and a cancel should not wait
    UPDATE jobs j
       SET retried_ids = (j.retried_ids || v_ids)[1:1000],
           retried_to = (j.retried_to || v_targets)[1:1000]
     WHERE j.id = retry_dead_letters.job_id
       AND cardinality(j.retried_ids) < 1000;
  END IF;
  RETURN v_count;
END $$;

-- Discards dead letters, at most max_count per call; letters that are parked behind them and match the filter are
-- discarded and counted too. Unblocks the keys that they block: the other messages behind them are delivered. Each
-- letter gets an attempt with the state discarded, and can be restored (restore_dead_letters) while its message is
-- kept. only_those: 'expired' leaves out those that block a key, are parked or are protected by a retention floor.
-- job_id: the job that discards them. Returns how many.
CREATE OR REPLACE FUNCTION discard_dead_letters(
  destination  text DEFAULT NULL,
  ids          uuid[] DEFAULT NULL,
  error_code   text DEFAULT NULL,
  topic        text DEFAULT NULL,
  tenant_id    text DEFAULT NULL,
  dead_before  timestamptz DEFAULT NULL,
  max_count    int DEFAULT 1000,
  actor        text DEFAULT NULL,
  only_those   text DEFAULT NULL,
  causes       text[] DEFAULT NULL,
  destinations text[] DEFAULT NULL,
  job_id       uuid DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_count   int;
  v_targets int[];
  v_ids     uuid[];
  v_letters text[] := letters_at(ids, destinations);
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  PERFORM lock_dead_letters();
  WITH chosen AS MATERIALIZED (
    SELECT f.message_id, f.destination_id
      FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, only_those, causes,
                             destinations) f),
  -- parked letters behind a discarded one that match the filter go with it; the others are sent
  followers AS MATERIALIZED (
    SELECT p.message_id, p.destination_id
      FROM chosen c
      JOIN lanes l ON l.blocked_by = c.message_id AND l.destination_id = c.destination_id
      JOIN dead_letters p ON p.destination_id = l.destination_id AND p.key_id = l.key_id AND p.reason = 'parked'
     WHERE dead_letter_matches(p, discard_dead_letters.ids, discard_dead_letters.error_code, discard_dead_letters.topic,
                               discard_dead_letters.tenant_id, discard_dead_letters.dead_before, causes, v_letters)),
  removed AS (
    DELETE FROM dead_letters d
     USING (SELECT * FROM chosen UNION SELECT * FROM followers) c
     WHERE d.message_id = c.message_id
       AND d.destination_id = c.destination_id
    RETURNING d.*),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT r.message_id, r.destination_id, r.claim_no + 1, r.tries, 'discarded', clock_timestamp(), r.error_code
      FROM removed r),
  -- for an undo; one whose message is gone cannot be restored, and retention needs no undo
  remembered AS (
    INSERT INTO discarded_letters AS x (message_id, destination_id, discarded_at, dead_at, claim_no, tries, reason,
                                        error_code, remote_code, error_message, lane_sequence, job_id)
    SELECT r.message_id, r.destination_id, clock_timestamp(), r.dead_at, r.claim_no + 1, r.tries, r.reason,
           r.error_code, r.remote_code, r.error_message, l.last_sequence, discard_dead_letters.job_id
      FROM removed r
      LEFT JOIN lanes l ON l.blocked_by = r.message_id AND l.destination_id = r.destination_id
     WHERE r.payload IS NOT NULL
       AND only_those IS DISTINCT FROM 'expired'
    -- it was discarded, replayed, and died again
    ON CONFLICT (message_id, destination_id) DO UPDATE
       SET discarded_at = excluded.discarded_at, dead_at = excluded.dead_at, claim_no = excluded.claim_no,
           tries = excluded.tries, reason = excluded.reason, error_code = excluded.error_code,
           remote_code = excluded.remote_code, error_message = excluded.error_message,
           lane_sequence = excluded.lane_sequence, job_id = excluded.job_id)
  SELECT count(*), array_agg(r.destination_id), array_agg(r.message_id)
    INTO v_count, v_targets, v_ids
    FROM removed r;
  IF v_count > 0 THEN
    IF (unblock_lanes(v_targets, v_ids, true)).unblocked > 0 THEN PERFORM notify_relays(v_targets); END IF;
    PERFORM record_action(
      actor, 'discard_dead_letters',
      dead_letter_subject(destination, ids, error_code, topic, tenant_id, dead_before, causes, destinations),
      v_count);
  END IF;
  RETURN v_count;
END $$;

-- Unblocks the keys that matching dead letters block: the messages behind them are delivered, and the letters stay
-- dead. Returns how many keys were unblocked.
CREATE OR REPLACE FUNCTION skip_dead_letters(
  destination  text DEFAULT NULL,
  ids          uuid[] DEFAULT NULL,
  error_code   text DEFAULT NULL,
  topic        text DEFAULT NULL,
  tenant_id    text DEFAULT NULL,
  dead_before  timestamptz DEFAULT NULL,
  max_count    int DEFAULT 1000,
  actor        text DEFAULT NULL,
  causes       text[] DEFAULT NULL,
  destinations text[] DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_targets int[];
  v_ids     uuid[];
  v_count   int := 0;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  PERFORM lock_dead_letters();
  SELECT array_agg(f.destination_id), array_agg(f.message_id)
    INTO v_targets, v_ids
    FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, 'blocking', causes,
                           destinations) f;
  IF v_ids IS NOT NULL THEN v_count := (unblock_lanes(v_targets, v_ids, true)).unblocked; END IF;
  IF v_count > 0 THEN
    PERFORM record_action(
      actor, 'skip_dead_letters',
      dead_letter_subject(destination, ids, error_code, topic, tenant_id, dead_before, causes, destinations),
      v_count);
    PERFORM notify_relays(v_targets);
  END IF;
  RETURN v_count;
END $$;

-- Restores discarded dead letters, at most max_count per call: those of ids, or those that a job discarded. One that
-- was replayed since, or whose message is gone, is left out for good. Returns how many were restored; 0: none is left.
--
-- The key of a letter that blocked it has continued since. It is blocked again only if nothing behind the letter has
-- ended or is in flight; otherwise the letter stays dead without blocking, as after a skip.
CREATE OR REPLACE FUNCTION restore_dead_letters(
  ids         uuid[] DEFAULT NULL,
  destination text DEFAULT NULL,
  job_id      uuid DEFAULT NULL,
  max_count   int DEFAULT 1000,
  actor       text DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_tried    int;
  v_restored int;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  IF (ids IS NULL) = (job_id IS NULL) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = CASE WHEN ids IS NULL THEN 'ids and job_id are null: give one of them'
                     ELSE 'ids and job_id are given: give one of them'
                END;
  END IF;
  PERFORM assert_read_committed('restore_dead_letters');
  LOOP
    SELECT s.tried, s.restored
      INTO v_tried, v_restored
      FROM restore_some_letters(ids, destination, job_id, NULL, max_count, actor) s;
    EXIT WHEN v_tried = 0 OR v_restored > 0;
  END LOOP;
  RETURN v_restored;
END $$;

-- Tries to restore the first p_max discarded letters of ids, or of a job; p_tenant_id: only of this tenant. Each is
-- restored, or left out for good; so a caller that repeats it in short transactions has ended when tried is 0, also if
-- a transaction was lost.
CREATE OR REPLACE FUNCTION restore_some_letters(
  p_ids         uuid[],
  p_destination text,
  p_job_id      uuid,
  p_tenant_id   text,
  p_max         int,
  p_actor       text,
  OUT tried     int,
  OUT restored  int)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_destination_id int := CASE WHEN p_destination IS NOT NULL THEN (find_destination(p_destination)).id END;
  v_ids            uuid[];
  v_targets        int[];
BEGIN
  -- a replay of the same messages waits, or has ended. Taken first: while this waits, dead letters can be changed.
  PERFORM take_lock_within('move', 'messages are being replayed or moved', '10 seconds');
  PERFORM lock_dead_letters();
  SELECT array_agg(x.message_id), array_agg(x.destination_id), count(*)
    INTO v_ids, v_targets, tried
    FROM (SELECT d.message_id, d.destination_id
            FROM discarded_letters d
           WHERE (p_ids IS NULL OR d.message_id = ANY (p_ids))
             AND (p_job_id IS NULL OR d.job_id = p_job_id)
             AND (v_destination_id IS NULL OR d.destination_id = v_destination_id)
             -- a sub-query with LIMIT makes it one index look-up per letter
             AND (p_tenant_id IS NULL
                  OR (SELECT m.tenant_id
                        FROM messages m
                       WHERE m.id = d.message_id
                       LIMIT 1) = p_tenant_id)
           ORDER BY d.message_id, d.destination_id
           LIMIT p_max) x;
  restored := CASE WHEN tried > 0 THEN put_back_letters(v_ids, v_targets) ELSE 0 END;
  IF restored > 0 THEN
    PERFORM record_action(
      p_actor, 'restore_dead_letters',
      jsonb_strip_nulls(jsonb_build_object('destination', p_destination, 'ids', p_ids, 'tenantId', p_tenant_id,
                                           'job', p_job_id)),
      restored);
  END IF;
END $$;

-- How many discarded letters of ids, or of a job, may be restored; counting stops at 100,000. p_tenant_id: only of this
-- tenant.
CREATE OR REPLACE FUNCTION count_discarded_letters(
  p_ids         uuid[],
  p_destination text,
  p_job_id      uuid,
  p_tenant_id   text)
RETURNS int
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT count(*)::int
    FROM (SELECT
            FROM discarded_letters d
           WHERE (p_ids IS NULL OR d.message_id = ANY (p_ids))
             AND (p_job_id IS NULL OR d.job_id = p_job_id)
             AND (p_destination IS NULL OR d.destination_id = (SELECT (find_destination(p_destination)).id))
             AND (p_tenant_id IS NULL
                  OR (SELECT m.tenant_id
                        FROM messages m
                       WHERE m.id = d.message_id
                       LIMIT 1) = p_tenant_id)
           LIMIT 100000) x
$$;

-- Moves these discarded letters back to the dead letters, as far as they are still discarded and have their message,
-- and blocks their keys again where that is possible. The caller has the locks. Returns how many were moved.
CREATE OR REPLACE FUNCTION put_back_letters(p_ids uuid[], p_destination_ids int[]) RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_lowest  uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i LIMIT 1);
  v_highest uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i DESC LIMIT 1);
  v_targets int[];
  v_ids     uuid[];
  v_keys    bigint[];
  v_lasts   bigint[];
BEGIN
  -- FOR SHARE: retention sees the lock and keeps the partitions
  PERFORM
     FROM messages m
    WHERE m.id = ANY (p_ids)
      AND m.id BETWEEN v_lowest AND v_highest
      FOR SHARE;
  -- one statement and thus one snapshot: each message is seen in exactly one place, whatever relays do meanwhile
  WITH taken AS (
    DELETE FROM discarded_letters d
     USING unnest(p_ids, p_destination_ids) c(message_id, destination_id)
     WHERE d.message_id = c.message_id
       AND d.destination_id = c.destination_id
    RETURNING d.*),
  held AS MATERIALIZED (
    SELECT u.message_id, l.destination_id, max(u.claim_no) AS claim_no
      FROM leases l, unnest(l.message_ids, l.claim_nos) u(message_id, claim_no)
     WHERE u.message_id = ANY (p_ids)
     GROUP BY u.message_id, l.destination_id),
  restored AS (
    INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, remote_code,
                              error_message, created_at, key_id, sequence, bytes, namespace, topic, tenant_id, key,
                              dedupe_key, aggregate_type, aggregate_id, headers, payload)
    SELECT t.message_id, t.destination_id, t.dead_at, t.claim_no, t.tries, t.reason, t.error_code, t.remote_code,
           t.error_message, m.created_at, m.key_id, m.sequence, m.bytes, m.namespace, m.topic, m.tenant_id, m.key,
           m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
      FROM taken t
      JOIN destinations d ON d.id = t.destination_id
     CROSS JOIN LATERAL (
            SELECT x.*
              FROM messages x
             WHERE x.id = t.message_id
               AND x.id BETWEEN v_lowest AND v_highest
            OFFSET 0) m
     WHERE NOT EXISTS (
             SELECT FROM deliveries x
              WHERE x.message_id = t.message_id
                AND x.destination_id = t.destination_id)
       AND NOT EXISTS (
             SELECT FROM dead_letters x
              WHERE x.message_id = t.message_id
                AND x.destination_id = t.destination_id)
       AND NOT EXISTS (
             SELECT FROM held h
              WHERE h.message_id = t.message_id
                AND h.destination_id = t.destination_id
                AND h.claim_no > t.claim_no)
       AND NOT EXISTS (
             SELECT FROM attempts x
              WHERE x.message_id = t.message_id
                AND x.message_id BETWEEN v_lowest AND v_highest
                AND x.destination_id = t.destination_id
                AND x.claim_no > t.claim_no)
    RETURNING message_id, destination_id, key_id)
  SELECT array_agg(r.destination_id), array_agg(r.message_id), array_agg(r.key_id), array_agg(t.lane_sequence)
    INTO v_targets, v_ids, v_keys, v_lasts
    FROM restored r
    JOIN taken t ON t.message_id = r.message_id AND t.destination_id = r.destination_id;
  IF v_ids IS NULL THEN RETURN 0; END IF;
  PERFORM block_again(v_targets, v_ids, v_keys, v_lasts);
  RETURN cardinality(v_ids);
END $$;

-- Removes discarded letters whose message retention has removed, of those that were discarded longer ago than
-- p_older_than. The call that finds no more has looked at all of them, with one index look-up each. Most of those that
-- go are the oldest, which are looked at first.
CREATE OR REPLACE FUNCTION prune_discarded_letters(p_older_than interval DEFAULT '1 day', p_batch int DEFAULT 1000)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count int;
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  PERFORM checked_interval('p_older_than', p_older_than, '0', '100 years');
  -- the statement below is planned over all partitions
  IF NOT EXISTS (SELECT FROM discarded_letters) THEN RETURN 0; END IF;
  -- a sub-query with LIMIT makes it one index look-up per letter
  DELETE FROM discarded_letters
   WHERE ctid = ANY (ARRAY (
           SELECT d.ctid
             FROM discarded_letters d
            WHERE d.discarded_at < now() - p_older_than
              AND (SELECT 1
                     FROM messages m
                    WHERE m.id = d.message_id
                    LIMIT 1) IS NULL
            ORDER BY d.message_id
            LIMIT p_batch
              FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;
