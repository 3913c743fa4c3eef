-- Settle: ends claims and records their outcomes. Every function that ends claims (settle, release_lease, reap) locks
-- the lease's row first, so no other session can end the same claim meanwhile. A claim that has ended already is
-- skipped. The primary key of attempts is the second safeguard: recording an ending twice would fail.
--
-- Three functions record endings. deliver_leases handles the usual case: all messages of a lease were delivered and
-- are reported at once. end_delivered handles delivered parts of a lease, with a cached plan. end_claims handles all
-- other outcomes. It is planned at every call, because it reads messages and their ids tell which partitions to visit.
-- It takes many leases, so that the planning is not repeated for each.

-- Refuses REPEATABLE READ and SERIALIZABLE. After waiting for a lock, the next statement needs a new snapshot; with the
-- old one it would miss what was recorded meanwhile.
CREATE OR REPLACE FUNCTION assert_read_committed(p_what text)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  IF current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = '25001',
      MESSAGE = format('%s works in READ COMMITTED only, not in %s',
                       p_what, upper(current_setting('transaction_isolation')));
  END IF;
END $$;

-- Subtracts ended claims from their leases, and deletes leases without remaining claims. p_lease_ids: the lease of each
-- ended claim.
CREATE OR REPLACE FUNCTION count_down_leases(p_lease_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_ids    uuid[];
  v_claims int[];
BEGIN
  SELECT array_agg(e.lease_id), array_agg(e.claims)
    INTO v_ids, v_claims
    FROM (SELECT x.lease_id, count(*)::int
            FROM unnest(p_lease_ids) x(lease_id)
           GROUP BY x.lease_id) e(lease_id, claims);
  -- look-ups in the arrays instead of a join, which could become a scan of all leases
  WITH finished AS (
    DELETE FROM leases l
     WHERE l.id = ANY (v_ids)
       AND l.remaining <= v_claims[array_position(v_ids, l.id)])
  UPDATE leases l
     SET remaining = l.remaining - v_claims[array_position(v_ids, l.id)]
   WHERE l.id = ANY (v_ids)
     AND l.remaining > v_claims[array_position(v_ids, l.id)];
END $$;

-- Fast path for leases that were delivered completely, with nothing reported before. A lease knows its messages, so the
-- caller passes only latencies, and if there are any, the remote codes, references and responses. These lists have the
-- messages of all leases one after the other, each lease in the order of its claim. p_counts: the number of messages of
-- each lease. Returns the leases that it has ended. A lease that is not returned was reported in part before, or is not
-- this relay's any more: the caller then uses settle.
CREATE OR REPLACE FUNCTION deliver_leases(
  p_relay_id     uuid,
  p_lease_ids    uuid[],
  p_counts       int[],
  p_latency_ms   int[],
  p_remote_codes text[] DEFAULT NULL,
  p_references   text[] DEFAULT NULL,
  p_responses    text[] DEFAULT NULL)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_now       timestamptz := clock_timestamp();
  -- how many messages come before those of each lease
  v_before    int[] := ARRAY[0];
  v_ended     uuid[];
  v_keyed     leases[];
  v_lease     leases;
  -- endpoints that have failed since their last success
  v_recovered int[];
BEGIN
  PERFORM assert_read_committed('settle');
  IF cardinality(p_lease_ids) > 1 THEN
    -- in the order in which extend_leases locks them
    PERFORM
       FROM leases l
      WHERE l.id = ANY (p_lease_ids)
        AND (l.relay_id = p_relay_id) IS TRUE
      ORDER BY l.id
        FOR UPDATE;
    SELECT array_agg(b.before)
      INTO v_before
      FROM (SELECT sum(x.count) OVER (ROWS UNBOUNDED PRECEDING) - x.count FROM unnest(p_counts) x(count)) b(before);
  END IF;
  -- Look-ups in the arrays instead of a join, and IS TRUE, so that no plan can scan all leases, or all of this relay.
  WITH ended AS (
    DELETE FROM leases l
     WHERE l.id = ANY (p_lease_ids)
       AND (l.relay_id = p_relay_id) IS TRUE
       AND l.remaining = cardinality(l.message_ids)
       AND l.remaining = p_counts[array_position(p_lease_ids, l.id)]
    RETURNING l AS lease, l.id, l.destination_id, l.claimed_at, l.message_ids, l.claim_nos, l.tries,
              l.key_ids IS NOT NULL AS is_keyed, v_before[array_position(p_lease_ids, l.id)] AS before),
  recorded AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at,
                          latency_ms, remote_code, reference, response)
    SELECT u.message_id, e.destination_id, u.claim_no, u.tries, 'dispatched'::attempt_state, p_relay_id, e.claimed_at,
           v_now, p_latency_ms[e.before + u.place], left(p_remote_codes[e.before + u.place], 100),
           short_text(p_references[e.before + u.place], 2000), short_text(p_responses[e.before + u.place], 4096)
      FROM ended e, unnest(e.message_ids, e.claim_nos, e.tries) WITH ORDINALITY u(message_id, claim_no, tries, place))
  SELECT array_agg(e.id), array_agg(e.lease) FILTER (WHERE e.is_keyed),
         array_agg(e.destination_id) FILTER (WHERE (
           SELECT true FROM endpoint_failures f WHERE f.destination_id = e.destination_id LIMIT 1))
    INTO v_ended, v_keyed, v_recovered
    FROM ended e;
  IF v_keyed IS NOT NULL THEN
    IF cardinality(v_keyed) > 1 THEN PERFORM lock_leased_lanes(v_keyed); END IF;
    FOREACH v_lease IN ARRAY v_keyed LOOP
      PERFORM free_lanes(v_lease.destination_id, v_lease.id, x.keys, x.lasts)
         FROM (SELECT array_agg(l.key_id), array_agg(l.last)
                 FROM (SELECT u.key_id, max(u.sequence)
                         FROM unnest(v_lease.key_ids, v_lease.sequences) u(key_id, sequence)
                        WHERE u.key_id IS NOT NULL
                        GROUP BY u.key_id) l(key_id, last)) x(keys, lasts);
    END LOOP;
  END IF;
  IF v_recovered IS NOT NULL THEN PERFORM end_endpoint_failures(v_recovered); END IF;
  RETURN coalesce(v_ended, '{}');
END $$;

-- Ends claims of a lease as delivered. The caller has locked the lease. Returns the messages that this call ended.
CREATE OR REPLACE FUNCTION end_delivered(
  p_lease        leases,
  p_message_ids  uuid[],
  p_claim_nos    int[],
  p_latency_ms   int[],
  p_remote_codes text[],
  p_references   text[],
  p_responses    text[])
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_untouched boolean := p_lease.remaining = cardinality(p_lease.message_ids);
  v_now       timestamptz := clock_timestamp();
  v_ended     uuid[];
BEGIN
  WITH ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at,
                          latency_ms, remote_code, reference, response)
    SELECT DISTINCT ON (l.message_id)
           l.message_id, p_lease.destination_id, l.claim_no, l.tries, 'dispatched'::attempt_state, p_lease.relay_id,
           p_lease.claimed_at, v_now, o.latency_ms, left(o.remote_code, 100), short_text(o.reference, 2000),
           short_text(o.response, 4096)
      FROM unnest(p_message_ids, p_claim_nos, p_latency_ms, p_remote_codes, p_references, p_responses)
           o(message_id, claim_no, latency_ms, remote_code, reference, response)
      JOIN unnest(p_lease.message_ids, p_lease.claim_nos, p_lease.tries) l(message_id, claim_no, tries)
        ON l.message_id = o.message_id
       AND l.claim_no = coalesce(o.claim_no, l.claim_no)
     WHERE v_untouched
        OR (SELECT 1
              FROM attempts a
             WHERE a.message_id = l.message_id
               AND a.destination_id = p_lease.destination_id
               AND a.claim_no = l.claim_no
             LIMIT 1) IS NULL
     ORDER BY l.message_id
    RETURNING message_id)
  SELECT coalesce(array_agg(message_id), '{}') INTO v_ended FROM ended;
  PERFORM count_down_leases(array_fill(p_lease.id, ARRAY[cardinality(v_ended)]));
  IF p_lease.key_ids IS NOT NULL THEN PERFORM end_lanes(p_lease, v_ended, 'continue'); END IF;
  RETURN v_ended;
END $$;

-- Ends claims of one or more leases with any outcomes: records attempts, requeues messages and makes dead letters. The
-- caller has locked the leases. p_lease_ids and the lists after it have an element for each claim to end. ended_leases
-- and ended_ids: the leases and messages of the claims that this call ended.
CREATE OR REPLACE FUNCTION end_claims(
  p_leases         leases[],
  p_lease_ids      uuid[],
  p_message_ids    uuid[],
  p_claim_nos      int[],
  p_outcomes       outcome[],
  p_retry_after_ms bigint[] DEFAULT NULL,
  p_latency_ms     int[] DEFAULT NULL,
  p_error_codes    text[] DEFAULT NULL,
  p_remote_codes   text[] DEFAULT NULL,
  p_error_messages text[] DEFAULT NULL,
  p_references     text[] DEFAULT NULL,
  p_responses      text[] DEFAULT NULL,
  OUT ended_leases uuid[],
  OUT ended_ids    uuid[])
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
-- no nested loops: the planner expects one row of a lease, and would compare every message with every other
SET enable_seqscan = off SET enable_nestloop = off SET jit = off
AS $$
DECLARE
  v_now     timestamptz := clock_timestamp();
  v_lowest  uuid := (SELECT i FROM unnest(p_message_ids) i ORDER BY i LIMIT 1);
  v_highest uuid := (SELECT i FROM unnest(p_message_ids) i ORDER BY i DESC LIMIT 1);
  v_lease   leases;
BEGIN
  WITH claims AS MATERIALIZED (
    SELECT l.id AS lease_id, l.destination_id, l.relay_id, l.claimed_at, l.quarantined, d.fairness, d.max_attempts,
           d.retry_base_ms, d.retry_max_ms, d.retry_delays_ms,
           l.remaining = cardinality(l.message_ids) AS is_untouched,
           c.message_id, c.claim_no, c.tries
      FROM unnest(p_leases) l
     CROSS JOIN LATERAL (SELECT * FROM destinations x WHERE x.id = l.destination_id OFFSET 0) d
     CROSS JOIN LATERAL unnest(l.message_ids, l.claim_nos, l.tries) c(message_id, claim_no, tries)),
  held AS MATERIALIZED (
    SELECT DISTINCT ON (c.lease_id, c.message_id)
           c.lease_id, c.destination_id, c.relay_id, c.claimed_at, c.quarantined, c.fairness, c.retry_base_ms,
           c.retry_max_ms, c.retry_delays_ms, c.message_id, c.claim_no, o.outcome, o.retry_after_ms, o.latency_ms,
           -- codes are indexed, and an index entry has a limited size
           left(o.error_code, 100) AS error_code,
           left(o.remote_code, 100) AS remote_code,
           short_text(o.error_message, 2000) AS error_message,
           short_text(o.reference, 2000) AS reference,
           short_text(o.response, 4096) AS response,
           c.tries - CASE WHEN o.outcome IN ('release', 'discard') THEN 1 ELSE 0 END AS tries,
           o.outcome = 'reject' OR (o.outcome IN ('retry', 'zombie') AND c.tries >= c.max_attempts) AS dies
      FROM unnest(p_lease_ids, p_message_ids, p_claim_nos, p_outcomes, p_retry_after_ms, p_latency_ms, p_error_codes,
                  p_remote_codes, p_error_messages, p_references, p_responses)
           o(lease_id, message_id, claim_no, outcome, retry_after_ms, latency_ms, error_code, remote_code,
             error_message, reference, response)
      JOIN claims c
        ON c.lease_id = o.lease_id
       AND c.message_id = o.message_id
       AND c.claim_no = coalesce(o.claim_no, c.claim_no)
     WHERE c.is_untouched
        OR (SELECT 1
              FROM attempts a
             WHERE a.message_id = c.message_id
               AND a.message_id BETWEEN v_lowest AND v_highest
               AND a.destination_id = c.destination_id
               AND a.claim_no = c.claim_no
             LIMIT 1) IS NULL
     ORDER BY c.lease_id, c.message_id),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, relay_id, claimed_at, ended_at,
                          latency_ms, error_code, remote_code, error_message, reference, response)
    SELECT h.message_id, h.destination_id, h.claim_no, h.tries,
           CASE
             WHEN h.dies THEN 'failed'
             WHEN h.outcome = 'delivered' THEN 'dispatched'
             WHEN h.outcome = 'retry' THEN 'retryable'
             WHEN h.outcome = 'release' THEN 'released'
             WHEN h.outcome = 'discard' THEN 'discarded'
             ELSE 'zombie_requeue'
           END::attempt_state,
           h.relay_id, h.claimed_at, v_now, h.latency_ms, h.error_code, h.remote_code, h.error_message, h.reference,
           h.response
      FROM held h
     ORDER BY h.message_id),
  -- An outer join: a delivery whose message is missing becomes a dead letter instead of vanishing.
  going_on AS MATERIALIZED (
    SELECT h.*, m.created_at, m.available_at, m.key_id, m.sequence, m.namespace, m.topic, m.tenant_id, m.key,
           m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload, m.bytes
      FROM held h
      LEFT JOIN LATERAL (
            SELECT *
              FROM messages x
             WHERE x.id = h.message_id
               AND x.id BETWEEN v_lowest AND v_highest
            OFFSET 0) m ON true
     WHERE h.outcome NOT IN ('delivered', 'discard')),
  requeued AS (
    INSERT INTO deliveries (message_id, destination_id, claim_no, tries, bytes, quarantined, namespace, tenant_id,
                            key_id, sequence, available_at, delay_ms)
    SELECT g.message_id, g.destination_id, g.claim_no, g.tries, g.bytes,
           g.outcome = 'zombie' OR (g.outcome = 'release' AND g.quarantined),
           g.namespace, fair_tenant(g.fairness, g.tenant_id), g.key_id, g.sequence,
           -- A retry waits for its delay. A release without a delay: a message that was never sent gets its old due
           -- time back; one that was sent before is due since its claim. delay_ms -1: the producer gave the time.
           CASE
             WHEN w.delay_ms IS NOT NULL THEN v_now + w.delay_ms * interval '1 ms'
             WHEN g.tries = 0 THEN coalesce(g.available_at, g.created_at)
             ELSE g.claimed_at
           END,
           CASE WHEN w.delay_ms IS NULL AND g.tries = 0 AND g.available_at IS NOT NULL THEN -1 ELSE w.delay_ms END
      FROM going_on g
      -- computed once: retry_delay is random
     CROSS JOIN LATERAL (
            SELECT CASE
                     WHEN g.outcome = 'release' AND g.retry_after_ms IS NULL THEN NULL
                     ELSE coalesce(
                       g.retry_after_ms,
                       extract(epoch FROM retry_delay(g.retry_base_ms, g.retry_max_ms, g.retry_delays_ms,
                                                      g.tries)) * 1000)::bigint
                   END
            OFFSET 0) w(delay_ms)
     WHERE NOT g.dies
       AND g.topic IS NOT NULL),
  died AS (
    INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, remote_code,
                              error_message, created_at, key_id, sequence, bytes, namespace, topic, tenant_id, key,
                              dedupe_key, aggregate_type, aggregate_id, headers, payload)
    SELECT g.message_id, g.destination_id, v_now, g.claim_no, g.tries,
           CASE WHEN g.outcome = 'reject' THEN 'rejected' ELSE 'exhausted' END,
           g.error_code, g.remote_code, g.error_message, g.created_at, g.key_id, g.sequence, g.bytes, g.namespace,
           g.topic, g.tenant_id, g.key, g.dedupe_key, g.aggregate_type, g.aggregate_id, g.headers, g.payload
      FROM going_on g
     WHERE g.dies
        OR g.topic IS NULL)
  SELECT coalesce(array_agg(h.lease_id), '{}'), coalesce(array_agg(h.message_id), '{}')
    INTO ended_leases, ended_ids
    FROM held h;
  PERFORM count_down_leases(ended_leases);
  IF cardinality(p_leases) > 1 THEN PERFORM lock_leased_lanes(p_leases); END IF;
  FOREACH v_lease IN ARRAY p_leases LOOP
    CONTINUE WHEN v_lease.key_ids IS NULL;
    PERFORM end_lanes(v_lease, ARRAY (
              SELECT e.message_id
                FROM unnest(ended_leases, ended_ids) e(lease_id, message_id)
               WHERE e.lease_id = v_lease.id), d.when_dead)
       FROM destinations d
      WHERE d.id = v_lease.destination_id;
  END LOOP;
  -- another relay may be the next to claim these: notify it if it is idle
  PERFORM notify_relays(ARRAY (SELECT DISTINCT l.destination_id FROM unnest(p_leases) l));
END $$;

-- The messages of a settled lease that are neither ended by this call nor recorded by this relay before: another holder
-- has claimed them, or their lease has expired.
CREATE OR REPLACE FUNCTION lost_claims(
  p_relay_id       uuid,
  p_destination_id int,
  p_message_ids    uuid[],
  p_claim_nos      int[],
  p_ended          uuid[])
RETURNS uuid[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_lowest  uuid := (SELECT i FROM unnest(p_message_ids) i ORDER BY i LIMIT 1);
  v_highest uuid := (SELECT i FROM unnest(p_message_ids) i ORDER BY i DESC LIMIT 1);
BEGIN
  -- LIMIT makes it one index look-up per message
  RETURN ARRAY (
    SELECT DISTINCT o.message_id
      FROM unnest(p_message_ids, p_claim_nos) o(message_id, claim_no)
      LEFT JOIN LATERAL (
            SELECT true AS recorded
              FROM attempts a
             WHERE a.message_id = o.message_id
               AND a.message_id BETWEEN v_lowest AND v_highest
               AND a.claim_no = coalesce(o.claim_no, a.claim_no)
               AND a.destination_id = coalesce(p_destination_id, a.destination_id)
               AND a.relay_id = p_relay_id
               AND a.error_code IS DISTINCT FROM 'zombie'
             LIMIT 1) r ON true
     WHERE r.recorded IS NULL
       AND o.message_id <> ALL (p_ended));
END $$;

-- Refuses outcomes that do not fit the messages.
CREATE OR REPLACE FUNCTION check_outcomes(p_outcomes outcome[], p_message_ids uuid[])
RETURNS void
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  IF cardinality(p_outcomes) <> cardinality(p_message_ids) OR array_position(p_outcomes, NULL) IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('outcomes must be as many as messages (%s), and none of them null', cardinality(p_message_ids));
  END IF;
END $$;

-- Settles one flush of one lease in one round trip, with any mix of outcomes. p_outcomes null: all were delivered.
-- p_claim_nos null: the claims that the lease holds. p_destination_id: the destination, in case the lease is gone.
-- settled: how many claims this call ended. lost: the messages that another holder has claimed, or whose lease has
-- expired. paused: one of these outcomes has paused the destination, or its failures have disabled the endpoint. If the
-- relay does not know whether its call committed, it can repeat it: what it recorded the first time is neither recorded
-- again nor reported as lost.
CREATE OR REPLACE FUNCTION settle(
  p_lease_id       uuid,
  p_relay_id       uuid,
  p_message_ids    uuid[],
  p_claim_nos      int[] DEFAULT NULL,
  p_outcomes       outcome[] DEFAULT NULL,
  p_retry_after_ms bigint[] DEFAULT NULL,
  p_latency_ms     int[] DEFAULT NULL,
  p_error_codes    text[] DEFAULT NULL,
  p_remote_codes   text[] DEFAULT NULL,
  p_error_messages text[] DEFAULT NULL,
  p_references     text[] DEFAULT NULL,
  p_destination_id int DEFAULT NULL,
  p_responses      text[] DEFAULT NULL,
  OUT settled      int,
  OUT lost         uuid[],
  OUT paused       boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_lease leases;
  v_ended uuid[] := '{}';
  v_pause int := array_position(p_outcomes, 'pause');
BEGIN
  PERFORM assert_read_committed('settle');
  paused := false;
  PERFORM check_outcomes(p_outcomes, p_message_ids);
  SELECT * INTO v_lease FROM leases WHERE id = p_lease_id AND relay_id = p_relay_id FOR UPDATE;
  IF FOUND AND p_outcomes IS NULL THEN
    v_ended := end_delivered(v_lease, p_message_ids, p_claim_nos, p_latency_ms, p_remote_codes, p_references,
                             p_responses);
  ELSIF FOUND THEN
    -- Pause first, so that no relay claims the requeued messages. Lock order: destination, lanes, deliveries;
    -- store_destination has the same.
    IF v_pause IS NOT NULL THEN
      paused := pause_after(v_lease.destination_id, v_lease.claimed_at, p_relay_id, p_error_codes[v_pause],
                            p_remote_codes[v_pause], p_error_messages[v_pause]);
    END IF;
    v_ended := (end_claims(
      ARRAY[v_lease], array_fill(p_lease_id, ARRAY[cardinality(p_message_ids)]), p_message_ids, p_claim_nos,
      array_replace(p_outcomes, 'pause', 'release'), p_retry_after_ms, p_latency_ms, p_error_codes, p_remote_codes,
      p_error_messages, p_references, p_responses)).ended_ids;
  END IF;
  settled := cardinality(v_ended);
  lost := '{}';
  IF settled < cardinality(p_message_ids) THEN
    lost := lost_claims(p_relay_id, coalesce(v_lease.destination_id, p_destination_id), p_message_ids, p_claim_nos,
                        v_ended);
  END IF;
  -- last: a session that holds the row of an endpoint's failures waits for no other lock
  IF settled > 0 AND p_outcomes IS NOT NULL THEN
    paused := cardinality(note_endpoint_answers(
      array_fill(v_lease.destination_id, ARRAY[cardinality(p_outcomes)]), p_relay_id, paused, p_outcomes,
      p_error_codes, p_remote_codes, p_error_messages)) > 0 OR paused;
  ELSIF settled > 0 AND is_failing_endpoint(v_lease.destination_id) THEN
    PERFORM end_endpoint_failures(ARRAY[v_lease.destination_id]);
  END IF;
END $$;

-- Settles many leases in one transaction, with shared statements. p_leases is a list with the arguments of settle for
-- each lease; a lease may be in it once. place is returned as the caller gave it. paused: its destination is an
-- endpoint that has failed for so long that this call disabled it. An outcome that pauses its destination is refused:
-- settle it alone, because a pause locks the destination.
CREATE OR REPLACE FUNCTION settle_many(p_relay_id uuid, p_leases jsonb)
RETURNS TABLE (place int, settled int, lost uuid[], paused boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_leases   leases[];
  v_claims   record;
  v_ended    record;
  v_disabled int[];
BEGIN
  PERFORM assert_read_committed('settle');
  PERFORM check_outcomes(l.outcomes, l.ids) FROM jsonb_to_recordset(p_leases) AS l(ids uuid[], outcomes outcome[]);
  -- in the order in which extend_leases locks them
  SELECT coalesce(array_agg(x.lease), '{}')
    INTO v_leases
    FROM (SELECT l AS lease
            FROM leases l
           WHERE l.id = ANY (ARRAY (SELECT (g ->> 'leaseId')::uuid FROM jsonb_array_elements(p_leases) g))
             -- IS TRUE: by the primary key, never by the index on relays
             AND (l.relay_id = p_relay_id) IS TRUE
           ORDER BY l.id
             FOR UPDATE) x;
  SELECT array_agg(l."leaseId") AS lease_ids, array_agg(c.id) AS ids, array_agg(c.claim_no) AS claim_nos,
         array_agg(coalesce(c.outcome, 'delivered')) AS outcomes, array_agg(c.retry_after_ms) AS retry_after_ms,
         array_agg(c.latency_ms) AS latency_ms, array_agg(c.code) AS codes, array_agg(c.remote_code) AS remote_codes,
         array_agg(c.message) AS messages, array_agg(c.reference) AS "references",
         array_agg(c.response) AS responses
    INTO v_claims
    FROM jsonb_to_recordset(p_leases) AS l(
           "leaseId" uuid, ids uuid[], "claimNos" int[], outcomes outcome[], "retryAfterMs" bigint[],
           "latencyMs" int[], codes text[], "remoteCodes" text[], messages text[], "references" text[],
           responses text[]),
         unnest(l.ids, l."claimNos", l.outcomes, l."retryAfterMs", l."latencyMs", l.codes, l."remoteCodes",
                l.messages, l."references", l.responses)
         c(id, claim_no, outcome, retry_after_ms, latency_ms, code, remote_code, message, reference, response);
  IF array_position(v_claims.outcomes, 'pause') IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'a pause cannot be settled with other leases: use settle';
  END IF;
  v_ended := end_claims(
    v_leases, v_claims.lease_ids, v_claims.ids, v_claims.claim_nos, v_claims.outcomes, v_claims.retry_after_ms,
    v_claims.latency_ms, v_claims.codes, v_claims.remote_codes, v_claims.messages, v_claims."references",
    v_claims.responses);
  -- last: a session that holds the rows of endpoints' failures waits for no other lock
  SELECT note_endpoint_answers(array_agg(l.destination_id), p_relay_id, false, array_agg(c.outcome), array_agg(c.code),
                               array_agg(c.remote_code), array_agg(c.message))
    INTO v_disabled
    FROM unnest(v_claims.lease_ids, v_claims.outcomes, v_claims.codes, v_claims.remote_codes, v_claims.messages)
         c(lease_id, outcome, code, remote_code, message)
    JOIN unnest(v_leases) l ON l.id = c.lease_id;
  RETURN QUERY
    SELECT l.place, cardinality(e.ids),
           CASE
             WHEN cardinality(e.ids) < cardinality(l.ids)
             THEN lost_claims(p_relay_id, l."destinationId", l.ids, l."claimNos", e.ids)
             ELSE '{}'
           END,
           l."destinationId" = ANY (v_disabled)
      FROM jsonb_to_recordset(p_leases) AS l(
             place int, "leaseId" uuid, "destinationId" int, ids uuid[], "claimNos" int[]),
           LATERAL (
             SELECT ARRAY (
                      SELECT x.message_id
                        FROM unnest(v_ended.ended_leases, v_ended.ended_ids) x(lease_id, message_id)
                       WHERE x.lease_id = l."leaseId")
             OFFSET 0) e(ids);
END $$;

-- The functions for workers settle by token, over all leases that the token holds. Each returns what it really ended:
-- with a wrong or expired token, nothing. Errors and references are cut to 2,000 characters, codes to 100.

-- The leases of a token that hold these messages. If the token holds a message for two destinations, the caller must
-- name the destination, because otherwise both deliveries would be ended.
CREATE OR REPLACE FUNCTION held_leases(token uuid, ids uuid[], destination text)
RETURNS TABLE (lease_id uuid, message_ids uuid[])
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_destination_id int := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
  v_destinations   bigint;
BEGIN
  SELECT max(n)
    INTO v_destinations
    FROM (SELECT count(DISTINCT l.destination_id) AS n
            FROM leases l
            JOIN unnest(ids) i(id) ON i.id = ANY (l.message_ids)
           WHERE l.relay_id = token
             AND (v_destination_id IS NULL OR l.destination_id = v_destination_id)
           GROUP BY i.id) x;
  IF v_destinations > 1 THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = 'this token holds a message for several destinations',
      HINT = 'Say which is meant (destination => ...), or use one token for each destination.';
  END IF;
  RETURN QUERY
    SELECT l.id, array_agg(DISTINCT i.id)
      FROM leases l
      JOIN unnest(ids) i(id) ON i.id = ANY (l.message_ids)
     WHERE l.relay_id = token
       AND (v_destination_id IS NULL OR l.destination_id = v_destination_id)
     GROUP BY l.id
     ORDER BY l.id;
END $$;

CREATE OR REPLACE FUNCTION mark_delivered(token uuid, ids uuid[], destination text DEFAULT NULL)
RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT coalesce(sum((settle(h.lease_id, token, h.message_ids)).settled), 0)::int
    FROM held_leases(token, ids, destination) h
$$;

CREATE OR REPLACE FUNCTION ack(
  token       uuid,
  id          uuid,
  attempt     int DEFAULT NULL,
  reference   text DEFAULT NULL,
  destination text DEFAULT NULL)
RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT coalesce(sum((
           settle(h.lease_id, token, h.message_ids, ARRAY[attempt], p_references => ARRAY[reference])).settled), 0) > 0
    FROM held_leases(token, ARRAY[ack.id], destination) h
$$;

-- terminal: no further tries, the message becomes a dead letter.
CREATE OR REPLACE FUNCTION nack(
  token       uuid,
  id          uuid,
  error       text DEFAULT NULL,
  code        text DEFAULT NULL,
  attempt     int DEFAULT NULL,
  retry_after interval DEFAULT NULL,
  terminal    boolean DEFAULT false,
  destination text DEFAULT NULL)
RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT coalesce(sum((
           settle(h.lease_id, token, h.message_ids, ARRAY[attempt],
                  ARRAY[CASE WHEN terminal THEN 'reject' ELSE 'retry' END::outcome],
                  p_retry_after_ms => ARRAY[CASE
                    WHEN retry_after IS NOT NULL THEN checked_interval('retry_after', retry_after, '0', '10 years')
                  END],
                  p_error_codes => ARRAY[coalesce(code, 'nack')], p_error_messages => ARRAY[error])).settled), 0) > 0
    FROM held_leases(token, ARRAY[nack.id], destination) h
$$;

-- The cause of a dead letter: its error code and the code of the other side, such as 'http_status 500' or 'timeout'.
-- The planner inlines it; the index dead_letters_by_cause has the same expression.
CREATE OR REPLACE FUNCTION cause_of(p_error_code text, p_remote_code text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT coalesce(p_error_code, 'unknown') || coalesce(' ' || p_remote_code, '')
$$;
