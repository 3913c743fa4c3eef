-- Settle: how claims end. Everything that ends a claim (a settle, a release, the reaper) does it under the
-- lock of its lease's row, so nobody else can end it meanwhile; a claim that was ended before is left alone.
-- The attempts' primary key stands behind that: a second ending would fail, loudly.
--
-- Three functions append the endings: deliver_lease for the usual lease, all of it delivered and told at once;
-- end_delivered for a part of one, with a plan that is made once; and end_claims for everything else, planned
-- at every call, because it reads messages and the ids tell which partitions.

-- A lock that was waited for must be followed by a fresh snapshot, or what was recorded meanwhile goes unseen.
CREATE OR REPLACE FUNCTION assert_read_committed(p_what text) RETURNS void LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = '25001', MESSAGE = format('%s works in READ COMMITTED only, not in %s', p_what,
      upper(current_setting('transaction_isolation')));
  END IF;
END $$;

CREATE OR REPLACE FUNCTION count_down_lease(p_lease leases, p_ended int) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  IF p_ended >= p_lease.remaining THEN
    DELETE FROM leases WHERE id = p_lease.id;
  ELSIF p_ended > 0 THEN
    UPDATE leases SET remaining = remaining - p_ended WHERE id = p_lease.id;
  END IF;
END $$;

-- The short way for a lease of which nothing was told yet and everything was delivered: the lease knows what it
-- holds, so only the latencies travel, and the receipts if there are any, in the order of the claim. Returns how
-- many that was; 0 means that it is not such a lease, or not this relay's any more, and settle must look at each
-- message.
CREATE OR REPLACE FUNCTION deliver_lease(
  p_lease_id uuid, p_relay_id uuid, p_latency_ms int[], p_remote_codes text[] DEFAULT NULL, p_references text[] DEFAULT NULL,
  p_responses text[] DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_lease leases;
  v_now   timestamptz;
BEGIN
  PERFORM assert_read_committed('settle');
  SELECT * INTO v_lease FROM leases
   WHERE id = p_lease_id AND relay_id = p_relay_id AND remaining = cardinality(message_ids)
     AND remaining = cardinality(p_latency_ms) FOR UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  v_now := clock_timestamp();
  INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at, latency_ms,
                        remote_code, reference, response)
  SELECT l.message_id, v_lease.destination_id, l.claim_no, l.tries, 'dispatched'::attempt_state, v_lease.relay_id,
         v_lease.claimed_at, v_now, l.latency_ms, left(l.remote_code, 100), l.reference, l.response
    FROM unnest(v_lease.message_ids, v_lease.claim_nos, v_lease.tries, p_latency_ms, p_remote_codes, p_references, p_responses)
         l(message_id, claim_no, tries, latency_ms, remote_code, reference, response);
  DELETE FROM leases WHERE id = p_lease_id;
  IF v_lease.stream_ids IS NOT NULL THEN
    PERFORM free_lanes(v_lease.destination_id, v_lease.id, x.streams, x.lasts)
       FROM (SELECT array_agg(l.stream_id), array_agg(l.last)
               FROM (SELECT u.stream_id, max(u.sequence) FROM unnest(v_lease.stream_ids, v_lease.sequences) u(stream_id, sequence)
                      WHERE u.stream_id IS NOT NULL GROUP BY u.stream_id) l(stream_id, last)) x(streams, lasts);
  END IF;
  RETURN v_lease.remaining;
END $$;

-- Ends claims of a lease that the caller has locked as delivered; returns those that this call ended.
CREATE OR REPLACE FUNCTION end_delivered(
  p_lease leases, p_message_ids uuid[], p_claim_nos int[], p_latency_ms int[], p_remote_codes text[], p_references text[],
  p_responses text[])
RETURNS uuid[] LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_untouched boolean := p_lease.remaining = cardinality(p_lease.message_ids);
  v_now       timestamptz := clock_timestamp();
  v_ended     uuid[];
BEGIN
  WITH ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at, latency_ms,
                          remote_code, reference, response)
    SELECT DISTINCT ON (l.message_id) l.message_id, p_lease.destination_id, l.claim_no, l.tries, 'dispatched'::attempt_state,
           p_lease.relay_id, p_lease.claimed_at, v_now, o.latency_ms, left(o.remote_code, 100), o.reference, o.response
      FROM unnest(p_message_ids, p_claim_nos, p_latency_ms, p_remote_codes, p_references, p_responses)
           o(message_id, claim_no, latency_ms, remote_code, reference, response)
      JOIN unnest(p_lease.message_ids, p_lease.claim_nos, p_lease.tries) l(message_id, claim_no, tries)
        ON l.message_id = o.message_id AND l.claim_no = coalesce(o.claim_no, l.claim_no)
     WHERE v_untouched
        OR (SELECT 1 FROM attempts a WHERE a.message_id = l.message_id AND a.destination_id = p_lease.destination_id
                                       AND a.claim_no = l.claim_no LIMIT 1) IS NULL
     ORDER BY l.message_id
    RETURNING message_id)
  SELECT coalesce(array_agg(message_id), '{}') INTO v_ended FROM ended;
  PERFORM count_down_lease(p_lease, cardinality(v_ended));
  IF p_lease.stream_ids IS NOT NULL THEN PERFORM end_lanes(p_lease, v_ended, 'continue'); END IF;
  RETURN v_ended;
END $$;

-- Ends claims of a lease that the caller has locked, whatever their outcomes: appends the endings, requeues,
-- and makes dead letters. Returns those that this call ended.
CREATE OR REPLACE FUNCTION end_claims(
  p_lease leases, p_message_ids uuid[], p_claim_nos int[], p_outcomes outcome[], p_retry_after_ms bigint[],
  p_latency_ms int[], p_error_codes text[], p_remote_codes text[], p_error_messages text[], p_references text[],
  p_responses text[])
RETURNS uuid[] LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
-- without nested loops: the planner thinks that one row is left of the lease, and would compare all with all
SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET enable_nestloop = off SET jit = off AS $$
DECLARE
  v_untouched   boolean := p_lease.remaining = cardinality(p_lease.message_ids);
  v_now         timestamptz := clock_timestamp();
  v_destination destinations;
  v_lowest      uuid := (SELECT i FROM unnest(p_message_ids) i ORDER BY i LIMIT 1);
  v_highest     uuid := (SELECT i FROM unnest(p_message_ids) i ORDER BY i DESC LIMIT 1);
  v_ended       uuid[];
BEGIN
  SELECT * INTO STRICT v_destination FROM destinations WHERE id = p_lease.destination_id;
  WITH held AS MATERIALIZED (
    SELECT DISTINCT ON (l.message_id) l.message_id, l.claim_no, o.outcome, o.retry_after_ms, o.latency_ms,
           -- codes are indexed, and an index takes no more than a short text
           left(o.error_code, 100) AS error_code, left(o.remote_code, 100) AS remote_code, o.error_message, o.reference,
           o.response,
           l.tries - CASE WHEN o.outcome = 'release' THEN 1 ELSE 0 END AS tries,
           o.outcome = 'reject' OR (o.outcome IN ('retry', 'abandoned') AND l.tries >= v_destination.max_attempts) AS dies
      FROM unnest(p_message_ids, p_claim_nos, p_outcomes, p_retry_after_ms, p_latency_ms, p_error_codes,
                  p_remote_codes, p_error_messages, p_references, p_responses)
           o(message_id, claim_no, outcome, retry_after_ms, latency_ms, error_code, remote_code, error_message, reference,
             response)
      JOIN unnest(p_lease.message_ids, p_lease.claim_nos, p_lease.tries) l(message_id, claim_no, tries)
        ON l.message_id = o.message_id AND l.claim_no = coalesce(o.claim_no, l.claim_no)
     WHERE v_untouched
        OR (SELECT 1 FROM attempts a WHERE a.message_id = l.message_id AND a.message_id BETWEEN v_lowest AND v_highest
               AND a.destination_id = p_lease.destination_id AND a.claim_no = l.claim_no LIMIT 1) IS NULL
     ORDER BY l.message_id),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at,
                          latency_ms, error_code, remote_code, error_message, reference, response)
    SELECT h.message_id, p_lease.destination_id, h.claim_no, h.tries,
           CASE WHEN h.dies THEN 'failed'
                WHEN h.outcome = 'delivered' THEN 'dispatched'
                WHEN h.outcome = 'retry' THEN 'retryable'
                WHEN h.outcome = 'release' THEN 'released'
                ELSE 'zombie_requeue' END::attempt_state,
           p_lease.relay_id, p_lease.claimed_at, v_now, h.latency_ms, h.error_code, h.remote_code, h.error_message, h.reference,
           h.response
      FROM held h ORDER BY h.message_id),
  -- The outer join keeps a delivery whose message is missing in the open: as a dead letter.
  going_on AS MATERIALIZED (
    SELECT h.*, m.created_at, m.stream_id, m.sequence, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key,
           m.aggregate_type, m.aggregate_id, m.headers, m.payload
      FROM held h LEFT JOIN LATERAL (SELECT * FROM messages x WHERE x.id = h.message_id
                                        AND x.id BETWEEN v_lowest AND v_highest OFFSET 0) m ON true
     WHERE h.outcome <> 'delivered'),
  requeued AS (
    INSERT INTO deliveries (message_id, destination_id, claim_no, tries, bytes, alone, namespace, tenant_id, stream_id, sequence,
           available_at)
    SELECT g.message_id, p_lease.destination_id, g.claim_no, g.tries,
           -- as text: what is stored may be compressed
           octet_length(g.payload::text) + coalesce(octet_length(g.headers::text), 0),
           g.outcome = 'abandoned' OR (g.outcome = 'release' AND p_lease.alone), g.namespace,
           turn_of(v_destination.fairness, g.tenant_id), g.stream_id, g.sequence,
           -- what was never sent keeps its place in the queue
           CASE WHEN g.outcome = 'release' AND g.retry_after_ms IS NULL
                THEN CASE WHEN g.tries = 0 THEN g.created_at ELSE p_lease.claimed_at END
                ELSE v_now + coalesce(g.retry_after_ms * interval '1 ms',
                       retry_delay(v_destination.retry_base_ms, v_destination.retry_max_ms, v_destination.retry_delays_ms, g.tries)) END
      FROM going_on g WHERE NOT g.dies AND g.topic IS NOT NULL),
  died AS (
    INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, remote_code,
           error_message, created_at, stream_id, sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type,
           aggregate_id, headers, payload)
    SELECT g.message_id, p_lease.destination_id, v_now, g.claim_no, g.tries,
           CASE WHEN g.outcome = 'reject' THEN 'rejected' ELSE 'exhausted' END, g.error_code, g.remote_code,
           g.error_message, g.created_at, g.stream_id, g.sequence, g.namespace, g.topic, g.tenant_id, g.key, g.dedupe_key,
           g.aggregate_type, g.aggregate_id, g.headers, g.payload
      FROM going_on g WHERE g.dies OR g.topic IS NULL)
  SELECT coalesce(array_agg(message_id), '{}') INTO v_ended FROM held;
  PERFORM count_down_lease(p_lease, cardinality(v_ended));
  IF p_lease.stream_ids IS NOT NULL THEN PERFORM end_lanes(p_lease, v_ended, v_destination.when_dead); END IF;
  -- another relay may be the next to have it: one that sleeps must hear of it
  PERFORM ring(ARRAY[p_lease.destination_id]);
  RETURN v_ended;
END $$;

-- One flush of one lease, whatever its size and mix of outcomes, in one round trip. p_outcomes null means
-- that all were delivered; p_claim_nos null means whichever claim the lease holds. Answers how many claims
-- this call ended, and the messages that belong to somebody else by now. A repeat after an unknown commit
-- is not a loss: what this relay recorded itself is neither counted nor reported (p_destination_id says for
-- which destination, when the lease is gone and cannot). paused: an outcome among these has paused the destination.
CREATE OR REPLACE FUNCTION settle(
  p_lease_id uuid, p_relay_id uuid, p_message_ids uuid[], p_claim_nos int[] DEFAULT NULL,
  p_outcomes outcome[] DEFAULT NULL, p_retry_after_ms bigint[] DEFAULT NULL, p_latency_ms int[] DEFAULT NULL,
  p_error_codes text[] DEFAULT NULL, p_remote_codes text[] DEFAULT NULL, p_error_messages text[] DEFAULT NULL,
  p_references text[] DEFAULT NULL, p_destination_id smallint DEFAULT NULL, p_responses text[] DEFAULT NULL,
  OUT settled int, OUT lost uuid[], OUT paused boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_lease   leases;
  v_ended   uuid[] := '{}';
  v_lowest  uuid;
  v_highest uuid;
  v_pause   int := array_position(p_outcomes, 'pause');
BEGIN
  PERFORM assert_read_committed('settle');
  paused := false;
  IF p_outcomes IS NOT NULL AND (cardinality(p_outcomes) <> cardinality(p_message_ids) OR array_position(p_outcomes, NULL) IS NOT NULL) THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('outcomes must be as many as messages (%s), and none of them null', cardinality(p_message_ids));
  END IF;
  SELECT * INTO v_lease FROM leases WHERE id = p_lease_id AND relay_id = p_relay_id FOR UPDATE;
  IF FOUND AND p_outcomes IS NULL THEN
    v_ended := end_delivered(v_lease, p_message_ids, p_claim_nos, p_latency_ms, p_remote_codes, p_references, p_responses);
  ELSIF FOUND THEN
    -- first, so that nobody claims what goes back; whoever defines destinations locks in the same order
    IF v_pause IS NOT NULL THEN
      paused := pause_after(v_lease.destination_id, v_lease.claimed_at, p_relay_id, p_error_codes[v_pause],
                            p_remote_codes[v_pause], p_error_messages[v_pause]);
    END IF;
    v_ended := end_claims(v_lease, p_message_ids, p_claim_nos, array_replace(p_outcomes, 'pause', 'release'), p_retry_after_ms,
                          p_latency_ms, p_error_codes, p_remote_codes, p_error_messages, p_references, p_responses);
  END IF;
  settled := cardinality(v_ended);
  lost := '{}';
  IF settled < cardinality(p_message_ids) THEN
    SELECT i INTO v_lowest FROM unnest(p_message_ids) i ORDER BY i LIMIT 1;
    SELECT i INTO v_highest FROM unnest(p_message_ids) i ORDER BY i DESC LIMIT 1;
    -- LIMIT keeps the planner to one index look-up per message
    lost := ARRAY (
      SELECT DISTINCT o.message_id FROM unnest(p_message_ids, p_claim_nos) o(message_id, claim_no)
        LEFT JOIN LATERAL (
          SELECT true AS recorded FROM attempts a
           WHERE a.message_id = o.message_id AND a.message_id BETWEEN v_lowest AND v_highest
             AND a.claim_no = coalesce(o.claim_no, a.claim_no)
             AND a.destination_id = coalesce(v_lease.destination_id, p_destination_id, a.destination_id)
             AND a.relay_id = p_relay_id AND a.error_code IS DISTINCT FROM 'lease_expired' LIMIT 1) r ON true
       WHERE r.recorded IS NULL AND o.message_id <> ALL (v_ended));
  END IF;
END $$;

-- Gives back whatever a lease still holds: claimed, never sent, no try spent. Returns how many.
CREATE OR REPLACE FUNCTION release_lease(p_lease_id uuid, p_relay_id uuid) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_lease leases;
  v_count int;
BEGIN
  PERFORM assert_read_committed('release');
  SELECT * INTO v_lease FROM leases WHERE id = p_lease_id AND relay_id = p_relay_id FOR UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  v_count := cardinality(end_claims(v_lease, v_lease.message_ids, v_lease.claim_nos,
    array_fill('release'::outcome, ARRAY[cardinality(v_lease.message_ids)]), NULL, NULL, NULL, NULL, NULL, NULL, NULL));
  DELETE FROM leases WHERE id = v_lease.id;
  RETURN v_count;
END $$;

-- A claim whose answer was lost leaves a lease that its relay does not know it holds; but it knows the
-- lease's id, and gives it back.
CREATE OR REPLACE FUNCTION release_leases(p_relay_id uuid, p_lease_ids uuid[]) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT coalesce(sum(release_lease(l.id, p_relay_id)), 0)::int
    FROM (SELECT id FROM leases WHERE relay_id = p_relay_id AND id = ANY (p_lease_ids) ORDER BY id) l
$$;

-- Holds on to leases; returns those that are still held. One that is missing from the answer is lost.
CREATE OR REPLACE FUNCTION extend_leases(p_relay_id uuid, p_lease_ids uuid[]) RETURNS uuid[]
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  WITH held AS (
    SELECT id FROM leases WHERE id = ANY (p_lease_ids) AND relay_id = p_relay_id ORDER BY id FOR UPDATE),
  extended AS (
    UPDATE leases l SET expires_at = clock_timestamp() + l.duration FROM held WHERE l.id = held.id RETURNING l.id)
  SELECT coalesce(array_agg(id), '{}') FROM extended
$$;

-- Frees expired leases: their messages go back with the same id and a zombie_requeue entry, or to the
-- dead letters when their tries are used up. A lease that ends later than its duration allows comes from
-- a clock that was set back since, and counts as expired. Any number may run at once.
CREATE OR REPLACE FUNCTION reap(p_max_leases int DEFAULT 100) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_lease leases;
  v_count int := 0;
BEGIN
  PERFORM checked_number('p_max_leases', p_max_leases, 1, 1000000);
  PERFORM assert_read_committed('reap');
  FOR v_lease IN
    SELECT * FROM leases
     WHERE expires_at <= clock_timestamp() OR expires_at > clock_timestamp() + duration + interval '1 second'
     ORDER BY expires_at LIMIT p_max_leases FOR UPDATE SKIP LOCKED
  LOOP
    -- each for itself: a lease that cannot be ended must not keep the others from it
    BEGIN
      v_count := v_count + cardinality(end_claims(v_lease, v_lease.message_ids, v_lease.claim_nos,
        array_fill('abandoned'::outcome, ARRAY[cardinality(v_lease.message_ids)]), NULL, NULL,
        array_fill('lease_expired'::text, ARRAY[cardinality(v_lease.message_ids)]), NULL, NULL, NULL, NULL));
      DELETE FROM leases WHERE id = v_lease.id;
    EXCEPTION WHEN OTHERS THEN
      RAISE WARNING 'lease % cannot be ended: %', v_lease.id, SQLERRM;
    END;
  END LOOP;
  RETURN v_count;
END $$;

-- The simple forms, over everything that a token holds. Each returns what it really did: a wrong or lost
-- token ends nothing and says so.

-- The leases of a token that hold these messages. A message that the token holds for two destinations at
-- once would be ended for both: the caller must say which is meant.
CREATE OR REPLACE FUNCTION held_leases(token uuid, ids uuid[], destination text)
RETURNS TABLE (lease_id uuid, message_ids uuid[]) LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_destination_id smallint := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
  v_destinations   bigint;
BEGIN
  SELECT max(n) INTO v_destinations
    FROM (SELECT count(DISTINCT l.destination_id) AS n FROM leases l JOIN unnest(ids) i(id) ON i.id = ANY (l.message_ids)
           WHERE l.relay_id = token AND (v_destination_id IS NULL OR l.destination_id = v_destination_id) GROUP BY i.id) x;
  IF v_destinations > 1 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'this token holds a message for several destinations',
      HINT = 'Say which is meant (destination => ...), or use one token for each destination.';
  END IF;
  RETURN QUERY SELECT l.id, array_agg(DISTINCT i.id) FROM leases l JOIN unnest(ids) i(id) ON i.id = ANY (l.message_ids)
    WHERE l.relay_id = token AND (v_destination_id IS NULL OR l.destination_id = v_destination_id) GROUP BY l.id ORDER BY l.id;
END $$;

CREATE OR REPLACE FUNCTION mark_delivered(token uuid, ids uuid[], destination text DEFAULT NULL) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT coalesce(sum((settle(h.lease_id, token, h.message_ids)).settled), 0)::int FROM held_leases(token, ids, destination) h
$$;

CREATE OR REPLACE FUNCTION ack(
  token uuid, id uuid, attempt int DEFAULT NULL, reference text DEFAULT NULL, destination text DEFAULT NULL) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT coalesce(sum((settle(h.lease_id, token, h.message_ids, ARRAY[attempt], p_references => ARRAY[reference])).settled), 0) > 0
    FROM held_leases(token, ARRAY[ack.id], destination) h
$$;

-- terminal: no further try, straight to the dead letters.
CREATE OR REPLACE FUNCTION nack(
  token uuid, id uuid, error text DEFAULT NULL, code text DEFAULT NULL, attempt int DEFAULT NULL,
  retry_after interval DEFAULT NULL, terminal boolean DEFAULT false, destination text DEFAULT NULL) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT coalesce(sum((settle(h.lease_id, token, h.message_ids, ARRAY[attempt],
           ARRAY[CASE WHEN terminal THEN 'reject' ELSE 'retry' END::outcome],
           p_retry_after_ms => ARRAY[CASE WHEN retry_after IS NOT NULL THEN checked_interval('retry_after', retry_after, '0', '10 years') END],
           p_error_codes => ARRAY[coalesce(code, 'nack')], p_error_messages => ARRAY[error])).settled), 0) > 0
    FROM held_leases(token, ARRAY[nack.id], destination) h
$$;
