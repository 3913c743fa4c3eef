-- Lanes: the messages of one key at one destination, one lease at a time, in sequence.
--
-- Who may change a lane's row, and when:
--   producers   never: they leave a ticket, in the transaction that brings the message
--   relays      eat tickets and wake idle lanes; claim lanes that are due; free those of their own leases
--   operators   unblock
-- Each holds the row's lock and looks at what waits with a snapshot taken after that. A lane falls idle only if
-- that look finds nothing; what commits later has left a ticket, and a ticket is eaten only by somebody who holds
-- the lane's lock: so a message and a lane that falls idle never miss each other. Nobody but its own lease waits
-- for a lane: tickets and claims skip one that is locked, and come again. For the same reason one relay at a time
-- makes lanes: an insert would wait for another one that has not committed.

-- Eats tickets: lanes that do not exist are made, idle ones become due. Returns how many tickets that were.
CREATE OR REPLACE FUNCTION wake_lanes(p_destination destinations, p_max_tickets int) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now      timestamptz := clock_timestamp();
  v_tickets  tid[];
  v_owners   bigint[];
  v_streams  bigint[];
  v_rechecks bigint[];
  v_locked   bigint[];
  v_made     bigint[];
  v_gone     bigint[];
  v_idle     bigint[];
  v_blocked  bigint[];
  -- those below are for whole destinations: see functions/turns.sql
  v_last     bigint := 0;
  v_found    int;
  v_eaten    int := 0;
BEGIN
  -- in rounds: tickets that have to stay must not hide those behind them
  FOR v_round IN 1..10 LOOP
    SELECT array_agg(x.tid), array_agg(x.stream_id), array_agg(DISTINCT x.stream_id),
           coalesce(array_agg(DISTINCT x.stream_id) FILTER (WHERE x.recheck), '{}'), max(x.id)
      INTO v_tickets, v_owners, v_streams, v_rechecks, v_last
      FROM (SELECT t.ctid AS tid, t.id, t.stream_id, t.recheck FROM lane_tickets t
             WHERE t.destination_id = p_destination.id AND t.id > v_last
             ORDER BY t.id LIMIT p_max_tickets FOR UPDATE SKIP LOCKED) x;
    EXIT WHEN v_tickets IS NULL;
    v_found := cardinality(v_tickets);

    SELECT coalesce(array_agg(x.stream_id), '{}'), array_agg(x.stream_id) FILTER (WHERE x.blocked_by IS NOT NULL),
           array_agg(x.stream_id) FILTER (WHERE x.lease_id IS NULL
             AND (x.available_at IS NULL OR (x.available_at > v_now AND x.stream_id = ANY (v_rechecks))))
      INTO v_locked, v_blocked, v_idle
      FROM (SELECT l.stream_id, l.available_at, l.lease_id, l.blocked_by FROM lanes l
             WHERE l.destination_id = p_destination.id AND l.stream_id = ANY (v_streams) FOR UPDATE SKIP LOCKED) x;
    IF v_idle IS NOT NULL THEN
      UPDATE lanes l SET available_at = v_now WHERE l.destination_id = p_destination.id AND l.stream_id = ANY (v_idle);
    END IF;
    v_made := '{}';
    IF cardinality(v_locked) < cardinality(v_streams)
       AND pg_try_advisory_xact_lock(hashtextextended('waybill lanes ' || current_schema(), p_destination.id)) THEN
      WITH made AS (
        INSERT INTO lanes (destination_id, stream_id, available_at, namespace, tenant_id)
        -- asked anew: p_destination was read before this transaction had a number, see functions/turns.sql
        SELECT p_destination.id, i.id, v_now, s.namespace,
               turn_of((SELECT x.fairness FROM destinations x WHERE x.id = p_destination.id), nullif(s.tenant_id, ''))
          FROM unnest(v_streams) i(id)
          CROSS JOIN LATERAL (
            SELECT x.namespace, x.tenant_id FROM streams x WHERE x.id = i.id
            UNION ALL
            -- whatever waits is delivered, also of a key that was forgotten
            SELECT d.namespace, coalesce(d.tenant_id, '') FROM deliveries d WHERE d.destination_id = p_destination.id AND d.stream_id = i.id
            LIMIT 1) s
         WHERE (SELECT 1 FROM lanes l WHERE l.destination_id = p_destination.id AND l.stream_id = i.id LIMIT 1) IS NULL
        ON CONFLICT DO NOTHING
        RETURNING stream_id)
      SELECT coalesce(array_agg(stream_id), '{}') INTO v_made FROM made;
    END IF;
    IF v_blocked IS NOT NULL AND p_destination.when_dead = 'park' THEN
      PERFORM park_lanes(p_destination.id, v_blocked);
    END IF;

    -- the tickets of lanes that somebody else has locked, or is making, stay; those of a forgotten key wake nothing
    IF cardinality(v_locked) + cardinality(v_made) < cardinality(v_streams) THEN
      v_gone := ARRAY (
        SELECT i.id FROM unnest(v_streams) i(id)
         WHERE (SELECT 1 FROM streams s WHERE s.id = i.id LIMIT 1) IS NULL
           AND (SELECT 1 FROM lanes l WHERE l.destination_id = p_destination.id AND l.stream_id = i.id LIMIT 1) IS NULL
           AND (SELECT 1 FROM deliveries d WHERE d.destination_id = p_destination.id AND d.stream_id = i.id LIMIT 1) IS NULL);
      v_tickets := ARRAY (SELECT t.tid FROM unnest(v_tickets, v_owners) t(tid, stream_id)
                           WHERE t.stream_id IN (SELECT unnest(v_locked || v_made || v_gone)));
    END IF;
    DELETE FROM lane_tickets t WHERE t.ctid = ANY (v_tickets);
    v_eaten := v_eaten + cardinality(v_tickets);
    EXIT WHEN v_found < p_max_tickets OR v_eaten > 0;
  END LOOP;
  RETURN v_eaten;
END $$;

-- Takes runs of due messages from due lanes: of each lane its first ones in sequence, up to the first that is
-- not due, that somebody else has locked, or that has a dead holder behind it (that one is taken by itself, when
-- it is the first of all). A lane costs more than a message, so a claim asks for some lanes first, and for more of
-- them if their runs are short; lanes share p_limit evenly, and one alone gets a run of that length.
CREATE OR REPLACE FUNCTION claim_lanes(
  p_destination_id smallint, p_lease_id uuid, p_limit int, p_max_bytes bigint, p_tenant_ids text[], p_namespace text,
  p_begun boolean)
RETURNS taken LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now     timestamptz := clock_timestamp();
  v_lanes   int := least(p_limit, greatest(100, p_limit / 16));
  v_left    int := p_limit;
  v_bytes   bigint := p_max_bytes;
  v_begun   boolean := p_begun;
  v_streams bigint[];
  v_lasts   bigint[];
  v_rest    bigint[];
  v_run     int;
  v_rounds  int := 0;
  v_settled int;
  v_taken   taken;
  v_all     taken;
BEGIN
  WHILE v_rounds < 3 LOOP
    IF p_tenant_ids IS NULL THEN
      SELECT array_agg(x.stream_id), array_agg(x.last_sequence) INTO v_streams, v_lasts
        FROM (SELECT l.stream_id, l.last_sequence FROM lanes l
               WHERE l.destination_id = p_destination_id AND l.available_at <= v_now AND l.blocked_by IS NULL
                 AND l.available_at IS NOT NULL AND (p_namespace IS NULL OR l.namespace = p_namespace)
               AND (SELECT t.paused_at IS NULL FROM destinations t WHERE t.id = p_destination_id)
               ORDER BY l.available_at, l.stream_id LIMIT v_lanes FOR UPDATE SKIP LOCKED) x;
    ELSE
      -- the first lane of each tenant comes before the second of any
      SELECT array_agg(y.stream_id ORDER BY y.round, y.turn), array_agg(y.last_sequence ORDER BY y.round, y.turn) INTO v_streams, v_lasts
        FROM (SELECT x.stream_id, x.last_sequence, t.turn, row_number() OVER (PARTITION BY t.turn ORDER BY x.available_at, x.stream_id) AS round
                FROM unnest(p_tenant_ids) WITH ORDINALITY t(tenant_id, turn) CROSS JOIN LATERAL (
                  SELECT l.stream_id, l.last_sequence, l.available_at FROM lanes l
                   WHERE l.destination_id = p_destination_id AND l.tenant_id = t.tenant_id AND l.available_at <= v_now
                     AND (SELECT x.paused_at IS NULL FROM destinations x WHERE x.id = p_destination_id)
                     AND l.available_at IS NOT NULL AND l.blocked_by IS NULL AND (p_namespace IS NULL OR l.namespace = p_namespace)
                   ORDER BY l.available_at, l.stream_id LIMIT ceil(v_lanes::numeric / cardinality(p_tenant_ids)) FOR UPDATE SKIP LOCKED) x) y;
    END IF;
    EXIT WHEN v_streams IS NULL;
    v_run := ceil(v_left::numeric / cardinality(v_streams));

    WITH waiting AS MATERIALIZED (
      SELECT n.place, n.stream_id, n.last_sequence, d.*
        FROM unnest(v_streams, v_lasts) WITH ORDINALITY AS n(stream_id, last_sequence, place)
        CROSS JOIN LATERAL (
          SELECT x.ctid AS tid, x.message_id, x.sequence, x.available_at, x.claim_no + 1 AS claim_no, x.tries + 1 AS tries, x.bytes, x.alone
            FROM deliveries x WHERE x.destination_id = p_destination_id AND x.stream_id = n.stream_id
           ORDER BY x.sequence LIMIT v_run) d),
    -- an operator may have one of them in hand
    locked AS MATERIALIZED (
      SELECT x.message_id FROM deliveries x WHERE x.ctid = ANY (ARRAY (SELECT tid FROM waiting)) FOR UPDATE SKIP LOCKED),
    free AS (
      SELECT w.*, greatest(w.last_sequence, max(w.sequence) OVER earlier) AS previous_sequence,
             CASE WHEN p_tenant_ids IS NOT NULL THEN row_number() OVER lane END AS depth,
             bool_and(w.available_at <= v_now AND w.message_id IN (SELECT message_id FROM locked)) OVER lane
               AND NOT coalesce(bool_or(w.alone) OVER earlier, false) AS in_turn
        FROM waiting w
      WINDOW lane AS (PARTITION BY w.place ORDER BY w.sequence),
             earlier AS (PARTITION BY w.place ORDER BY w.sequence ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)),
    counted AS (
      SELECT f.*, row_number() OVER w AS number, sum(f.bytes) OVER w AS total_bytes, first_value(f.alone) OVER w AS suspect_first
        FROM free f WHERE f.in_turn WINDOW w AS (ORDER BY f.depth, f.place, f.sequence)),
    -- a suspect in the middle of a run ends the run before it
    chosen AS MATERIALIZED (
      SELECT c.* FROM counted c
       WHERE (c.number = 1 AND NOT v_begun)
          OR (NOT (c.suspect_first AND NOT v_begun) AND NOT c.alone AND c.number <= v_left AND c.total_bytes <= v_bytes)),
    gone AS (
      DELETE FROM deliveries x WHERE x.ctid = ANY (ARRAY (SELECT tid FROM chosen)))
    SELECT array_agg(c.message_id), array_agg(c.claim_no), array_agg(c.tries), array_agg(c.available_at), array_agg(c.stream_id),
           array_agg(c.sequence), array_agg(CASE WHEN c.previous_sequence < c.sequence THEN c.previous_sequence END), sum(c.bytes),
           bool_or(c.alone)
      INTO v_taken FROM (SELECT * FROM chosen ORDER BY number) c;

    IF v_taken.message_ids IS NOT NULL THEN
      UPDATE lanes l SET lease_id = p_lease_id, available_at = NULL
       WHERE l.destination_id = p_destination_id AND l.stream_id = ANY (v_taken.stream_ids);
    END IF;
    -- Of those that gave nothing, the empty ones fall idle and the others wait for their heads; one that was only
    -- out of turn stays as it is.
    v_rest := ARRAY (SELECT s FROM unnest(v_streams) s WHERE s NOT IN (SELECT unnest(v_taken.stream_ids)));
    IF v_rest <> '{}' THEN
      UPDATE lanes l SET available_at = h.available_at
        FROM (SELECT x.tid, (SELECT d.available_at FROM deliveries d
                              WHERE d.destination_id = p_destination_id AND d.stream_id = r.stream_id
                              ORDER BY d.sequence LIMIT 1) AS available_at
                FROM unnest(v_rest) r(stream_id)
                CROSS JOIN LATERAL (SELECT i.ctid AS tid FROM lanes i
                                     WHERE i.destination_id = p_destination_id AND i.stream_id = r.stream_id OFFSET 0) x OFFSET 0) h
       WHERE l.ctid = h.tid AND (h.available_at IS NULL OR h.available_at > v_now);
      GET DIAGNOSTICS v_settled = ROW_COUNT;
    END IF;

    -- lanes that are due no more must not hide those behind them
    CONTINUE WHEN v_taken.message_ids IS NULL AND v_settled > 0;
    EXIT WHEN v_taken.message_ids IS NULL;
    v_rounds := v_rounds + 1;
    v_all := join_taken(v_all, v_taken);
    v_left := v_left - cardinality(v_taken.message_ids);
    EXIT WHEN v_left <= 0 OR v_taken.alone OR cardinality(v_streams) < v_lanes;
    v_begun := true;
    v_bytes := v_bytes - v_taken.bytes;
    v_lanes := least(v_left, v_left * cardinality(v_streams) / cardinality(v_taken.message_ids));
  END LOOP;
  RETURN v_all;
END $$;


-- Gives back lanes of a lease whose messages in it have all ended: due when their next head is due, or idle.
-- p_lasts: per lane, the last sequence that has ended for good.
CREATE OR REPLACE FUNCTION free_lanes(p_destination_id smallint, p_lease_id uuid, p_streams bigint[], p_lasts bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_waiting boolean;
BEGIN
  PERFORM FROM lanes WHERE destination_id = p_destination_id AND stream_id = ANY (p_streams) AND lease_id = p_lease_id
    ORDER BY stream_id FOR UPDATE;
  -- A statement of its own: its snapshot is younger than the locks. Joined by ctid, which leaves one plan only.
  WITH freed AS (
    UPDATE lanes l SET lease_id = NULL, last_sequence = greatest(l.last_sequence, h.last), available_at = h.available_at
      FROM (SELECT x.tid, s.last, (SELECT d.available_at FROM deliveries d
                                    WHERE d.destination_id = p_destination_id AND d.stream_id = s.stream_id
                                    ORDER BY d.sequence LIMIT 1) AS available_at
              FROM unnest(p_streams, p_lasts) s(stream_id, last)
              CROSS JOIN LATERAL (SELECT i.ctid AS tid FROM lanes i WHERE i.destination_id = p_destination_id
                                     AND i.stream_id = s.stream_id AND i.lease_id = p_lease_id OFFSET 0) x OFFSET 0) h
     WHERE l.ctid = h.tid
    RETURNING l.available_at)
  SELECT bool_or(available_at IS NOT NULL) INTO v_waiting FROM freed;
  -- another relay may be the next to have it, and asleep
  IF v_waiting THEN PERFORM ring(ARRAY[p_destination_id]); END IF;
END $$;

-- After a part of a lease has ended: blocks the lanes of those that died, if the destination wants it, and frees
-- the lanes of which this lease holds nothing more.
CREATE OR REPLACE FUNCTION end_lanes(p_lease leases, p_ended uuid[], p_when_dead text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_lowest  uuid := (SELECT i FROM unnest(p_lease.message_ids) i ORDER BY i LIMIT 1);
  v_highest uuid := (SELECT i FROM unnest(p_lease.message_ids) i ORDER BY i DESC LIMIT 1);
  v_streams bigint[];
  v_lasts   bigint[];
  v_blocked bigint[];
BEGIN
  -- in one sorted go, for an operator may want several of them too
  PERFORM FROM lanes WHERE destination_id = p_lease.destination_id AND lease_id = p_lease.id AND stream_id = ANY (p_lease.stream_ids)
    ORDER BY stream_id FOR UPDATE;
  IF p_when_dead <> 'continue' THEN PERFORM block_lanes(p_lease.destination_id, p_ended); END IF;

  SELECT array_agg(x.stream_id), array_agg(x.last) INTO v_streams, v_lasts
    FROM (SELECT u.stream_id, coalesce(max(u.sequence) FILTER (WHERE a.state = 'dispatched' OR (a.state = 'failed' AND p_when_dead = 'continue')), 0) AS last
            FROM unnest(p_lease.message_ids, p_lease.claim_nos, p_lease.stream_ids, p_lease.sequences)
                 u(message_id, claim_no, stream_id, sequence)
            LEFT JOIN LATERAL (
              SELECT t.state FROM attempts t WHERE t.message_id = u.message_id AND t.message_id BETWEEN v_lowest AND v_highest
                 AND t.destination_id = p_lease.destination_id AND t.claim_no = u.claim_no LIMIT 1) a ON true
           WHERE u.stream_id IN (SELECT e.stream_id FROM unnest(p_lease.message_ids, p_lease.stream_ids) e(message_id, stream_id)
                                  WHERE e.message_id IN (SELECT unnest(p_ended)))
           GROUP BY u.stream_id HAVING bool_and(a.state IS NOT NULL)) x;
  IF v_streams IS NOT NULL THEN
    PERFORM free_lanes(p_lease.destination_id, p_lease.id, v_streams, v_lasts);
  END IF;
  IF p_when_dead = 'park' THEN
    v_blocked := ARRAY (SELECT l.stream_id FROM lanes l WHERE l.destination_id = p_lease.destination_id
                           AND l.stream_id = ANY (p_lease.stream_ids) AND l.blocked_by IS NOT NULL);
    IF v_blocked <> '{}' THEN PERFORM park_lanes(p_lease.destination_id, v_blocked); END IF;
  END IF;
END $$;

-- Blocks the lanes of those of these messages that are dead, each lane by its first; any others of it stand behind
-- that one, and come back with it. Returns the streams whose lanes were open before.
CREATE OR REPLACE FUNCTION block_lanes(p_destination_id smallint, p_message_ids uuid[]) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET enable_seqscan = off SET jit = off AS $$
DECLARE
  v_blocked bigint[];
BEGIN
  WITH dead AS (
    SELECT DISTINCT ON (d.stream_id) d.stream_id, d.message_id FROM dead_letters d
     WHERE d.destination_id = p_destination_id AND d.message_id = ANY (p_message_ids) AND d.stream_id IS NOT NULL
     ORDER BY d.stream_id, d.sequence),
  found AS MATERIALIZED (
    SELECT d.message_id, x.tid FROM dead d CROSS JOIN LATERAL (
      SELECT i.ctid AS tid FROM lanes i
       WHERE i.destination_id = p_destination_id AND i.stream_id = d.stream_id AND i.blocked_by IS NULL OFFSET 0) x),
  blocked AS (
    UPDATE lanes l SET blocked_by = f.message_id FROM found f WHERE l.ctid = f.tid
    RETURNING l.stream_id)
  SELECT array_agg(stream_id) INTO v_blocked FROM blocked;
  UPDATE dead_letters d SET reason = 'parked'
   WHERE d.destination_id = p_destination_id AND d.message_id = ANY (p_message_ids) AND d.message_id <> (
     SELECT l.blocked_by FROM lanes l WHERE l.destination_id = p_destination_id AND l.stream_id = d.stream_id);
  RETURN v_blocked;
END $$;

-- Moves what waits behind a dead head to the dead letters, from where it comes back, in order, with its head.
CREATE OR REPLACE FUNCTION park_lanes(p_destination_id smallint, p_streams bigint[]) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_count int;
BEGIN
  WITH waiting AS (
    DELETE FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id = ANY (p_streams) RETURNING d.*)
  INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, created_at, stream_id,
         sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type, aggregate_id, headers, payload)
  SELECT w.message_id, p_destination_id, clock_timestamp(), w.claim_no, w.tries, 'parked', 'parked', m.created_at, w.stream_id,
         w.sequence, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
    FROM waiting w LEFT JOIN messages m ON m.id = w.message_id;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- Opens the lanes that these messages block: what was parked behind them waits again, each at its place. p_passed:
-- the key goes on without them. Returns how many lanes and messages that were.
CREATE OR REPLACE FUNCTION unblock_lanes(p_destination_ids smallint[], p_blocked_by uuid[], p_passed boolean, OUT unblocked int, OUT unparked int)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_destinations smallint[];
  v_streams      bigint[];
BEGIN
  WITH chosen AS (
    SELECT l.destination_id, l.stream_id FROM unnest(p_destination_ids, p_blocked_by) b(destination_id, message_id)
      JOIN lanes l ON l.destination_id = b.destination_id AND l.blocked_by = b.message_id
     ORDER BY l.destination_id, l.stream_id FOR UPDATE OF l),
  opened AS (
    UPDATE lanes l SET blocked_by = NULL, last_sequence = CASE WHEN p_passed THEN greatest(l.last_sequence, (
             SELECT m.sequence FROM messages m WHERE m.id = l.blocked_by)) ELSE l.last_sequence END FROM chosen c
     WHERE l.destination_id = c.destination_id AND l.stream_id = c.stream_id RETURNING l.destination_id, l.stream_id)
  SELECT array_agg(destination_id), array_agg(stream_id), count(*) INTO v_destinations, v_streams, unblocked FROM opened;
  unparked := 0;
  IF unblocked = 0 THEN RETURN; END IF;
  PERFORM assert_read_committed('opening a key');
  WITH raised AS (
    DELETE FROM dead_letters d USING unnest(v_destinations, v_streams) o(destination_id, stream_id)
     WHERE d.destination_id = o.destination_id AND d.stream_id = o.stream_id AND d.reason = 'parked' AND d.payload IS NOT NULL
    RETURNING d.*)
  INSERT INTO deliveries (message_id, destination_id, available_at, claim_no, tries, bytes, namespace, tenant_id, stream_id, sequence)
  SELECT r.message_id, r.destination_id, clock_timestamp(), r.claim_no, 0,
         octet_length(r.payload::text) + coalesce(octet_length(r.headers::text), 0), r.namespace, r.tenant_id, r.stream_id, r.sequence
    FROM raised r;
  GET DIAGNOSTICS unparked = ROW_COUNT;
  PERFORM recheck_lanes(v_destinations, v_streams);
END $$;

-- Has lanes looked at again, whatever they wait for: their heads may have changed.
CREATE OR REPLACE FUNCTION recheck_lanes(p_destination_ids smallint[], p_streams bigint[]) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  INSERT INTO lane_tickets (destination_id, stream_id, recheck)
  SELECT DISTINCT t.destination_id, t.stream_id, true FROM unnest(p_destination_ids, p_streams) t(destination_id, stream_id)
   WHERE t.stream_id IS NOT NULL
$$;
