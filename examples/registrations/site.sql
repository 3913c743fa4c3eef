-- The registrations site's own tables, and its triggers, which insert into webhook_outbox. They are the same before and
-- after the change to Waybill. It can be run again.

CREATE TABLE IF NOT EXISTS public.page_pairs (
  id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  registration_url  text NOT NULL,
  thankyou_page_url text NOT NULL,
  created_by        uuid NOT NULL,
  created_at        timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS public.wp_user_registrations (
  id                uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  user_id           uuid NOT NULL,
  user_email        text NOT NULL,
  registration_url  text NOT NULL,
  thankyou_page_url text NOT NULL,
  pair_id           uuid REFERENCES public.page_pairs,
  registered_at     timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS public.subscriptions (
  id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  user_id       uuid    NOT NULL,
  plan          text    NOT NULL,
  amount        numeric NOT NULL,
  currency      text    NOT NULL,
  billing_cycle text    NOT NULL,
  started_at    timestamptz NOT NULL DEFAULT now(),
  cancelled_at  timestamptz
);
CREATE TABLE IF NOT EXISTS public.payments (
  id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  user_id         uuid    NOT NULL,
  subscription_id uuid    NOT NULL REFERENCES public.subscriptions,
  amount          numeric NOT NULL,
  currency        text    NOT NULL,
  payment_method  text    NOT NULL,
  transaction_id  text    NOT NULL,
  paid_at         timestamptz,
  failed_at       timestamptz,
  CHECK (num_nonnulls(paid_at, failed_at) = 1)
);

-- The data of the three user events. Times are in UTC, whatever the session's time zone.
CREATE OR REPLACE FUNCTION public.registration_data(r public.wp_user_registrations) RETURNS jsonb
LANGUAGE sql STABLE SET timezone = 'UTC' AS $$
  SELECT jsonb_build_object(
    'user_id', r.user_id, 'email', r.user_email, 'registration_url', r.registration_url,
    'thankyou_page_url', r.thankyou_page_url, 'pair_id', r.pair_id, 'registered_at', r.registered_at)
$$;

-- Each trigger function gets the event type as its argument.
CREATE OR REPLACE FUNCTION public.user_event() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  r public.wp_user_registrations;
BEGIN
  IF TG_OP = 'DELETE' THEN r := OLD; ELSE r := NEW; END IF;
  INSERT INTO public.webhook_outbox (event_type, aggregate_type, aggregate_id, payload)
  VALUES (TG_ARGV[0], 'user', r.id, public.registration_data(r));
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION public.pair_event() RETURNS trigger LANGUAGE plpgsql SET timezone = 'UTC' AS $$
DECLARE
  r public.page_pairs;
BEGIN
  IF TG_OP = 'DELETE' THEN r := OLD; ELSE r := NEW; END IF;
  INSERT INTO public.webhook_outbox (event_type, aggregate_type, aggregate_id, payload)
  VALUES (TG_ARGV[0], 'pair', r.id, jsonb_build_object(
    'pair_id', r.id, 'registration_url', r.registration_url, 'thankyou_page_url', r.thankyou_page_url,
    'created_by', r.created_by, 'created_at', r.created_at));
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION public.subscription_event() RETURNS trigger LANGUAGE plpgsql SET timezone = 'UTC' AS $$
BEGIN
  INSERT INTO public.webhook_outbox (event_type, aggregate_type, aggregate_id, payload)
  VALUES (TG_ARGV[0], 'subscription', NEW.id, jsonb_build_object(
    'user_id', NEW.user_id, 'plan', NEW.plan, 'amount', NEW.amount, 'currency', NEW.currency,
    'billing_cycle', NEW.billing_cycle, 'started_at', NEW.started_at)
    || CASE TG_ARGV[0]
         WHEN 'subscription.cancelled' THEN jsonb_build_object('cancelled_at', NEW.cancelled_at)
         ELSE '{}'
       END);
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION public.payment_event() RETURNS trigger LANGUAGE plpgsql SET timezone = 'UTC' AS $$
BEGIN
  INSERT INTO public.webhook_outbox (event_type, aggregate_type, aggregate_id, payload)
  VALUES (TG_ARGV[0], 'payment', NEW.id, jsonb_build_object(
    'user_id', NEW.user_id, 'subscription_id', NEW.subscription_id, 'amount', NEW.amount, 'currency', NEW.currency,
    'payment_method', NEW.payment_method, 'transaction_id', NEW.transaction_id)
    || CASE TG_ARGV[0]
         WHEN 'payment.failed' THEN jsonb_build_object('failed_at', NEW.failed_at)
         ELSE jsonb_build_object('paid_at', NEW.paid_at)
       END);
  RETURN NULL;
END $$;

CREATE OR REPLACE TRIGGER user_registered AFTER INSERT ON public.wp_user_registrations
  FOR EACH ROW EXECUTE FUNCTION public.user_event('user.registered');
CREATE OR REPLACE TRIGGER user_updated AFTER UPDATE ON public.wp_user_registrations
  FOR EACH ROW WHEN (OLD IS DISTINCT FROM NEW) EXECUTE FUNCTION public.user_event('user.updated');
CREATE OR REPLACE TRIGGER user_deleted AFTER DELETE ON public.wp_user_registrations
  FOR EACH ROW EXECUTE FUNCTION public.user_event('user.deleted');
CREATE OR REPLACE TRIGGER pair_created AFTER INSERT ON public.page_pairs
  FOR EACH ROW EXECUTE FUNCTION public.pair_event('pair.created');
CREATE OR REPLACE TRIGGER pair_updated AFTER UPDATE ON public.page_pairs
  FOR EACH ROW WHEN (OLD IS DISTINCT FROM NEW) EXECUTE FUNCTION public.pair_event('pair.updated');
CREATE OR REPLACE TRIGGER pair_deleted AFTER DELETE ON public.page_pairs
  FOR EACH ROW EXECUTE FUNCTION public.pair_event('pair.deleted');
CREATE OR REPLACE TRIGGER subscription_created AFTER INSERT ON public.subscriptions
  FOR EACH ROW EXECUTE FUNCTION public.subscription_event('subscription.created');
CREATE OR REPLACE TRIGGER subscription_cancelled AFTER UPDATE ON public.subscriptions
  FOR EACH ROW WHEN (OLD.cancelled_at IS NULL AND NEW.cancelled_at IS NOT NULL)
  EXECUTE FUNCTION public.subscription_event('subscription.cancelled');
CREATE OR REPLACE TRIGGER payment_succeeded AFTER INSERT ON public.payments
  FOR EACH ROW WHEN (NEW.paid_at IS NOT NULL) EXECUTE FUNCTION public.payment_event('payment.succeeded');
CREATE OR REPLACE TRIGGER payment_failed AFTER INSERT ON public.payments
  FOR EACH ROW WHEN (NEW.failed_at IS NOT NULL) EXECUTE FUNCTION public.payment_event('payment.failed');
