-- What the site has before Waybill: its outbox as a table with a status column, and a trigger that calls the webhook
-- directly and logs its calls. Only for trying UPGRADE.md; site.sql has the other tables.

CREATE TABLE public.webhook_outbox (
  id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  event_type     text NOT NULL,
  aggregate_type text NOT NULL,
  aggregate_id   uuid NOT NULL,
  payload        jsonb NOT NULL,
  status         text NOT NULL DEFAULT 'pending'
                 CHECK (status IN ('pending', 'processing', 'sent', 'failed', 'dead_letter')),
  retry_count    int NOT NULL DEFAULT 0,
  max_retries    int NOT NULL DEFAULT 5,
  next_retry_at  timestamptz,
  created_at     timestamptz NOT NULL DEFAULT now(),
  processed_at   timestamptz,
  error_message  text,
  error_details  jsonb
);
CREATE INDEX webhook_outbox_pending ON public.webhook_outbox (next_retry_at, created_at)
  WHERE status IN ('pending', 'failed');
CREATE INDEX webhook_outbox_event_type ON public.webhook_outbox (event_type);
CREATE INDEX webhook_outbox_aggregate ON public.webhook_outbox (aggregate_type, aggregate_id);
CREATE INDEX webhook_outbox_dead_letter ON public.webhook_outbox (created_at) WHERE status = 'dead_letter';

CREATE TABLE public.webhook_logs (
  id      uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  body    jsonb NOT NULL,
  sent_at timestamptz NOT NULL DEFAULT now()
);
-- writing the log stands for the call
CREATE FUNCTION public.call_webhook() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO public.webhook_logs (body) VALUES (jsonb_build_object(
    'event', 'user.registered', 'data', public.registration_data(NEW), 'timestamp', now()));
  RETURN NULL;
END $$;
CREATE TRIGGER webhook_call AFTER INSERT ON public.wp_user_registrations
  FOR EACH ROW EXECUTE FUNCTION public.call_webhook();
