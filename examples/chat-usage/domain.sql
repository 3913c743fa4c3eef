-- The platform's turns and their billing. Run after schema.sql, which makes the logins; it can be run again.

-- A turn that bears quota reserves a part of its tenant's quota when it begins. Each turn is finalised once.
CREATE TABLE IF NOT EXISTS public.chat_turns (
  tenant_id       uuid   NOT NULL,
  turn_id         uuid   NOT NULL,
  request_id      uuid   NOT NULL,
  state           text   NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'completed', 'failed', 'aborted')),
  -- null: the turn bears no quota
  reserved_tokens bigint CHECK (reserved_tokens > 0),
  used_tokens     bigint CHECK (used_tokens >= 0 AND used_tokens <= reserved_tokens),
  finalised_at    timestamptz,
  PRIMARY KEY (tenant_id, turn_id),
  CHECK ((state = 'running') = (finalised_at IS NULL) AND (state = 'running') = (used_tokens IS NULL))
);

-- The consumer's side, which may be another database: what was billed, once and for ever, and the sums.
CREATE TABLE IF NOT EXISTS public.billed_usage (
  dedupe_key  text   PRIMARY KEY,
  tenant_id   uuid   NOT NULL,
  used_tokens bigint NOT NULL
);
CREATE TABLE IF NOT EXISTS public.billing_balances (
  tenant_id   uuid   PRIMARY KEY,
  turns       bigint NOT NULL,
  used_tokens bigint NOT NULL
);

REVOKE ALL ON public.chat_turns, public.billed_usage, public.billing_balances FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE ON public.chat_turns TO chat_producer;
GRANT SELECT, INSERT ON public.billed_usage TO chat_billing;
GRANT SELECT, INSERT, UPDATE ON public.billing_balances TO chat_billing;
