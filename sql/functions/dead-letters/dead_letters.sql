-- Operator actions on dead letters. Each is recorded in operator_actions with its actor. A dead letter that is retried
-- is new work: the earlier attempts stay, claim numbers go on, and tries start again at 0.

-- Whether a dead letter matches a filter; null matches all. The planner inlines it, which it could not do with a
-- search_path of its own.
CREATE OR REPLACE FUNCTION dead_letter_matches(
  p_letter      dead_letters,
  p_ids         uuid[],
  p_error_code  text,
  p_topic       text,
  p_tenant_id   text,
  p_dead_before timestamptz)
RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
  SELECT (p_ids IS NULL OR p_letter.message_id = ANY (p_ids))
     AND (p_error_code IS NULL OR p_letter.error_code = p_error_code)
     AND (p_topic IS NULL OR p_letter.topic = p_topic)
     AND (p_tenant_id IS NULL OR p_letter.tenant_id = p_tenant_id)
     AND (p_dead_before IS NULL OR p_letter.dead_at < p_dead_before)
$$;

-- How many dead letters match; counting stops at max_count. It does not use find_dead_letters, which would build whole
-- letters.
CREATE OR REPLACE FUNCTION count_dead_letters(
  destination text DEFAULT NULL,
  ids         uuid[] DEFAULT NULL,
  error_code  text DEFAULT NULL,
  topic       text DEFAULT NULL,
  tenant_id   text DEFAULT NULL,
  dead_before timestamptz DEFAULT NULL,
  max_count   int DEFAULT 100000)
RETURNS int
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
  v_destination_id int := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  RETURN (
    SELECT count(*)
      FROM (SELECT
              FROM dead_letters d
             WHERE (v_destination_id IS NULL OR d.destination_id = v_destination_id)
               AND dead_letter_matches(d, count_dead_letters.ids, count_dead_letters.error_code,
                                       count_dead_letters.topic, count_dead_letters.tenant_id,
                                       count_dead_letters.dead_before)
             LIMIT max_count) x);
END $$;

-- The dead letters that match, oldest first: the filter that listing, retry, skip and discard share. only_those:
-- 'sendable', those that a retry requeues; 'blocking', those that block a key; 'expired', those that retention may
-- discard; null, all of them.
CREATE OR REPLACE FUNCTION find_dead_letters(
  destination text DEFAULT NULL,
  ids         uuid[] DEFAULT NULL,
  error_code  text DEFAULT NULL,
  topic       text DEFAULT NULL,
  tenant_id   text DEFAULT NULL,
  dead_before timestamptz DEFAULT NULL,
  max_count   int DEFAULT 1000,
  only_those  text DEFAULT NULL)
RETURNS SETOF dead_letters
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
  v_destination_id int := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  RETURN QUERY
    SELECT d.*
      FROM dead_letters d
     WHERE (v_destination_id IS NULL OR d.destination_id = v_destination_id)
       AND dead_letter_matches(d, find_dead_letters.ids, find_dead_letters.error_code, find_dead_letters.topic,
                               find_dead_letters.tenant_id, find_dead_letters.dead_before)
       AND CASE only_those
             -- without its message it can only be discarded; a parked one returns only with the dead letter that
             -- blocks it
             WHEN 'sendable' THEN
               d.payload IS NOT NULL
               AND NOT (d.reason = 'parked' AND EXISTS (
                     SELECT FROM lanes l
                      WHERE l.destination_id = d.destination_id
                        AND l.key_id = d.key_id
                        AND l.blocked_by IS NOT NULL))
             WHEN 'blocking' THEN
               EXISTS (
                 SELECT FROM lanes l
                  WHERE l.blocked_by = d.message_id
                    AND l.destination_id = d.destination_id)
             -- retention does not unblock lanes, which is an operator's decision, and keeps to the retention floors
             WHEN 'expired' THEN
               d.reason <> 'parked'
               AND NOT EXISTS (
                     SELECT FROM retention_floors r
                      WHERE route_matches(r.topic, r.namespace, NULL, d.topic, d.namespace, NULL)
                        AND d.dead_at >= expired_before(r.dead_letters_days))
               AND NOT EXISTS (
                     SELECT FROM lanes l
                      WHERE l.blocked_by = d.message_id
                        AND l.destination_id = d.destination_id)
             ELSE true
           END
     ORDER BY d.dead_at, d.message_id
     LIMIT max_count;
END $$;

-- Takes the lock that serializes changes of dead letters, until the end of the transaction. If another session holds
-- it, this one waits for at most p_most, or lock_timeout if that is shorter, and then raises an error that names the
-- session.
CREATE OR REPLACE FUNCTION lock_dead_letters(p_most interval DEFAULT '10 seconds') RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_timeout text := current_setting('lock_timeout');
  v_holder  int;
BEGIN
  IF try_lock('dead letters') THEN RETURN; END IF;
  IF v_timeout::interval = '0' OR v_timeout::interval > p_most THEN
    PERFORM set_config('lock_timeout', (extract(epoch FROM p_most) * 1000)::int::text, true);
  END IF;
  BEGIN
    PERFORM take_lock('dead letters');
  EXCEPTION WHEN lock_not_available THEN
    v_holder := lock_holder('dead letters');
    RAISE EXCEPTION USING ERRCODE = '55P03',
      MESSAGE = format('dead letters are being changed by %s in a transaction that has not ended: '
                       'nothing was changed here, try again when it has',
                       coalesce('session ' || v_holder, 'another session')),
      HINT = coalesce('To end it: SELECT pg_terminate_backend(' || v_holder || ').', 'It has ended meanwhile.');
  END;
  PERFORM set_config('lock_timeout', v_timeout, true);
END $$;

-- Requeues dead letters, at most max_count per call: a caller with many repeats it in short transactions until it gets
-- 0. Calls are serialized: of two that choose the same letters, the second would get none and conclude that none are
-- left.
CREATE OR REPLACE FUNCTION retry_dead_letters(
  destination text DEFAULT NULL,
  ids         uuid[] DEFAULT NULL,
  error_code  text DEFAULT NULL,
  topic       text DEFAULT NULL,
  tenant_id   text DEFAULT NULL,
  dead_before timestamptz DEFAULT NULL,
  max_count   int DEFAULT 1000,
  actor       text DEFAULT NULL)
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
      FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, 'sendable') f),
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
      jsonb_build_object('destination', destination, 'ids', ids, 'errorCode', error_code, 'topic', topic,
                         'tenantId', tenant_id, 'deadBefore', dead_before),
      v_count);
    PERFORM notify_relays(v_targets);
  END IF;
  RETURN v_count;
END $$;

-- Discards dead letters, at most max_count per call, and unblocks the keys that they block: the messages behind them
-- are delivered. Each gets an attempt with the state discarded. only_those: 'expired' leaves out those that block a
-- key, are parked or are protected by a retention floor. Returns how many.
CREATE OR REPLACE FUNCTION discard_dead_letters(
  destination text DEFAULT NULL,
  ids         uuid[] DEFAULT NULL,
  error_code  text DEFAULT NULL,
  topic       text DEFAULT NULL,
  tenant_id   text DEFAULT NULL,
  dead_before timestamptz DEFAULT NULL,
  max_count   int DEFAULT 1000,
  actor       text DEFAULT NULL,
  only_those  text DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_count   int;
  v_targets int[];
  v_ids     uuid[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  PERFORM lock_dead_letters();
  WITH chosen AS MATERIALIZED (
    SELECT f.message_id, f.destination_id
      FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, only_those) f),
  -- parked letters behind a discarded one that match the filter go with it; the others are sent
  followers AS MATERIALIZED (
    SELECT p.message_id, p.destination_id
      FROM chosen c
      JOIN lanes l ON l.blocked_by = c.message_id AND l.destination_id = c.destination_id
      JOIN dead_letters p ON p.destination_id = l.destination_id AND p.key_id = l.key_id AND p.reason = 'parked'
     WHERE dead_letter_matches(p, discard_dead_letters.ids, discard_dead_letters.error_code, discard_dead_letters.topic,
                               discard_dead_letters.tenant_id, discard_dead_letters.dead_before)),
  removed AS (
    DELETE FROM dead_letters d
     USING (SELECT * FROM chosen UNION SELECT * FROM followers) c
     WHERE d.message_id = c.message_id
       AND d.destination_id = c.destination_id
    RETURNING d.*),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT r.message_id, r.destination_id, r.claim_no + 1, r.tries, 'discarded', clock_timestamp(), r.error_code
      FROM removed r)
  SELECT count(*), array_agg(r.destination_id), array_agg(r.message_id)
    INTO v_count, v_targets, v_ids
    FROM removed r;
  IF v_count > 0 THEN
    IF (unblock_lanes(v_targets, v_ids, true)).unblocked > 0 THEN PERFORM notify_relays(v_targets); END IF;
    PERFORM record_action(
      actor, 'discard_dead_letters',
      jsonb_build_object('destination', destination, 'ids', ids, 'errorCode', error_code, 'topic', topic,
                         'tenantId', tenant_id, 'deadBefore', dead_before),
      v_count);
  END IF;
  RETURN v_count;
END $$;

-- Unblocks the keys that matching dead letters block: the messages behind them are delivered, and the letters stay
-- dead. Returns how many keys were unblocked.
CREATE OR REPLACE FUNCTION skip_dead_letters(
  destination text DEFAULT NULL,
  ids         uuid[] DEFAULT NULL,
  error_code  text DEFAULT NULL,
  topic       text DEFAULT NULL,
  tenant_id   text DEFAULT NULL,
  dead_before timestamptz DEFAULT NULL,
  max_count   int DEFAULT 1000,
  actor       text DEFAULT NULL)
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
    FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, 'blocking') f;
  IF v_ids IS NOT NULL THEN v_count := (unblock_lanes(v_targets, v_ids, true)).unblocked; END IF;
  IF v_count > 0 THEN
    PERFORM record_action(
      actor, 'skip_dead_letters',
      jsonb_build_object('destination', destination, 'ids', ids, 'errorCode', error_code, 'topic', topic,
                         'tenantId', tenant_id, 'deadBefore', dead_before),
      v_count);
    PERFORM notify_relays(v_targets);
  END IF;
  RETURN v_count;
END $$;
