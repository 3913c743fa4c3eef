-- Moves the processor from its own tables to Waybill in one transaction: everything or nothing. Run it with psql as a
-- superuser, after `waybill migrate up`, while neither ingest nor an executor runs:
--   psql -q -f examples/payments/upgrade.sql
-- UPGRADE.md explains each part.

\set ON_ERROR_STOP on
BEGIN;
SET LOCAL lock_timeout = '10s';
LOCK TABLE public.payment_outbox, public.outbox_status IN ACCESS EXCLUSIVE MODE;

-- 1. What the old tables hold. Only this part reads them: if your columns have other names, change it here.
CREATE TEMPORARY TABLE old_payments ON COMMIT DROP AS
SELECT o.outbox_id, o.instruction_id::text, o.participant_id::text, o.sequence_id::bigint, o.idempotency_key::text,
       o.rail_type::text, o.payload::jsonb, upper(o.status::text) AS status, o.next_attempt_at, o.created_at
  FROM public.payment_outbox o;
CREATE TEMPORARY TABLE old_attempts ON COMMIT DROP AS
SELECT s.attempt_id, s.outbox_id, s.attempt_no, upper(s.state::text) AS state, s.claimed_at, s.completed_at,
       s.rail_reference, s.rail_code, s.error_code, s.error_message, s.latency_ms, s.created_at
  FROM public.outbox_status s;
-- The next number of each participant. If you have removed payments, take it from your own counter instead.
CREATE TEMPORARY TABLE old_sequences ON COMMIT DROP AS
SELECT o.participant_id, max(o.sequence_id) + 1 AS next_sequence_id
  FROM old_payments o
 GROUP BY o.participant_id;

-- A payment that was being sent when its executor stopped is sent again, with the same idempotency key.
ALTER TABLE old_payments ADD waits boolean;
UPDATE old_payments
   SET waits = CASE
         WHEN status IN ('PENDING', 'RETRYABLE', 'ZOMBIE_REQUEUE', 'DISPATCHING') THEN true
         WHEN status IN ('DISPATCHED', 'FAILED') THEN false
       END;
DO $$
BEGIN
  IF EXISTS (SELECT FROM old_payments WHERE waits IS NULL) THEN
    RAISE EXCEPTION 'payment_outbox.status is %: say in part 1 of upgrade.sql whether such a payment still waits',
      (SELECT string_agg(DISTINCT coalesce(quote_literal(status), 'null'), ', ') FROM old_payments WHERE waits IS NULL);
  END IF;
END $$;

CREATE INDEX ON old_attempts (outbox_id, attempt_no);
ANALYZE old_payments, old_attempts;
-- Only the last attempt of a payment that waits has no end yet. Other rows are history and stay as they are.
UPDATE old_attempts a
   SET state = 'ZOMBIE_REQUEUE', completed_at = clock_timestamp(), error_code = 'moved_to_waybill'
  FROM old_payments o
 WHERE a.state = 'DISPATCHING'
   AND o.outbox_id = a.outbox_id
   AND o.waits
   AND NOT EXISTS (SELECT FROM old_attempts n WHERE n.outbox_id = a.outbox_id AND n.attempt_no > a.attempt_no);

-- 2. The view is dropped first, then the function that returns rows of a table, then the tables.
DROP VIEW public.supervisor_outbox_status;
DROP FUNCTION IF EXISTS public.enqueue_payment_outbox(text, text, text, text, jsonb);
DROP TABLE public.outbox_status;
DROP TABLE public.payment_outbox;

-- 3. Everything is created anew.
\ir schema.sql
\ir names.sql

-- 4. The ledger gets every payment, so a late repeat is answered and never paid again. A payment that waits is enqueued
-- with its own number: the number of its participant is set before, and to the next one at the end.
INSERT INTO payments.payment_ledger (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type,
                                     payload, created_at)
SELECT o.outbox_id, o.instruction_id, o.participant_id, o.sequence_id, o.idempotency_key, o.rail_type, o.payload,
       o.created_at
  FROM old_payments o
 WHERE NOT o.waits;
DO $$
DECLARE
  v_old  record;
  v_sent record;
BEGIN
  FOR v_old IN SELECT o.* FROM old_payments o WHERE o.waits ORDER BY o.participant_id, o.sequence_id LOOP
    INSERT INTO outbox.keys (next_sequence, namespace, tenant_id, key)
    VALUES (v_old.sequence_id, 'payments', '', v_old.participant_id)
    ON CONFLICT (namespace, tenant_id, key) DO UPDATE SET next_sequence = excluded.next_sequence;
    SELECT * INTO v_sent
      FROM payments.send_payment(v_old.instruction_id, v_old.participant_id, v_old.idempotency_key, v_old.rail_type,
                                 v_old.payload,
                                 CASE WHEN v_old.next_attempt_at > clock_timestamp() THEN v_old.next_attempt_at END);
    IF v_sent.duplicate THEN
      RAISE EXCEPTION 'instruction % with the idempotency key % waits twice in payment_outbox: remove one of its rows',
        v_old.instruction_id, v_old.idempotency_key;
    END IF;
    INSERT INTO payments.payment_ledger (outbox_id, message_id, instruction_id, participant_id, sequence_id,
                                         idempotency_key, rail_type, payload, created_at, earlier_attempts)
    VALUES (v_old.outbox_id, v_sent.id, v_old.instruction_id, v_old.participant_id, v_sent.sequence,
            v_old.idempotency_key, v_old.rail_type, v_old.payload, v_old.created_at,
            (SELECT coalesce(max(a.attempt_no), 0) FROM old_attempts a WHERE a.outbox_id = v_old.outbox_id));
  END LOOP;
END $$;
INSERT INTO outbox.keys (next_sequence, namespace, tenant_id, key)
SELECT s.next_sequence_id, 'payments', '', s.participant_id
  FROM old_sequences s
ON CONFLICT (namespace, tenant_id, key) DO UPDATE SET next_sequence = excluded.next_sequence;
INSERT INTO payments.earlier_attempts (attempt_id, outbox_id, attempt_no, state, claimed_at, completed_at,
                                       rail_reference, rail_code, error_code, error_message, latency_ms, created_at)
SELECT a.attempt_id, a.outbox_id, a.attempt_no, a.state, a.claimed_at, a.completed_at, a.rail_reference, a.rail_code,
       a.error_code, a.error_message, a.latency_ms, a.created_at
  FROM old_attempts a;

-- What was moved. behind_failed: payments that wait at the same rail behind one that failed, and are sent now.
SELECT count(*) FILTER (WHERE o.waits) AS waiting,
       count(*) FILTER (WHERE o.status = 'DISPATCHING') AS were_dispatching,
       count(*) FILTER (WHERE NOT o.waits) AS ended,
       (SELECT count(*) FROM old_attempts) AS attempts,
       count(*) FILTER (WHERE o.waits AND f.first < o.sequence_id) AS behind_failed
  FROM old_payments o
  LEFT JOIN (SELECT x.participant_id, x.rail_type, min(x.sequence_id) AS first
               FROM old_payments x
              WHERE x.status = 'FAILED'
              GROUP BY x.participant_id, x.rail_type) f USING (participant_id, rail_type);
COMMIT;
