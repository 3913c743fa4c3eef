-- The registrations site's own tables, with triggers that enqueue messages, and its outbox table as a view over
-- Waybill. Run after `waybill migrate up`; it can be run again.

CREATE TABLE IF NOT EXISTS public.page_pairs (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  registration_url  text NOT NULL,
  thankyou_page_url text NOT NULL,
  created_by        text NOT NULL
);
CREATE TABLE IF NOT EXISTS public.wp_user_registrations (
  id                bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  user_id           bigint NOT NULL,
  user_email        text   NOT NULL,
  registration_url  text   NOT NULL,
  thankyou_page_url text   NOT NULL,
  pair_id           bigint REFERENCES public.page_pairs,
  registered_at     timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS public.subscriptions (
  id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  user_id       bigint  NOT NULL,
  plan          text    NOT NULL,
  amount        numeric NOT NULL,
  currency      text    NOT NULL,
  billing_cycle text    NOT NULL,
  status        text    NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'cancelled'))
);
CREATE TABLE IF NOT EXISTS public.payments (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  transaction_id  text    NOT NULL UNIQUE,
  subscription_id bigint  NOT NULL REFERENCES public.subscriptions,
  amount          numeric NOT NULL,
  currency        text    NOT NULL,
  status          text    NOT NULL CHECK (status IN ('succeeded', 'failed'))
);

-- Arguments: the event, the aggregate's type, and the column with its id. The events of one aggregate are delivered in
-- order, by key. Events that a row can have only once carry a dedupe key, under which the old system knows them too.
CREATE OR REPLACE FUNCTION public.enqueue_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_row          jsonb := CASE WHEN TG_OP = 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END;
  v_aggregate_id text  := v_row ->> TG_ARGV[2];
BEGIN
  PERFORM outbox.enqueue(TG_ARGV[0], v_row, key => TG_ARGV[1] || '/' || v_aggregate_id,
    aggregate_type => TG_ARGV[1], aggregate_id => v_aggregate_id,
    dedupe_key => CASE WHEN TG_OP = 'INSERT' THEN TG_ARGV[0] || '/' || (v_row ->> 'id') END);
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER user_registered AFTER INSERT ON public.wp_user_registrations
  FOR EACH ROW EXECUTE FUNCTION public.enqueue_event('user.registered', 'user', 'user_id');
CREATE OR REPLACE TRIGGER user_updated AFTER UPDATE ON public.wp_user_registrations
  FOR EACH ROW WHEN (OLD IS DISTINCT FROM NEW) EXECUTE FUNCTION public.enqueue_event('user.updated', 'user', 'user_id');
CREATE OR REPLACE TRIGGER user_deleted AFTER DELETE ON public.wp_user_registrations
  FOR EACH ROW EXECUTE FUNCTION public.enqueue_event('user.deleted', 'user', 'user_id');
CREATE OR REPLACE TRIGGER pair_created AFTER INSERT ON public.page_pairs
  FOR EACH ROW EXECUTE FUNCTION public.enqueue_event('pair.created', 'pair', 'id');
CREATE OR REPLACE TRIGGER pair_updated AFTER UPDATE ON public.page_pairs
  FOR EACH ROW WHEN (OLD IS DISTINCT FROM NEW) EXECUTE FUNCTION public.enqueue_event('pair.updated', 'pair', 'id');
CREATE OR REPLACE TRIGGER pair_deleted AFTER DELETE ON public.page_pairs
  FOR EACH ROW EXECUTE FUNCTION public.enqueue_event('pair.deleted', 'pair', 'id');
CREATE OR REPLACE TRIGGER subscription_created AFTER INSERT ON public.subscriptions
  FOR EACH ROW EXECUTE FUNCTION public.enqueue_event('subscription.created', 'subscription', 'id');
CREATE OR REPLACE TRIGGER subscription_cancelled AFTER UPDATE ON public.subscriptions
  FOR EACH ROW WHEN (OLD.status = 'active' AND NEW.status = 'cancelled')
  EXECUTE FUNCTION public.enqueue_event('subscription.cancelled', 'subscription', 'id');
CREATE OR REPLACE TRIGGER payment_succeeded AFTER INSERT ON public.payments
  FOR EACH ROW WHEN (NEW.status = 'succeeded') EXECUTE FUNCTION public.enqueue_event('payment.succeeded', 'payment', 'id');
CREATE OR REPLACE TRIGGER payment_failed AFTER INSERT ON public.payments
  FOR EACH ROW WHEN (NEW.status = 'failed') EXECUTE FUNCTION public.enqueue_event('payment.failed', 'payment', 'id');

-- retry_count counts the retries that were started, without the first try
CREATE OR REPLACE VIEW public.webhook_outbox WITH (security_invoker = true) AS
SELECT m.id, m.topic AS event_type, m.aggregate_type, m.aggregate_id, m.payload,
       CASE WHEN s.retrying THEN 'failed' WHEN s.status = 'delivered' THEN 'sent' WHEN s.status = 'dead' THEN 'dead_letter'
            ELSE s.status END AS status,
       greatest(s.tries - 1, 0) AS retry_count, d.max_attempts - 1 AS max_retries, s.next_try_at AS next_retry_at, m.created_at,
       CASE WHEN s.status IN ('delivered', 'dead', 'discarded') THEN s.changed_at END AS processed_at,
       coalesce(e.error_message, e.error_code) AS error_message, e.details AS error_details
  FROM outbox.messages m
  JOIN outbox.message_status s ON s.message_id = m.id AND s.destination = 'n8n'
  JOIN outbox.destinations d ON d.name = s.destination
  LEFT JOIN LATERAL (
    SELECT a.error_message, a.error_code, jsonb_strip_nulls(jsonb_build_object('code', a.error_code, 'status', a.remote_code,
             'response', a.response, 'at', a.ended_at, 'latency_ms', a.latency_ms)) AS details
      FROM outbox.attempt_log a
     WHERE a.message_id = m.id AND a.destination = s.destination AND a.error_code IS NOT NULL
     ORDER BY a.claim_no DESC LIMIT 1) e ON true;
