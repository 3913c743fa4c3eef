-- The payments processor's names over Waybill and the ledger: views for its tables, and its functions, which belong to
-- symphony_control. Run it as a superuser after schema.sql; it can be run again.

SET ROLE payments_owner;

-- security_invoker: readers see through these views only what they may see of the tables. A payment whose rail has no
-- route yet waits, too: after upgrade.sql, until the first executor has created the routes.
CREATE OR REPLACE VIEW payments.payment_outbox_pending WITH (security_invoker = true) AS
SELECT p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key,
       substr(t.name, 6) AS rail_type, p.payload, p.earlier_attempts + d.tries AS attempt_count,
       d.available_at AS next_attempt_at, p.created_at
  FROM outbox.deliveries d
  JOIN outbox.destinations t ON t.id = d.destination_id AND t.name LIKE 'rail.%'
  JOIN payments.payment_ledger p ON p.message_id = d.message_id
UNION ALL
SELECT p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type, p.payload,
       p.earlier_attempts, coalesce(u.available_at, p.created_at), p.created_at
  FROM outbox.unrouted_messages u
  JOIN payments.payment_ledger p ON p.message_id = u.message_id;

-- A claim is DISPATCHING until its end is appended. What was paid comes from the ledger, for as long as the attempt is
-- kept: for ever. attempt_id is a UUIDv7 of the claim: its time in milliseconds, then bits of its hash. So it is the
-- same in every query, and after the claim has ended. Not outbox.attempt_log: all claims in flight would be read once
-- for each payment. The join with the names of the states: a query for DISPATCHING finds no such name there, and reads
-- none of the attempts.
CREATE OR REPLACE VIEW payments.payment_outbox_attempts WITH (security_invoker = true) AS
SELECT (lpad(to_hex(floor(extract(epoch FROM coalesce(l.claimed_at, l.ended_at)) * 1000)::bigint), 12, '0')
        || '7' || substr(h.hash, 1, 3) || '8' || substr(h.hash, 4, 15))::uuid AS attempt_id,
       l.outbox_id, l.instruction_id, l.participant_id, l.sequence_id, l.idempotency_key,
       substr(t.name, 6) AS rail_type, l.payload, l.earlier_attempts + l.claim_no AS attempt_no,
       l.state, l.claimed_at, l.ended_at AS completed_at, l.reference AS rail_reference,
       l.remote_code AS rail_code, l.error_code, l.error_message, l.latency_ms,
       coalesce(l.ended_at, l.claimed_at) AS created_at
  FROM (SELECT p.*, a.destination_id, a.claim_no, s.name AS state, a.claimed_at, a.ended_at, a.reference,
               a.remote_code, a.error_code, a.error_message, a.latency_ms
          FROM payments.payment_ledger p
          JOIN outbox.attempts a ON a.message_id = p.message_id
          JOIN (VALUES ('dispatched'::outbox.attempt_state, 'DISPATCHED'), ('retryable', 'RETRYABLE'),
                       ('failed', 'FAILED'), ('zombie_requeue', 'ZOMBIE_REQUEUE'), ('released', 'RELEASED'),
                       ('discarded', 'DISCARDED')) s(state, name) ON s.state = a.state
        UNION ALL
        SELECT p.*, c.destination_id, c.claim_no, 'DISPATCHING', c.claimed_at, NULL, NULL, NULL, NULL, NULL, NULL
          FROM payments.payment_ledger p
          JOIN outbox.active_claims c ON c.message_id = p.message_id) l
  JOIN outbox.destinations t ON t.id = l.destination_id AND t.name LIKE 'rail.%'
 CROSS JOIN LATERAL (
        SELECT format('%s/%s/%s', l.message_id, t.name, l.claim_no) AS claim) c
 CROSS JOIN LATERAL (
        SELECT encode(sha256(convert_to(c.claim, 'UTF8')), 'hex') AS hash) h
UNION ALL
SELECT a.attempt_id, p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key, p.rail_type,
       p.payload, a.attempt_no, a.state, a.claimed_at, a.completed_at, a.rail_reference, a.rail_code, a.error_code,
       a.error_message, a.latency_ms, a.created_at
  FROM payments.payment_ledger p
  JOIN payments.earlier_attempts a ON a.outbox_id = p.outbox_id;

CREATE OR REPLACE VIEW payments.participant_outbox_sequences WITH (security_invoker = true) AS
SELECT s.key AS participant_id, s.next_sequence AS next_sequence_id
  FROM outbox.keys s
 WHERE s.namespace = 'payments';

-- One row per rail: pending, in flight, and what needs an operator. stuck: held by an executor whose lease has expired.
-- unrouted: those of pending whose rail has no route, and that no executor takes; such a rail has a row, too.
CREATE OR REPLACE VIEW payments.supervisor_outbox_status WITH (security_invoker = true) AS
WITH unrouted AS (
  SELECT p.rail_type, count(*) AS count, min(outbox.id_time(u.message_id)) AS oldest_at
    FROM outbox.unrouted_messages u
    JOIN payments.payment_ledger p ON p.message_id = u.message_id
   GROUP BY p.rail_type)
SELECT coalesce(substr(t.name, 6), u.rail_type) AS rail_type, t.paused_at IS NOT NULL AS paused,
       (SELECT count(*) FROM outbox.deliveries d WHERE d.destination_id = t.id) + coalesce(u.count, 0) AS pending,
       (SELECT count(*) FROM outbox.deliveries d WHERE d.destination_id = t.id AND d.tries > 0) AS retrying,
       (SELECT round(extract(epoch FROM clock_timestamp() - least(min(outbox.id_time(d.message_id)), u.oldest_at)), 3)
          FROM outbox.deliveries d
         WHERE d.destination_id = t.id) AS oldest_pending_age_seconds,
       (SELECT count(*) FROM outbox.active_claims c WHERE c.destination_id = t.id) AS dispatching,
       (SELECT count(*)
          FROM outbox.active_claims c
         WHERE c.destination_id = t.id
           AND c.expires_at < clock_timestamp()) AS stuck_dispatching,
       (SELECT count(*) FROM outbox.dead_letters l WHERE l.destination_id = t.id) AS dlq_depth,
       ARRAY (
         SELECT l.key
           FROM outbox.lanes n
           JOIN outbox.dead_letters l ON l.message_id = n.blocked_by AND l.destination_id = n.destination_id
          WHERE n.destination_id = t.id
            AND n.blocked_by IS NOT NULL
          ORDER BY l.key) AS blocked_participants,
       coalesce(u.count, 0) AS unrouted
  FROM (SELECT * FROM outbox.destinations d WHERE d.name LIKE 'rail.%') t
  FULL JOIN unrouted u ON u.rail_type = substr(t.name, 6);

-- The views are read-only like the tables behind them, even for a login with too many rights.
CREATE OR REPLACE TRIGGER refuse_change INSTEAD OF INSERT OR UPDATE OR DELETE ON payments.payment_outbox_pending
  FOR EACH ROW EXECUTE FUNCTION payments.refuse_change();
CREATE OR REPLACE TRIGGER refuse_change INSTEAD OF INSERT OR UPDATE OR DELETE ON payments.payment_outbox_attempts
  FOR EACH ROW EXECUTE FUNCTION payments.refuse_change();

REVOKE ALL ON payments.payment_outbox_pending, payments.payment_outbox_attempts, payments.supervisor_outbox_status,
  payments.participant_outbox_sequences FROM PUBLIC;
GRANT SELECT ON payments.payment_outbox_pending, payments.payment_outbox_attempts, payments.supervisor_outbox_status
  TO symphony_control, symphony_supervisor, symphony_operator, symphony_readonly, symphony_auditor;
GRANT SELECT ON payments.participant_outbox_sequences TO symphony_supervisor, symphony_operator;

GRANT CREATE ON SCHEMA payments TO symphony_control;
RESET ROLE;
SET ROLE symphony_control;

-- A number is taken with its payment, in enqueue_payment_outbox. No login may call this function.
CREATE OR REPLACE FUNCTION payments.bump_participant_outbox_seq(participant_id text) RETURNS bigint
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'P0001',
    MESSAGE = format('participant "%s" gets no number without a payment, which would be a gap: '
                     'call enqueue_payment_outbox', left(participant_id, 60));
END $$;

-- Sends a payment: the message that executors get. An amount is sent as text, because as a number it would become a
-- double in some languages. A slash in the instruction is escaped, so that no two payments have the same dedupe key.
CREATE OR REPLACE FUNCTION payments.send_payment(
  p_instruction_id text, p_participant_id text, p_idempotency_key text, p_rail_type text, p_payload jsonb,
  p_available_at timestamptz DEFAULT NULL, OUT id uuid, OUT sequence bigint, OUT duplicate boolean)
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT e.id, e.sequence, e.duplicate
    FROM outbox.enqueue('payment.' || p_rail_type,
           p_payload || jsonb_build_object('rail_type', p_rail_type, 'amount', p_payload ->> 'amount'),
           namespace => 'payments',
           key => p_participant_id,
           dedupe_key => replace(replace(p_instruction_id, '%', '%25'), '/', '%2F') || '/' || p_idempotency_key,
           aggregate_type => 'instruction',
           aggregate_id => p_instruction_id,
           headers => jsonb_build_object('idempotency_key', p_idempotency_key),
           available_at => p_available_at) e
$$;

-- Enqueues a payment in the caller's transaction and returns its row. A repeat returns the row of the first, whether it
-- is pending, in flight or ended, however long ago. If it is not pending, attempt_count and next_attempt_at are null.
CREATE OR REPLACE FUNCTION payments.enqueue_payment_outbox(
  instruction_id text, participant_id text, idempotency_key text, rail_type text, payload jsonb)
RETURNS payments.payment_outbox_pending
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_variable
DECLARE
  v_problem text;
  v_broken  text;
  v_rails   text;
  v_known   boolean;
  v_sent    record;
  v_row     payments.payment_outbox_pending;
  -- before the payment is due
  v_now     timestamptz := clock_timestamp();
BEGIN
  SELECT CASE
           WHEN f.value IS NULL THEN
             format('%s is null: a payment has an instruction_id, a participant_id, an idempotency_key, a rail_type '
                    'and a payload', f.name)
           ELSE
             format('%s "%s" has %s bytes: give 1 to 255', f.name, left(f.value, 60), octet_length(f.value))
         END
    INTO v_problem
    FROM (VALUES ('instruction_id', instruction_id), ('participant_id', participant_id),
                 ('idempotency_key', idempotency_key), ('rail_type', rail_type)) f(name, value)
   WHERE f.value IS NULL
      OR octet_length(f.value) NOT BETWEEN 1 AND 255
   LIMIT 1;
  IF jsonb_typeof(payload) IS DISTINCT FROM 'object' THEN
    v_problem := coalesce(v_problem, format(
      'payload is %s, not an object: give one such as {"amount": "12.34", "currency": "EUR", "destination": ...}',
      coalesce(jsonb_typeof(payload), 'null')));
  END IF;
  IF v_problem IS NOT NULL THEN RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem; END IF;

  IF NOT EXISTS (SELECT FROM payments.payment_ledger p
                  WHERE p.instruction_id = enqueue_payment_outbox.instruction_id
                    AND p.idempotency_key = enqueue_payment_outbox.idempotency_key) THEN
    -- a route to one of the rails, for payments
    SELECT string_agg(DISTINCT substr(r.topic, 9), ', '), bool_or(r.topic = 'payment.' || rail_type)
      INTO v_rails, v_known
      FROM outbox.routes r
      JOIN outbox.destinations d ON d.id = r.destination_id AND d.name LIKE 'rail.%'
     WHERE r.topic LIKE 'payment.%'
       AND coalesce(r.namespace, 'payments') = 'payments';
    IF v_known IS NOT TRUE THEN
      RAISE EXCEPTION USING ERRCODE = '22023',
        MESSAGE = format('rail_type is "%s": give one of those that have a route: %s', left(rail_type, 60),
                         coalesce(v_rails, 'none yet, start an executor'));
    END IF;
    -- The first of several concurrent requests writes the ledger. The others wait for it, and leave nothing: their
    -- message and its number are undone with this block.
    BEGIN
      SELECT * INTO v_sent
        FROM payments.send_payment(instruction_id, participant_id, idempotency_key, rail_type, payload);
      IF NOT v_sent.duplicate THEN
        INSERT INTO payments.payment_ledger
          (outbox_id, message_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload,
           created_at)
        VALUES (v_sent.id, v_sent.id, instruction_id, participant_id, v_sent.sequence, idempotency_key, rail_type,
                payload, v_now);
      END IF;
    EXCEPTION WHEN unique_violation THEN
      GET STACKED DIAGNOSTICS v_broken = CONSTRAINT_NAME;
      IF v_broken <> 'payment_ledger_once' THEN RAISE; END IF;
    END;
  END IF;

  SELECT p.outbox_id, p.instruction_id, p.participant_id, p.sequence_id, p.idempotency_key,
         coalesce(w.rail_type, p.rail_type), p.payload, w.attempt_count, w.next_attempt_at, p.created_at
    INTO v_row
    FROM payments.payment_ledger p
    LEFT JOIN payments.payment_outbox_pending w ON w.outbox_id = p.outbox_id
   WHERE p.instruction_id = enqueue_payment_outbox.instruction_id
     AND p.idempotency_key = enqueue_payment_outbox.idempotency_key;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = 'the payment was enqueued by another transaction that this one does not see: try again';
  END IF;
  RETURN v_row;
END $$;

REVOKE ALL ON FUNCTION payments.enqueue_payment_outbox, payments.send_payment, payments.bump_participant_outbox_seq
  FROM PUBLIC;
GRANT EXECUTE ON FUNCTION payments.enqueue_payment_outbox TO symphony_ingest;
RESET ROLE;
-- it was needed to create the functions
REVOKE CREATE ON SCHEMA payments FROM symphony_control;
