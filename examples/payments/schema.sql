-- The payments processor's own objects over Waybill: its tables are views, its function calls Waybill's, its logins are
-- members of Waybill's roles. Run as an administrator after `waybill migrate up`; it can be run again.

SELECT outbox.install_roles('payments_');

-- The logins. symphony_control owns the objects below and cannot log in. symphony_ingest is a member of no role: the
-- one function that it may call has the rights that it needs.
DO $$
DECLARE
  v_login record;
BEGIN
  FOR v_login IN SELECT * FROM (VALUES
    ('symphony_control', 'NOLOGIN', '{payments_producer,payments_auditor}'::text[]),
    ('symphony_ingest', 'LOGIN', '{}'),
    ('symphony_executor', 'LOGIN', '{payments_relay}'),
    ('symphony_maintenance', 'LOGIN', '{payments_relay,payments_maintenance}'),
    ('symphony_supervisor', 'LOGIN', '{payments_control}'),
    ('symphony_operator', 'LOGIN', '{payments_control,payments_operator}'),
    ('symphony_readonly', 'LOGIN', '{payments_auditor}'),
    ('symphony_auditor', 'LOGIN', '{payments_auditor}')) l(name, kind, roles)
  LOOP
    CONTINUE WHEN EXISTS (SELECT FROM pg_roles r WHERE r.rolname = v_login.name);
    EXECUTE format('CREATE ROLE %I %s', v_login.name, v_login.kind);
    IF v_login.roles <> '{}' THEN
      EXECUTE format('GRANT %s TO %I', array_to_string(v_login.roles, ', '), v_login.name);
    END IF;
  END LOOP;
END $$;

-- The memory of what was paid is kept, whatever a configuration says.
INSERT INTO outbox.retention_floors (topic, namespace, attempts_days, dedupe_keys_days, keeps_identity)
VALUES ('payment.*', 'payments', 'infinity', 'infinity', true)
ON CONFLICT (topic, namespace) DO NOTHING;
INSERT INTO outbox.retention_floors (namespace, keys_days)
VALUES ('payments', 'infinity')
ON CONFLICT (topic, namespace) DO NOTHING;

CREATE SCHEMA IF NOT EXISTS payments;
ALTER SCHEMA payments OWNER TO symphony_control;
SET ROLE symphony_control;

-- The first rail of each payment, so that a repeat is recognised even if it names another rail. Waybill's dedupe keys
-- are unique per topic, and a rail is a topic here.
CREATE TABLE IF NOT EXISTS payments.payment_rails (
  instruction_id  uuid NOT NULL,
  idempotency_key text NOT NULL,
  rail_type       text NOT NULL,
  PRIMARY KEY (instruction_id, idempotency_key)
);

-- security_invoker: readers see through these views only what they may see of Waybill's tables.
CREATE OR REPLACE VIEW payments.payment_outbox_pending WITH (security_invoker = true) AS
SELECT m.id AS outbox_id, m.aggregate_id::uuid AS instruction_id, m.key AS participant_id, m.sequence AS sequence_id,
       m.headers ->> 'idempotency_key' AS idempotency_key, substr(t.name, 6) AS rail_type, m.payload - 'rail_type' AS payload,
       d.tries AS attempt_count, d.available_at AS next_attempt_at, m.created_at
  FROM outbox.deliveries d
  JOIN outbox.destinations t ON t.id = d.destination_id AND t.name LIKE 'rail.%'
  JOIN outbox.messages m ON m.id = d.message_id;

-- A claim is DISPATCHING until its end is appended. What identifies the payment is kept with the attempt, the payload
-- with the message.
CREATE OR REPLACE VIEW payments.payment_outbox_attempts WITH (security_invoker = true) AS
SELECT l.message_id || '/' || l.claim_no AS attempt_id, l.message_id AS outbox_id,
       l.aggregate_id::uuid AS instruction_id, l.key AS participant_id, l.sequence AS sequence_id,
       substr(l.dedupe_key, length(l.aggregate_id) + 2) AS idempotency_key, substr(l.destination, 6) AS rail_type, m.payload - 'rail_type' AS payload,
       l.claim_no AS attempt_no, upper(l.state) AS state, l.claimed_at, l.ended_at AS completed_at,
       l.reference AS rail_reference, l.remote_code AS rail_code, l.error_code, l.error_message, l.latency_ms,
       coalesce(l.ended_at, l.claimed_at) AS created_at
  FROM outbox.attempt_log l LEFT JOIN outbox.messages m ON m.id = l.message_id
 WHERE l.destination LIKE 'rail.%';

CREATE OR REPLACE VIEW payments.participant_outbox_sequences WITH (security_invoker = true) AS
SELECT s.key AS participant_id, s.next_sequence AS next_sequence_id
  FROM outbox.keys s WHERE s.namespace = 'payments';

-- One row per rail: pending, in flight, and what needs an operator. stuck: held by an executor whose lease has expired.
CREATE OR REPLACE VIEW payments.supervisor_outbox_status WITH (security_invoker = true) AS
SELECT substr(t.name, 6) AS rail_type, t.paused_at IS NOT NULL AS paused,
       (SELECT count(*) FROM outbox.deliveries d WHERE d.destination_id = t.id) AS pending,
       (SELECT count(*) FROM outbox.deliveries d WHERE d.destination_id = t.id AND d.tries > 0) AS retrying,
       (SELECT round(extract(epoch FROM clock_timestamp() - min(outbox.id_time(d.message_id))), 3)
          FROM outbox.deliveries d WHERE d.destination_id = t.id) AS oldest_pending_age_seconds,
       (SELECT count(*) FROM outbox.active_claims c WHERE c.destination_id = t.id) AS dispatching,
       (SELECT count(*) FROM outbox.active_claims c WHERE c.destination_id = t.id AND c.expires_at < clock_timestamp()) AS stuck_dispatching,
       (SELECT count(*) FROM outbox.dead_letters l WHERE l.destination_id = t.id) AS dlq_depth,
       ARRAY (SELECT l.key FROM outbox.lanes n JOIN outbox.dead_letters l ON l.message_id = n.blocked_by AND l.destination_id = n.destination_id
               WHERE n.destination_id = t.id AND n.blocked_by IS NOT NULL ORDER BY l.key) AS blocked_participants
  FROM outbox.destinations t WHERE t.name LIKE 'rail.%';

-- The views are read-only like the tables behind them, even for a login with too many rights.
CREATE OR REPLACE FUNCTION payments.refuse_change() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'P0001', MESSAGE = format('%s of %s is refused: payments are enqueued with enqueue_payment_outbox, and what is recorded stays',
    TG_OP, TG_TABLE_NAME);
END $$;
CREATE OR REPLACE TRIGGER refuse_change INSTEAD OF INSERT OR UPDATE OR DELETE ON payments.payment_outbox_pending
  FOR EACH ROW EXECUTE FUNCTION payments.refuse_change();
CREATE OR REPLACE TRIGGER refuse_change INSTEAD OF INSERT OR UPDATE OR DELETE ON payments.payment_outbox_attempts
  FOR EACH ROW EXECUTE FUNCTION payments.refuse_change();

CREATE OR REPLACE TRIGGER refuse_change BEFORE DELETE OR TRUNCATE ON payments.payment_rails
  FOR EACH STATEMENT EXECUTE FUNCTION payments.refuse_change();
ALTER TABLE payments.payment_rails ENABLE ALWAYS TRIGGER refuse_change;

-- Enqueues a payment in the caller's transaction and returns its row. A repeat returns the row of the first, whether it
-- is pending, in flight or ended. If a payment is not pending, attempt_count and next_attempt_at are null. After its
-- message has expired, payload is null, too.
CREATE OR REPLACE FUNCTION payments.enqueue_payment_outbox(
  instruction_id uuid, participant_id text, idempotency_key text, rail_type text, payload jsonb)
RETURNS payments.payment_outbox_pending
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_problem text;
  v_rail    text;
  v_sent    record;
  v_row     payments.payment_outbox_pending;
BEGIN
  SELECT format('%s is null: a payment has an instruction_id, a participant_id, an idempotency_key, a rail_type and a payload', f.name) INTO v_problem
    FROM (VALUES ('instruction_id', enqueue_payment_outbox.instruction_id::text), ('participant_id', enqueue_payment_outbox.participant_id),
                 ('idempotency_key', enqueue_payment_outbox.idempotency_key), ('rail_type', enqueue_payment_outbox.rail_type),
                 ('payload', enqueue_payment_outbox.payload::text)) f(name, value) WHERE f.value IS NULL LIMIT 1;
  IF v_problem IS NOT NULL THEN RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = v_problem; END IF;
  IF jsonb_typeof(enqueue_payment_outbox.payload) <> 'object' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'payload is not an object: give {"amount": "12.34", "currency": "EUR", "destination": ...}';
  END IF;
  IF NOT EXISTS (SELECT FROM outbox.routes r WHERE r.topic = 'payment.' || enqueue_payment_outbox.rail_type) THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('rail_type is "%s": give one of those that have a route: %s', left(enqueue_payment_outbox.rail_type, 60),
      coalesce((SELECT string_agg(DISTINCT substr(r.topic, 9), ', ') FROM outbox.routes r WHERE r.topic LIKE 'payment.%'), 'none yet, start an executor'));
  END IF;

  -- a concurrent repeat waits here for the first one, and takes its rail
  INSERT INTO payments.payment_rails AS r (instruction_id, idempotency_key, rail_type)
  VALUES (enqueue_payment_outbox.instruction_id, enqueue_payment_outbox.idempotency_key, enqueue_payment_outbox.rail_type)
  ON CONFLICT (instruction_id, idempotency_key) DO UPDATE SET rail_type = r.rail_type
  RETURNING r.rail_type INTO v_rail;
  SELECT * INTO v_sent FROM outbox.enqueue('payment.' || v_rail,
    -- an amount is stored as text: as a number it would become a double in some languages
    enqueue_payment_outbox.payload || jsonb_build_object('rail_type', v_rail, 'amount', enqueue_payment_outbox.payload ->> 'amount'),
    namespace => 'payments',
    key => enqueue_payment_outbox.participant_id,
    dedupe_key => enqueue_payment_outbox.instruction_id || '/' || enqueue_payment_outbox.idempotency_key,
    aggregate_type => 'instruction', aggregate_id => enqueue_payment_outbox.instruction_id::text,
    headers => jsonb_build_object('idempotency_key', enqueue_payment_outbox.idempotency_key));

  SELECT v_sent.id, enqueue_payment_outbox.instruction_id, coalesce(m.key, i.key), v_sent.sequence, enqueue_payment_outbox.idempotency_key, v_rail,
         m.payload - 'rail_type', d.tries, d.available_at, outbox.id_time(v_sent.id)
    INTO v_row
    FROM (VALUES (1)) one LEFT JOIN outbox.messages m ON m.id = v_sent.id LEFT JOIN outbox.message_identities i ON i.message_id = v_sent.id
    LEFT JOIN outbox.deliveries d ON d.message_id = v_sent.id;
  RETURN v_row;
END $$;

REVOKE ALL ON ALL TABLES IN SCHEMA payments FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA payments FROM PUBLIC;
GRANT USAGE ON SCHEMA payments TO symphony_ingest, symphony_supervisor, symphony_operator, symphony_readonly, symphony_auditor;
GRANT EXECUTE ON FUNCTION payments.enqueue_payment_outbox TO symphony_ingest;
GRANT SELECT ON payments.payment_outbox_pending, payments.payment_outbox_attempts, payments.supervisor_outbox_status
  TO symphony_supervisor, symphony_operator, symphony_readonly, symphony_auditor;
GRANT SELECT ON payments.participant_outbox_sequences TO symphony_supervisor, symphony_operator;
RESET ROLE;
