-- The payments processor's logins and tables: the ledger, which keeps every payment for ever. Run this file and then
-- names.sql as a superuser, after `waybill migrate up`; both can be run again.

SELECT count(*) AS changes FROM outbox.install_roles('payments_');

-- The logins; those that exist already get what they lack. symphony_control owns the functions and cannot log in.
-- symphony_ingest is a member of no role: the one function that it may call has the rights that it needs. Logins find
-- the processor's names without a schema.
DO $$
DECLARE
  v_login record;
  v_role  text;
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
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = v_login.name) THEN
      EXECUTE format('CREATE ROLE %I %s', v_login.name, v_login.kind);
    END IF;
    IF v_login.kind = 'NOLOGIN' AND (SELECT r.rolcanlogin FROM pg_roles r WHERE r.rolname = v_login.name) THEN
      RAISE EXCEPTION '% can log in, and would own the functions that write the ledger', v_login.name
        USING HINT = format('Let its users log in as symphony_supervisor, and run ALTER ROLE %I NOLOGIN.', v_login.name);
    END IF;
    FOREACH v_role IN ARRAY v_login.roles LOOP
      IF NOT EXISTS (SELECT FROM pg_auth_members m
                      WHERE m.roleid = v_role::regrole AND m.member = v_login.name::regrole) THEN
        EXECUTE format('GRANT %I TO %I', v_role, v_login.name);
      END IF;
    END LOOP;
    EXECUTE format('ALTER ROLE %I IN DATABASE %I SET search_path = payments, public', v_login.name, current_database());
  END LOOP;
END $$;

-- Attempts, numbers and failed payments are kept for ever, whatever a configuration says: only an operator discards a
-- dead letter. Dedupe keys and messages may expire: the ledger below remembers every payment.
INSERT INTO outbox.retention_floors (topic, namespace, attempts_days, dead_letters_days)
VALUES ('payment.*', 'payments', 'infinity', 'infinity')
ON CONFLICT (topic, namespace) DO UPDATE
   SET attempts_days = excluded.attempts_days, dead_letters_days = excluded.dead_letters_days;
INSERT INTO outbox.retention_floors (namespace, keys_days)
VALUES ('payments', 'infinity')
ON CONFLICT (topic, namespace) DO UPDATE SET keys_days = excluded.keys_days;

-- Tables and views belong to the owner of Waybill's tables, not to symphony_control: its functions can add rows, and
-- nothing that runs can remove them. Only a superuser can become the owner.
CREATE SCHEMA IF NOT EXISTS payments;
ALTER SCHEMA payments OWNER TO payments_owner;
SET ROLE payments_owner;

-- The ledger: one row for each payment, for ever. Its constraints decide what is a repeat. message_id: Waybill's
-- message, with the same id; another id for a payment that was moved to Waybill while it waited, null for one that had
-- ended before (upgrade.sql). earlier_attempts: its attempts before the move.
CREATE TABLE IF NOT EXISTS payments.payment_ledger (
  outbox_id        uuid        PRIMARY KEY,
  message_id       uuid        UNIQUE,
  instruction_id   text        NOT NULL,
  participant_id   text        NOT NULL,
  sequence_id      bigint      NOT NULL,
  idempotency_key  text        NOT NULL,
  rail_type        text        NOT NULL,
  payload          jsonb       NOT NULL,
  earlier_attempts int         NOT NULL DEFAULT 0,
  created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  CONSTRAINT payment_ledger_once UNIQUE (instruction_id, idempotency_key),
  CONSTRAINT payment_ledger_sequence UNIQUE (participant_id, sequence_id)
);

-- Attempts from before the move to Waybill: see upgrade.sql. What was paid is in the ledger.
CREATE TABLE IF NOT EXISTS payments.earlier_attempts (
  attempt_id     uuid        PRIMARY KEY,
  outbox_id      uuid        NOT NULL REFERENCES payments.payment_ledger,
  attempt_no     int         NOT NULL,
  state          text        NOT NULL,
  claimed_at     timestamptz,
  completed_at   timestamptz,
  rail_reference text,
  rail_code      text,
  error_code     text,
  error_message  text,
  latency_ms     int,
  created_at     timestamptz NOT NULL,
  UNIQUE (outbox_id, attempt_no)
);

-- An old attempt may be DISPATCHING for ever: upgrade.sql rewrites none.
CREATE INDEX IF NOT EXISTS earlier_attempts_dispatching ON payments.earlier_attempts (claimed_at)
  WHERE state = 'DISPATCHING';

-- Rows are only added, for every login, with every session_replication_role.
CREATE OR REPLACE FUNCTION payments.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'P0001',
    MESSAGE = format('%s of %s is refused: payments are enqueued with enqueue_payment_outbox, '
                     'and what is recorded stays', TG_OP, TG_TABLE_NAME);
END $$;
CREATE OR REPLACE TRIGGER refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON payments.payment_ledger
  FOR EACH STATEMENT EXECUTE FUNCTION payments.refuse_change();
CREATE OR REPLACE TRIGGER refuse_change BEFORE UPDATE OR DELETE OR TRUNCATE ON payments.earlier_attempts
  FOR EACH STATEMENT EXECUTE FUNCTION payments.refuse_change();
ALTER TABLE payments.payment_ledger ENABLE ALWAYS TRIGGER refuse_change;
ALTER TABLE payments.earlier_attempts ENABLE ALWAYS TRIGGER refuse_change;

-- For listeners of the processor's own. Executors do not need it: Waybill wakes them. A two-phase transaction, which
-- cannot NOTIFY, sets waybill.notify to off.
CREATE OR REPLACE FUNCTION payments.notify_outbox_pending() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  PERFORM pg_notify('outbox_pending', '');
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER notify_outbox_pending AFTER INSERT ON payments.payment_ledger
  FOR EACH STATEMENT WHEN (current_setting('waybill.notify', true) IS DISTINCT FROM 'off')
  EXECUTE FUNCTION payments.notify_outbox_pending();

-- Two rails that get the same topic, by the same or by overlapping patterns: both would pay each of its payments.
CREATE OR REPLACE FUNCTION payments.topic_with_two_rails() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT format('routes lead "%s" to %s and "%s" to %s: a payment would be paid on both rails',
                a.topic, ad.name, b.topic, bd.name)
    FROM outbox.routes a
    JOIN outbox.destinations ad ON ad.id = a.destination_id AND ad.name LIKE 'rail.%'
    JOIN outbox.routes b ON b.destination_id <> a.destination_id
    JOIN outbox.destinations bd ON bd.id = b.destination_id AND bd.name LIKE 'rail.%'
   WHERE a.tenant_id IS NULL
     AND b.tenant_id IS NULL
     AND coalesce(a.namespace, 'payments') = 'payments'
     AND coalesce(b.namespace, 'payments') = 'payments'
     AND outbox.route_matches(a.topic, a.namespace, NULL, b.topic, 'payments', NULL)
   ORDER BY a.topic, ad.name, bd.name
   LIMIT 1
$$;
-- Deferred: a configuration that leads a topic to another rail adds the new route before it removes the old one.
-- SECURITY DEFINER: a deferred trigger runs with the rights of the login that commits.
CREATE OR REPLACE FUNCTION payments.refuse_two_rails() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_problem text := payments.topic_with_two_rails();
BEGIN
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'P0001', MESSAGE = v_problem,
      HINT = 'Remove one of the two routes in the same transaction, or in the same configuration.';
  END IF;
  RETURN NULL;
END $$;
DO $$
BEGIN
  IF payments.topic_with_two_rails() IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = 'P0001', MESSAGE = payments.topic_with_two_rails(),
      HINT = 'Remove one of the two routes first.';
  END IF;
  IF NOT EXISTS (SELECT FROM pg_trigger g
                  WHERE g.tgrelid = 'outbox.routes'::regclass AND g.tgname = 'refuse_two_rails') THEN
    CREATE CONSTRAINT TRIGGER refuse_two_rails AFTER INSERT OR UPDATE ON outbox.routes
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION payments.refuse_two_rails();
  END IF;
END $$;

REVOKE ALL ON payments.payment_ledger, payments.earlier_attempts FROM PUBLIC;
REVOKE ALL ON FUNCTION payments.refuse_change, payments.notify_outbox_pending, payments.topic_with_two_rails,
  payments.refuse_two_rails FROM PUBLIC;
GRANT SELECT, INSERT ON payments.payment_ledger TO symphony_control;
GRANT SELECT ON payments.earlier_attempts TO symphony_control;
GRANT SELECT ON payments.payment_ledger, payments.earlier_attempts
  TO symphony_supervisor, symphony_operator, symphony_readonly, symphony_auditor;
GRANT USAGE ON SCHEMA payments
  TO symphony_control, symphony_ingest, symphony_supervisor, symphony_operator, symphony_readonly, symphony_auditor;
RESET ROLE;
