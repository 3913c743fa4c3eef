-- The chat platform's own objects over Waybill: its outbox table is a view. Run after `waybill migrate up`; it can be
-- run again.

-- Everything goes to one destination, which the platform's dispatchers serve, each for its namespace.
SELECT outbox.define_destination('modkit');
SELECT outbox.define_route('*', 'modkit');

CREATE OR REPLACE VIEW public.modkit_outbox_events WITH (security_invoker = true) AS
SELECT m.id, m.namespace, m.topic, m.tenant_id, m.dedupe_key, m.payload, s.status, s.tries AS attempts,
       s.next_try_at AS next_attempt_at, s.locked_by, s.locked_until, coalesce(s.last_error, s.last_error_code) AS last_error,
       m.created_at, s.changed_at AS updated_at
  FROM outbox.messages m JOIN outbox.message_status s ON s.message_id = m.id AND s.destination = 'modkit';

-- A turn reserves a part of its tenant's quota when it begins, and is finalised once.
CREATE TABLE IF NOT EXISTS public.chat_turns (
  tenant_id       text   NOT NULL,
  turn_id         uuid   NOT NULL,
  request_id      uuid   NOT NULL,
  state           text   NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'completed', 'failed', 'aborted')),
  reserved_tokens bigint NOT NULL CHECK (reserved_tokens > 0),
  used_tokens     bigint CHECK (used_tokens BETWEEN 0 AND reserved_tokens),
  finalised_at    timestamptz,
  PRIMARY KEY (tenant_id, turn_id),
  CHECK ((state = 'running') = (finalised_at IS NULL) AND (state = 'running') = (used_tokens IS NULL))
);

-- The consumer's side, which may be another database.
CREATE TABLE IF NOT EXISTS public.billing_balances (
  tenant_id   text   PRIMARY KEY,
  turns       bigint NOT NULL,
  used_tokens bigint NOT NULL
);
