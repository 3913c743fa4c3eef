-- Lanes: deliver the messages of one key to one destination in sequence, under one lease at a time.
--
-- Who changes a lane's row:
--   producers   never: they insert a ticket in the transaction that enqueues the message
--   relays      process tickets, which makes idle lanes due; claim due lanes; free and block the lanes of their own
--               leases; correct lanes that a wrong clock has dated (upkeep/misdated.sql); set the tenant '' of lanes
--               without one when fairness begins (fairness/fairness.sql); delete lanes of forgotten keys
--               (forget_keys.sql)
--   operators   unblock lanes
--   definitions that lower max_attempts: block lanes of messages that die of it (store_destination)
-- Each of them locks the row first, and then reads the pending deliveries with a new snapshot. A lane becomes idle only
-- if that read finds nothing. A message that commits later has left a ticket, and a ticket is deleted only under the
-- lane's lock. So a new message is never overlooked by a lane that is just becoming idle.
--
-- Only these ever wait for a locked lane: the relay that holds its lease, operators, and store_destination. wake_lanes
-- and claim_lanes skip locked lanes and come back to them. Two relays must not create the same lane at once, because
-- one insert would wait for the other's transaction. So a relay first locks the lane's first delivery, and skips the
-- lane if another relay has that lock.

-- Processes tickets: creates missing lanes and makes idle ones due. Returns the number of tickets processed.
CREATE OR REPLACE FUNCTION wake_lanes(p_destination destinations, p_max_tickets int)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_now         timestamptz := clock_timestamp();
  v_tickets     tid[];
  v_ticket_keys bigint[];
  v_keys        bigint[];
  v_rechecks    bigint[];
  v_locked      bigint[];
  v_heads       tid[];
  v_made        bigint[];
  v_gone        bigint[];
  v_idle        bigint[];
  v_blocked     bigint[];
  v_last        bigint := 0;
  v_found       int;
  v_processed   int := 0;
BEGIN
  -- several rounds: tickets that must stay must not hide the tickets behind them
  FOR v_round IN 1..10 LOOP
    SELECT array_agg(x.tid), array_agg(x.key_id), array_agg(DISTINCT x.key_id),
           coalesce(array_agg(DISTINCT x.key_id) FILTER (WHERE x.recheck), '{}'), max(x.id)
      INTO v_tickets, v_ticket_keys, v_keys, v_rechecks, v_last
      FROM (SELECT t.ctid AS tid, t.id, t.key_id, t.recheck
              FROM lane_tickets t
             WHERE t.destination_id = p_destination.id
               AND t.id > v_last
             ORDER BY t.id
             LIMIT p_max_tickets
               FOR UPDATE SKIP LOCKED) x;
    EXIT WHEN v_tickets IS NULL;
    v_found := cardinality(v_tickets);

    SELECT coalesce(array_agg(x.key_id), '{}'),
           array_agg(x.key_id) FILTER (WHERE x.blocked_by IS NOT NULL),
           array_agg(x.key_id) FILTER (
             WHERE x.lease_id IS NULL
               AND (x.available_at IS NULL OR (x.available_at > v_now AND x.key_id = ANY (v_rechecks))))
      INTO v_locked, v_blocked, v_idle
      FROM (SELECT l.key_id, l.available_at, l.lease_id, l.blocked_by
              FROM lanes l
             WHERE l.destination_id = p_destination.id
               AND l.key_id = ANY (v_keys)
               FOR UPDATE SKIP LOCKED) x;
    IF v_idle IS NOT NULL THEN
      UPDATE lanes l
         SET available_at = v_now
       WHERE l.destination_id = p_destination.id
         AND l.key_id = ANY (v_idle);
    END IF;
    v_heads := NULL;
    v_made := '{}';
    v_gone := '{}';
    IF cardinality(v_locked) < cardinality(v_keys) THEN
      -- for each key without a lane, its first pending delivery; if there is none, the message is gone
      SELECT array_agg(h.tid) FILTER (WHERE h.tid IS NOT NULL),
             coalesce(array_agg(i.id) FILTER (WHERE h.tid IS NULL), '{}')
        INTO v_heads, v_gone
        FROM unnest(v_keys) i(id)
        LEFT JOIN LATERAL (
              SELECT d.ctid AS tid
                FROM deliveries d
               WHERE d.destination_id = p_destination.id
                 AND d.key_id = i.id
               ORDER BY d.sequence
               LIMIT 1) h ON true
       WHERE (SELECT 1
                FROM lanes l
               WHERE l.destination_id = p_destination.id
                 AND l.key_id = i.id
               LIMIT 1) IS NULL;
    END IF;
    IF v_heads IS NOT NULL THEN
      WITH heads AS MATERIALIZED (
        SELECT d.key_id, d.namespace, nullif(d.tenant_id, '') AS tenant_id
          FROM deliveries d
         WHERE d.ctid = ANY (v_heads)
           FOR UPDATE SKIP LOCKED),
      made AS (
        INSERT INTO lanes (destination_id, key_id, available_at, namespace, tenant_id)
        -- fairness is read again: p_destination was read before this transaction had an id, see has_fairness
        SELECT p_destination.id, h.key_id, v_now, h.namespace,
               fair_tenant(
                 (SELECT x.fairness FROM destinations x WHERE x.id = p_destination.id),
                 h.tenant_id)
          FROM heads h
         ORDER BY h.key_id
        ON CONFLICT DO NOTHING
        RETURNING key_id)
      SELECT coalesce(array_agg(key_id), '{}') INTO v_made FROM made;
    END IF;
    IF v_blocked IS NOT NULL AND p_destination.when_dead = 'park' THEN
      PERFORM park_lanes(p_destination.id, v_blocked);
    END IF;

    -- keep the tickets of lanes that another session has locked or is creating; delete those of messages that are gone
    IF cardinality(v_locked) + cardinality(v_made) < cardinality(v_keys) THEN
      v_tickets := ARRAY (
        SELECT t.tid
          FROM unnest(v_tickets, v_ticket_keys) t(tid, key_id)
         WHERE t.key_id IN (SELECT unnest(v_locked || v_made || v_gone)));
    END IF;
    DELETE FROM lane_tickets t WHERE t.ctid = ANY (v_tickets);
    v_processed := v_processed + cardinality(v_tickets);
    EXIT WHEN v_found < p_max_tickets OR v_processed > 0;
  END LOOP;
  RETURN v_processed;
END $$;

-- Claims messages with a key: processes tickets, then claims from due lanes. A round may process only tickets that give
-- nothing: those of other tenants, or of messages that are gone. wake_lanes deletes them, so it goes on with the
-- tickets behind them, for a second at most. p_is_shared, p_tenant_ids, p_after_tenant: as in claim_lanes_fairly.
CREATE OR REPLACE FUNCTION claim_keyed(
  p_destination  destinations,
  p_lease_id     uuid,
  p_limit        int,
  p_max_bytes    bigint,
  p_is_first     boolean,
  p_namespace    text,
  p_one_per_key  boolean,
  p_is_shared    boolean,
  p_tenant_ids   text[],
  p_after_tenant text)
RETURNS taken
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_started timestamptz := clock_timestamp();
  -- with fairness, the ticket of a new tenant must not wait long behind those of another
  v_tickets int := greatest(4 * p_limit, CASE WHEN p_is_shared THEN 10000 ELSE 0 END);
  v_woken   int;
  v_taken   taken;
BEGIN
  LOOP
    v_woken := wake_lanes(p_destination, v_tickets);
    v_taken := CASE
      WHEN p_is_shared THEN
        claim_lanes_fairly(p_destination.id, p_lease_id, p_limit, p_max_bytes, p_is_first, p_namespace, p_one_per_key,
                           p_tenant_ids, p_after_tenant)
      ELSE
        claim_lanes(p_destination.id, p_lease_id, p_limit, p_max_bytes, p_is_first, p_namespace, p_one_per_key)
    END;
    EXIT WHEN v_taken.message_ids IS NOT NULL
           OR v_woken = 0
           OR clock_timestamp() > v_started + interval '1 second';
  END LOOP;
  RETURN v_taken;
END $$;

-- Claims messages from due lanes, oldest lane first; with p_tenant_ids, equally from the lanes of these tenants. A lane
-- costs more than a message, so the first round takes a limited number of lanes, and later rounds take more if those
-- had few messages. Lanes share p_limit evenly; a single lane can fill it.
CREATE OR REPLACE FUNCTION claim_lanes(
  p_destination_id int,
  p_lease_id       uuid,
  p_limit          int,
  p_max_bytes      bigint,
  p_is_first       boolean,
  p_namespace      text,
  p_one_per_key    boolean,
  p_tenant_ids     text[] DEFAULT NULL)
RETURNS taken
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_now     timestamptz := clock_timestamp();
  v_lanes   int := CASE WHEN p_one_per_key THEN p_limit ELSE least(p_limit, greatest(100, p_limit / 16)) END;
  v_left    int := p_limit;
  v_bytes   bigint := p_max_bytes;
  v_keys    bigint[];
  v_lasts   bigint[];
  v_run     int;
  v_rounds  int := 0;
  v_changed int;
  -- due lanes that gave nothing, because their first message is quarantined or locked
  v_passed  bigint[] := '{}';
  v_taken   taken;
  v_all     taken;
BEGIN
  WHILE v_rounds < 3 LOOP
    IF p_tenant_ids IS NULL THEN
      SELECT array_agg(x.key_id), array_agg(x.last_sequence)
        INTO v_keys, v_lasts
        FROM (SELECT l.key_id, l.last_sequence
                FROM lanes l
               WHERE l.destination_id = p_destination_id
                 AND l.available_at <= v_now
                 AND l.available_at IS NOT NULL
                 AND l.blocked_by IS NULL
                 AND l.key_id <> ALL (v_passed)
                 AND (p_namespace IS NULL OR l.namespace = p_namespace)
                 AND (SELECT t.paused_at IS NULL FROM destinations t WHERE t.id = p_destination_id)
               ORDER BY l.available_at, l.key_id
               LIMIT v_lanes
                 FOR UPDATE SKIP LOCKED) x;
    ELSE
      SELECT x.keys, x.lasts
        INTO v_keys, v_lasts
        FROM lock_lanes_of(p_destination_id, p_tenant_ids, v_lanes, v_passed, p_namespace, v_now) x;
    END IF;
    EXIT WHEN v_keys IS NULL;
    v_run := CASE WHEN p_one_per_key THEN 1 ELSE ceil(v_left::numeric / cardinality(v_keys)) END;
    v_taken := take_from_lanes(p_destination_id, p_lease_id, v_keys, v_lasts, v_run, v_left, v_bytes,
                               p_is_first AND v_rounds = 0, p_tenant_ids IS NOT NULL, false);
    v_changed := pass_over_lanes(p_destination_id, v_keys, v_taken.key_ids, v_now);

    -- lanes that gave nothing must not hide the lanes behind them, unless bytes are used up
    IF v_taken.message_ids IS NULL THEN
      EXIT WHEN NOT p_is_first OR v_rounds > 0 OR clock_timestamp() > v_now + interval '1 second';
      IF v_changed = 0 THEN v_passed := v_passed || v_keys; END IF;
      CONTINUE;
    END IF;
    v_rounds := v_rounds + 1;
    v_all := join_taken(v_all, v_taken);
    v_left := v_left - cardinality(v_taken.message_ids);
    EXIT WHEN v_left <= 0 OR cardinality(v_keys) < v_lanes;
    v_bytes := v_bytes - v_taken.bytes;
    v_lanes := least(v_left, v_left * cardinality(v_keys) / cardinality(v_taken.message_ids));
  END LOOP;
  RETURN v_all;
END $$;

-- Takes the first messages of these locked lanes, in sequence, at most p_run of each, up to one that is not due, locked
-- by another session, or quarantined. p_alternate: the first message of each lane comes before the second of any.
-- p_quarantined: take only quarantined messages.
CREATE OR REPLACE FUNCTION take_from_lanes(
  p_destination_id int,
  p_lease_id       uuid,
  p_keys           bigint[],
  p_lasts          bigint[],
  p_run            int,
  p_limit          int,
  p_max_bytes      bigint,
  p_is_first       boolean,
  p_alternate      boolean,
  p_quarantined    boolean)
RETURNS taken
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_now   timestamptz := clock_timestamp();
  v_taken taken;
BEGIN
  WITH waiting AS MATERIALIZED (
    SELECT n.place, n.key_id, n.last_sequence, d.*
      FROM unnest(p_keys, p_lasts) WITH ORDINALITY AS n(key_id, last_sequence, place)
     CROSS JOIN LATERAL (
            SELECT x.ctid AS row_address, x.message_id, x.sequence, x.available_at, x.claim_no + 1 AS claim_no,
                   x.tries + 1 AS tries, x.bytes, x.quarantined
              FROM deliveries x
             WHERE x.destination_id = p_destination_id
               AND x.key_id = n.key_id
             ORDER BY x.sequence
             LIMIT p_run) d),
  -- an operator may have locked a delivery
  locked AS MATERIALIZED (
    SELECT x.message_id
      FROM deliveries x
     WHERE x.ctid = ANY (ARRAY (SELECT row_address FROM waiting))
       FOR UPDATE SKIP LOCKED),
  in_sequence AS (
    SELECT w.*,
           greatest(w.last_sequence, max(w.sequence) OVER earlier) AS previous_sequence,
           CASE WHEN p_alternate THEN row_number() OVER lane END AS depth,
           bool_and(w.available_at <= v_now
                    AND w.quarantined = p_quarantined
                    AND w.message_id IN (SELECT message_id FROM locked)) OVER lane AS is_free
      FROM waiting w
    WINDOW lane AS (PARTITION BY w.place ORDER BY w.sequence),
           earlier AS (PARTITION BY w.place ORDER BY w.sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
  counted AS (
    SELECT s.*, row_number() OVER taking AS number, sum(s.bytes) OVER taking AS total_bytes
      FROM in_sequence s
     WHERE s.is_free
    WINDOW taking AS (ORDER BY s.depth, s.place, s.sequence)),
  chosen AS MATERIALIZED (
    SELECT c.*
      FROM counted c
     WHERE c.number <= p_limit
       AND (c.total_bytes <= p_max_bytes OR (c.number = 1 AND p_is_first))),
  gone AS (
    DELETE FROM deliveries x
     WHERE x.ctid = ANY (ARRAY (SELECT row_address FROM chosen)))
  SELECT array_agg(c.message_id), array_agg(c.claim_no), array_agg(c.tries), array_agg(c.available_at),
         array_agg(c.key_id), array_agg(c.sequence),
         array_agg(CASE WHEN c.previous_sequence < c.sequence THEN c.previous_sequence END),
         sum(c.bytes), bool_or(c.quarantined)
    INTO v_taken
    FROM (SELECT * FROM chosen ORDER BY number) c;
  IF v_taken.message_ids IS NOT NULL THEN
    UPDATE lanes l
       SET lease_id = p_lease_id, available_at = NULL
     WHERE l.destination_id = p_destination_id
       AND l.key_id = ANY (v_taken.key_ids);
  END IF;
  RETURN v_taken;
END $$;

-- Corrects the lanes that gave nothing to a claim: an empty one becomes idle, one whose first message is not due waits
-- for it. A lane that was left out for lack of room stays due, and so does one whose first message is quarantined.
-- Returns the number of changed lanes.
CREATE OR REPLACE FUNCTION pass_over_lanes(
  p_destination_id int,
  p_keys           bigint[],
  p_taken_keys     bigint[],
  p_now            timestamptz)
RETURNS int
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_rest    bigint[] := ARRAY (
    SELECT s
      FROM unnest(p_keys) s
     WHERE s NOT IN (SELECT unnest(p_taken_keys)));
  v_changed int;
BEGIN
  IF v_rest = '{}' THEN RETURN 0; END IF;
  UPDATE lanes l
     SET available_at = h.available_at
    FROM (SELECT x.row_address,
                 (SELECT d.available_at
                    FROM deliveries d
                   WHERE d.destination_id = p_destination_id
                     AND d.key_id = r.key_id
                   ORDER BY d.sequence
                   LIMIT 1) AS available_at
            FROM unnest(v_rest) r(key_id)
           CROSS JOIN LATERAL (
                  SELECT i.ctid AS row_address
                    FROM lanes i
                   WHERE i.destination_id = p_destination_id
                     AND i.key_id = r.key_id
                  OFFSET 0) x
          OFFSET 0) h
   WHERE l.ctid = h.row_address
     AND (h.available_at IS NULL OR h.available_at > p_now);
  GET DIAGNOSTICS v_changed = ROW_COUNT;
  RETURN v_changed;
END $$;

-- Frees lanes of a lease whose messages have all ended: a lane becomes due when its next message is due, or idle.
-- p_lasts: for each lane, the last sequence that has ended for good.
CREATE OR REPLACE FUNCTION free_lanes(p_destination_id int, p_lease_id uuid, p_keys bigint[], p_lasts bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_waiting boolean;
BEGIN
  PERFORM
     FROM lanes
    WHERE destination_id = p_destination_id
      AND key_id = ANY (p_keys)
      AND lease_id = p_lease_id
    ORDER BY key_id
      FOR UPDATE;
  -- A separate statement, so that its snapshot is newer than the locks. Joining by ctid leaves the planner one plan.
  WITH freed AS (
    UPDATE lanes l
       SET lease_id = NULL, last_sequence = greatest(l.last_sequence, h.last), available_at = h.available_at
      FROM (SELECT x.tid, s.last,
                   (SELECT d.available_at
                      FROM deliveries d
                     WHERE d.destination_id = p_destination_id
                       AND d.key_id = s.key_id
                     ORDER BY d.sequence
                     LIMIT 1) AS available_at
              FROM unnest(p_keys, p_lasts) s(key_id, last)
             CROSS JOIN LATERAL (
                    SELECT i.ctid AS tid
                      FROM lanes i
                     WHERE i.destination_id = p_destination_id
                       AND i.key_id = s.key_id
                       AND i.lease_id = p_lease_id
                    OFFSET 0) x
            OFFSET 0) h
     WHERE l.ctid = h.tid
    RETURNING l.available_at)
  SELECT bool_or(available_at IS NOT NULL) INTO v_waiting FROM freed;
  -- the relay that claims these lanes next may be idle
  IF v_waiting THEN PERFORM notify_relays(ARRAY[p_destination_id]); END IF;
END $$;

-- Locks the lanes of several leases before end_lanes visits them one by one: all in one order, because an operator may
-- lock several of them too. Each is looked up, so other lanes cost nothing.
CREATE OR REPLACE FUNCTION lock_leased_lanes(p_leases leases[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_nestloop = on SET jit = off
AS $$
BEGIN
  PERFORM
     FROM (SELECT DISTINCT x.destination_id, k.key_id
             FROM unnest(p_leases) x, unnest(x.key_ids) k(key_id)
            WHERE k.key_id IS NOT NULL
            ORDER BY x.destination_id, k.key_id) w
    CROSS JOIN LATERAL (
          SELECT
            FROM lanes l
           WHERE l.destination_id = w.destination_id
             AND l.key_id = w.key_id
             FOR UPDATE) l;
END $$;

-- Updates lanes after a part of a lease has ended: blocks the lanes of dead messages if the destination asks for it,
-- and frees the lanes of which this lease holds no more messages.
CREATE OR REPLACE FUNCTION end_lanes(p_lease leases, p_ended uuid[], p_when_dead text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_lowest  uuid := (SELECT i FROM unnest(p_lease.message_ids) i ORDER BY i LIMIT 1);
  v_highest uuid := (SELECT i FROM unnest(p_lease.message_ids) i ORDER BY i DESC LIMIT 1);
  v_keys    bigint[];
  v_lasts   bigint[];
  v_blocked bigint[];
BEGIN
  -- all locks in one sorted statement, because an operator may lock several of these lanes too
  PERFORM
     FROM lanes
    WHERE destination_id = p_lease.destination_id
      AND lease_id = p_lease.id
      AND key_id = ANY (p_lease.key_ids)
    ORDER BY key_id
      FOR UPDATE;
  IF p_when_dead <> 'continue' THEN PERFORM block_lanes(p_lease.destination_id, p_ended); END IF;

  SELECT array_agg(x.key_id), array_agg(x.last)
    INTO v_keys, v_lasts
    FROM (SELECT u.key_id,
                 coalesce(max(u.sequence) FILTER (
                   WHERE a.state IN ('dispatched', 'discarded')
                      OR (a.state = 'failed' AND p_when_dead = 'continue')), 0) AS last
            FROM unnest(p_lease.message_ids, p_lease.claim_nos, p_lease.key_ids, p_lease.sequences)
                 u(message_id, claim_no, key_id, sequence)
            LEFT JOIN LATERAL (
                  SELECT t.state
                    FROM attempts t
                   WHERE t.message_id = u.message_id
                     AND t.message_id BETWEEN v_lowest AND v_highest
                     AND t.destination_id = p_lease.destination_id
                     AND t.claim_no = u.claim_no
                   LIMIT 1) a ON true
           WHERE u.key_id IN (
                   SELECT e.key_id
                     FROM unnest(p_lease.message_ids, p_lease.key_ids) e(message_id, key_id)
                    WHERE e.message_id IN (SELECT unnest(p_ended)))
           GROUP BY u.key_id
          HAVING bool_and(a.state IS NOT NULL)) x;
  IF v_keys IS NOT NULL THEN
    PERFORM free_lanes(p_lease.destination_id, p_lease.id, v_keys, v_lasts);
  END IF;
  IF p_when_dead = 'park' THEN
    v_blocked := ARRAY (
      SELECT l.key_id
        FROM lanes l
       WHERE l.destination_id = p_lease.destination_id
         AND l.key_id = ANY (p_lease.key_ids)
         AND l.blocked_by IS NOT NULL);
    IF v_blocked <> '{}' THEN PERFORM park_lanes(p_lease.destination_id, v_blocked); END IF;
  END IF;
END $$;

-- Blocks the lanes of dead messages, each by its first one; later dead messages of the lane are parked behind it and
-- return with it. Messages that are not dead are ignored. Returns the keys whose lanes were open before.
CREATE OR REPLACE FUNCTION block_lanes(p_destination_id int, p_message_ids uuid[])
RETURNS bigint[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_blocked bigint[];
BEGIN
  WITH dead AS (
    SELECT DISTINCT ON (d.key_id) d.key_id, d.message_id
      FROM dead_letters d
     WHERE d.destination_id = p_destination_id
       AND d.message_id = ANY (p_message_ids)
       AND d.key_id IS NOT NULL
     ORDER BY d.key_id, d.sequence),
  found AS MATERIALIZED (
    SELECT d.message_id, x.tid
      FROM dead d
     CROSS JOIN LATERAL (
            SELECT i.ctid AS tid
              FROM lanes i
             WHERE i.destination_id = p_destination_id
               AND i.key_id = d.key_id
               AND i.blocked_by IS NULL
            OFFSET 0) x),
  blocked AS (
    UPDATE lanes l
       SET blocked_by = f.message_id
      FROM found f
     WHERE l.ctid = f.tid
    RETURNING l.key_id)
  SELECT array_agg(key_id) INTO v_blocked FROM blocked;
  UPDATE dead_letters d
     SET reason = 'parked'
   WHERE d.destination_id = p_destination_id
     AND d.message_id = ANY (p_message_ids)
     AND d.message_id <> (
           SELECT l.blocked_by
             FROM lanes l
            WHERE l.destination_id = p_destination_id
              AND l.key_id = d.key_id);
  RETURN v_blocked;
END $$;

-- Parks lanes: moves the messages behind a dead one to the dead letters. They return with it, in order.
CREATE OR REPLACE FUNCTION park_lanes(p_destination_id int, p_keys bigint[])
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count int;
BEGIN
  WITH waiting AS (
    DELETE FROM deliveries d
     WHERE d.destination_id = p_destination_id
       AND d.key_id = ANY (p_keys)
    RETURNING d.*)
  INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, created_at,
                            key_id, sequence, bytes, namespace, topic, tenant_id, key, dedupe_key, aggregate_type,
                            aggregate_id, headers, payload)
  SELECT w.message_id, p_destination_id, clock_timestamp(), w.claim_no, w.tries, 'parked', 'parked', m.created_at,
         w.key_id, w.sequence, m.bytes, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type,
         m.aggregate_id, m.headers, m.payload
    FROM waiting w
    LEFT JOIN messages m ON m.id = w.message_id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- Unblocks the lanes that these messages block, and requeues the messages parked behind them, in order. p_passed: the
-- key continues without the blocking messages. Returns how many lanes were unblocked and how many messages requeued.
CREATE OR REPLACE FUNCTION unblock_lanes(
  p_destination_ids int[],
  p_blocked_by      uuid[],
  p_passed          boolean,
  OUT unblocked     int,
  OUT unparked      int)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_destinations int[];
  v_keys         bigint[];
BEGIN
  WITH chosen AS (
    SELECT l.destination_id, l.key_id
      FROM unnest(p_destination_ids, p_blocked_by) b(destination_id, message_id)
      JOIN lanes l ON l.destination_id = b.destination_id AND l.blocked_by = b.message_id
     ORDER BY l.destination_id, l.key_id
       FOR UPDATE OF l),
  opened AS (
    UPDATE lanes l
       SET blocked_by = NULL,
           last_sequence = CASE
             WHEN p_passed THEN
               greatest(
                 l.last_sequence,
                 (SELECT m.sequence FROM messages m WHERE m.id = l.blocked_by))
             ELSE
               l.last_sequence
           END
      FROM chosen c
     WHERE l.destination_id = c.destination_id
       AND l.key_id = c.key_id
    RETURNING l.destination_id, l.key_id)
  SELECT array_agg(destination_id), array_agg(key_id), count(*)
    INTO v_destinations, v_keys, unblocked
    FROM opened;
  unparked := 0;
  IF unblocked = 0 THEN RETURN; END IF;
  PERFORM assert_read_committed('opening a key');
  WITH raised AS (
    DELETE FROM dead_letters d
     USING unnest(v_destinations, v_keys) o(destination_id, key_id)
     WHERE d.destination_id = o.destination_id
       AND d.key_id = o.key_id
       AND d.reason = 'parked'
       AND d.payload IS NOT NULL
    RETURNING d.*)
  INSERT INTO deliveries (message_id, destination_id, available_at, claim_no, tries, bytes, namespace, tenant_id,
                          key_id, sequence)
  SELECT r.message_id, r.destination_id, clock_timestamp(), r.claim_no, 0, r.bytes, r.namespace, r.tenant_id,
         r.key_id, r.sequence
    FROM raised r;
  GET DIAGNOSTICS unparked = ROW_COUNT;
  PERFORM recheck_lanes(v_destinations, v_keys);
END $$;

-- Inserts tickets that make relays check these lanes again, because their first messages may have changed.
CREATE OR REPLACE FUNCTION recheck_lanes(p_destination_ids int[], p_keys bigint[])
RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  INSERT INTO lane_tickets (destination_id, key_id, recheck)
  SELECT DISTINCT t.destination_id, t.key_id, true
    FROM unnest(p_destination_ids, p_keys) t(destination_id, key_id)
   WHERE t.key_id IS NOT NULL
$$;
