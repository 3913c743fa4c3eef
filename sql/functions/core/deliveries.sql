-- Operator actions on pending deliveries: cancel, retry now, move, discard. Each is recorded in operator_actions with
-- its actor.

-- Cancels pending deliveries of a message, at one destination or at all. Deliveries that a relay holds at this moment
-- are not cancelled. Returns how many were.
CREATE OR REPLACE FUNCTION cancel(message_id uuid, destination text DEFAULT NULL, actor text DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_destination_id int := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
  v_count          int;
  v_targets        int[];
  v_keys           bigint[];
BEGIN
  WITH cancelled AS (
    DELETE FROM deliveries d
     WHERE d.message_id = cancel.message_id
       AND (v_destination_id IS NULL OR d.destination_id = v_destination_id)
    RETURNING d.*),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT c.message_id, c.destination_id, c.claim_no + 1, c.tries, 'discarded', clock_timestamp(), 'cancelled'
      FROM cancelled c)
  SELECT count(*), array_agg(c.destination_id), array_agg(c.key_id)
    INTO v_count, v_targets, v_keys
    FROM cancelled c;
  IF v_count > 0 THEN
    -- the messages behind it may be due now
    PERFORM recheck_lanes(v_targets, v_keys);
    PERFORM notify_relays(v_targets);
    PERFORM record_action(actor, 'cancel',
                          jsonb_build_object('messageId', cancel.message_id, 'destination', destination), v_count);
  END IF;
  RETURN v_count;
END $$;

-- Makes deliveries due now that wait for a retry, or are misdated; at most max_count per call. With ids: these
-- messages, even if they wait for their first try. A message at which a cursor has stopped is due for the next reader:
-- the next drain, or a subscription that starts again.
CREATE OR REPLACE FUNCTION retry_now(
  destination text DEFAULT NULL,
  actor       text DEFAULT NULL,
  max_count   int DEFAULT 10000,
  ids         uuid[] DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_destination_id int := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
  v_count          int;
  v_targets        int[];
  v_keys           bigint[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000),
          limit_tenant('retry', 600, '1 minute');
  WITH waiting AS (
    SELECT d.message_id, d.destination_id
      FROM deliveries d
     WHERE d.available_at > clock_timestamp()
       AND CASE WHEN ids IS NULL THEN d.tries > 0 OR d.delay_ms IS NULL ELSE d.message_id = ANY (ids) END
       AND (v_destination_id IS NULL OR d.destination_id = v_destination_id)
     LIMIT max_count
       FOR UPDATE SKIP LOCKED),
  due AS (
    UPDATE deliveries d
       SET available_at = clock_timestamp(), delay_ms = NULL
      FROM waiting w
     WHERE d.message_id = w.message_id
       AND d.destination_id = w.destination_id
    RETURNING d.destination_id, d.key_id)
  SELECT count(*), array_agg(d.destination_id), array_agg(d.key_id)
    INTO v_count, v_targets, v_keys
    FROM due d;
  IF v_count > 0 THEN PERFORM recheck_lanes(v_targets, v_keys); END IF;
  WITH due AS (
    UPDATE cursors c
       SET retry_at = NULL
     WHERE c.failed_message_id IS NOT NULL
       AND c.retry_at > clock_timestamp()
       AND (ids IS NULL OR c.failed_message_id = ANY (ids))
       AND (v_destination_id IS NULL OR c.destination_id = v_destination_id)
    RETURNING 1)
  SELECT v_count + count(*) INTO v_count FROM due;
  IF v_count > 0 THEN
    PERFORM record_action(actor, 'retry_now', jsonb_build_object('destination', destination, 'ids', ids), v_count);
    PERFORM notify_relays(v_targets);
  END IF;
  RETURN v_count;
END $$;

-- Chooses and locks pending deliveries of a destination: those without a key first, then whole keys in sequence.
CREATE OR REPLACE FUNCTION choose_deliveries(p_destination_id int, p_max_count int)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET enable_seqscan = off SET enable_sort = off
AS $$
DECLARE
  v_ids uuid[];
BEGIN
  v_ids := ARRAY (
    SELECT d.message_id
      FROM deliveries d
     WHERE d.destination_id = p_destination_id
       AND d.key_id IS NULL
     ORDER BY d.available_at, d.message_id
     LIMIT p_max_count
       FOR UPDATE SKIP LOCKED);
  RETURN v_ids || ARRAY (
    SELECT d.message_id
      FROM deliveries d
     WHERE d.destination_id = p_destination_id
       AND d.key_id IS NOT NULL
     ORDER BY d.key_id, d.sequence
     LIMIT p_max_count - cardinality(v_ids)
       FOR UPDATE SKIP LOCKED);
END $$;

-- Moves pending deliveries of a destination, such as one that left the configuration, to another one; at most max_count
-- per call. One move runs at a time. A message that the new destination has already, or had (delivered, cancelled or
-- discarded there), is discarded here without being added there. Returns how many deliveries left the old destination.
CREATE OR REPLACE FUNCTION move_deliveries(
  destination    text,
  to_destination text,
  max_count      int DEFAULT 1000,
  actor          text DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_from     int := (find_destination(destination)).id;
  v_to       int := (find_destination(to_destination)).id;
  v_moved    deliveries[];
  v_count    int;
  v_endpoint endpoints;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  IF v_from = v_to THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('to_destination is %s, and so is destination: give another one', to_destination);
  END IF;
  -- an endpoint belongs to a customer: it must not get messages of another tenant
  SELECT * INTO v_endpoint FROM endpoints e WHERE e.destination_id = v_to;
  IF v_endpoint.removed_at IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('to_destination is %s, an endpoint that was removed: give another one', to_destination);
  END IF;
  -- two concurrent moves of one message to one destination would not see each other
  PERFORM take_lock('move');
  -- At the old destination, the record ends with "discarded", also if the new destination has the message already.
  WITH chosen AS (
    SELECT unnest(choose_deliveries(v_from, max_count)) AS message_id),
  moved AS (
    DELETE FROM deliveries d
     USING chosen c
     WHERE d.message_id = c.message_id
       AND d.destination_id = v_from
    RETURNING d),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT (m.d).message_id, v_from, (m.d).claim_no + 1, (m.d).tries, 'discarded', clock_timestamp(), 'moved'
      FROM moved m)
  SELECT array_agg(m.d), count(*)
    INTO v_moved, v_count
    FROM moved m;
  IF v_count = 0 THEN RETURN 0; END IF;
  -- checks the rows taken above: a new query might see others
  IF v_endpoint.tenant_id IS NOT NULL
     AND EXISTS (
           SELECT FROM unnest(v_moved) m
            WHERE m.tenant_id IS DISTINCT FROM v_endpoint.tenant_id)
  THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format(
        'to_destination is %s, an endpoint of the tenant %s, and messages of others wait at %s: give another one',
        to_destination, v_endpoint.tenant_id, destination);
  END IF;

  -- Waits for claims in progress at the new destination; only a later statement sees the leases that they made.
  PERFORM
     FROM deliveries d
     JOIN unnest(v_moved) m ON d.message_id = m.message_id
    WHERE d.destination_id = v_to
      FOR UPDATE OF d;
  -- Claim numbers continue from earlier claims of the message at the new destination.
  INSERT INTO deliveries (message_id, destination_id, available_at, delay_ms, claim_no, bytes, namespace, tenant_id,
                          key_id, sequence)
  SELECT m.message_id, v_to, m.available_at, m.delay_ms, coalesce(p.claim_no, 0), m.bytes, m.namespace,
         fair_tenant(
           (SELECT t.fairness FROM destinations t WHERE t.id = v_to),
           nullif(m.tenant_id, '')),
         m.key_id, m.sequence
    FROM unnest(v_moved) m
    LEFT JOIN LATERAL (
          SELECT a.claim_no,
                 a.state = 'dispatched'
                 OR (a.state = 'discarded' AND a.error_code IS DISTINCT FROM 'moved') AS ended
            FROM attempts a
           WHERE a.message_id = m.message_id
             AND a.destination_id = v_to
           ORDER BY a.claim_no DESC
           LIMIT 1) p ON true
   WHERE p.ended IS NOT TRUE
     AND NOT EXISTS (
           SELECT FROM deliveries d
            WHERE d.message_id = m.message_id
              AND d.destination_id = v_to)
     AND NOT EXISTS (
           SELECT FROM dead_letters d
            WHERE d.message_id = m.message_id
              AND d.destination_id = v_to)
     -- a lease still lists messages whose claim has ended
     AND NOT EXISTS (
           SELECT FROM leases l
            WHERE l.destination_id = v_to
              AND m.message_id = ANY (l.message_ids)
              AND l.claim_nos[array_position(l.message_ids, m.message_id)] > coalesce(p.claim_no, 0));
  PERFORM recheck_lanes(array_agg(t.id), array_agg(m.key_id))
     FROM unnest(v_moved) m
    CROSS JOIN unnest(ARRAY[v_from, v_to]) t(id);
  PERFORM record_action(actor, 'move_deliveries',
                        jsonb_build_object('destination', destination, 'to', to_destination), v_count);
  PERFORM notify_relays(ARRAY[v_to]);
  RETURN v_count;
END $$;

-- Discards pending deliveries of a destination, at most max_count per call. Each gets an attempt with the state
-- discarded and the code cancelled. Deliveries that a relay holds at this moment are not discarded. Returns how many.
CREATE OR REPLACE FUNCTION discard_deliveries(destination text, max_count int DEFAULT 1000, actor text DEFAULT NULL)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_destination_id int := (find_destination(destination)).id;
  v_count          int;
  v_keys           bigint[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  WITH chosen AS (
    SELECT unnest(choose_deliveries(v_destination_id, max_count)) AS message_id),
  removed AS (
    DELETE FROM deliveries d
     USING chosen c
     WHERE d.message_id = c.message_id
       AND d.destination_id = v_destination_id
    RETURNING d.*),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT r.message_id, r.destination_id, r.claim_no + 1, r.tries, 'discarded', clock_timestamp(), 'cancelled'
      FROM removed r)
  SELECT count(*), array_agg(r.key_id)
    INTO v_count, v_keys
    FROM removed r;
  IF v_count > 0 THEN
    -- the messages behind them may be due now
    PERFORM recheck_lanes(array_fill(v_destination_id, ARRAY[v_count]), v_keys);
    PERFORM notify_relays(ARRAY[v_destination_id]);
    PERFORM record_action(actor, 'discard_deliveries', jsonb_build_object('destination', destination), v_count);
  END IF;
  RETURN v_count;
END $$;
