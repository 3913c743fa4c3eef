-- Claims of messages with a key: a claim locks due lanes and takes their first messages, in sequence. See lanes.sql.

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
--
-- Back-off of the run: a failure releases the messages behind it, which have then been claimed once more. So the run
-- halves with each earlier claim of the lane's first message. A message is claimed about log2(p_run) times before it is
-- sent, not once for each failure before it.
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
             LIMIT (SELECT greatest(p_run >> least(h.claim_no, 30), 1)
                      FROM deliveries h
                     WHERE h.destination_id = p_destination_id
                       AND h.key_id = n.key_id
                     ORDER BY h.sequence
                     LIMIT 1)) d),
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
