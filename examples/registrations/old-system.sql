-- The old system: a trigger that called the webhook directly, for registrations only, and logged its calls. Here
-- writing the log stands for the call. It asks which system sends, in the transaction that enqueues; during the shadow
-- phase it reports what it sent. Run it after the rollout exists, which the first drain or start creates.

CREATE TABLE IF NOT EXISTS public.webhook_logs (
  id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  body    jsonb NOT NULL,
  sent_at timestamptz NOT NULL DEFAULT now()
);

CREATE OR REPLACE FUNCTION public.call_webhook() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  v_body jsonb := jsonb_build_object('event', 'user.registered', 'data', to_jsonb(NEW), 'timestamp', now());
BEGIN
  IF outbox.rollout_decision('registrations', 'user/' || NEW.user_id) = 'new' THEN RETURN NULL; END IF;
  INSERT INTO public.webhook_logs (body) VALUES (v_body);
  IF (SELECT shadow FROM outbox.rollouts WHERE name = 'registrations') THEN
    PERFORM outbox.report_sent('registrations', 'user.registered/' || NEW.id, v_body);
  END IF;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER call_webhook AFTER INSERT ON public.wp_user_registrations
  FOR EACH ROW EXECUTE FUNCTION public.call_webhook();
