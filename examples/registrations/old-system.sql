-- The old system during the change: the trigger that calls the webhook directly, for registrations only, and logs its
-- calls. Here writing the log stands for the call. It asks which system sends, in the transaction that enqueues; in
-- shadow mode it reports what it sent. Run it after the rollout exists, which the first drain, start or apply creates.

CREATE TABLE IF NOT EXISTS public.webhook_logs (
  id      uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  body    jsonb NOT NULL,
  sent_at timestamptz NOT NULL DEFAULT now()
);

-- SECURITY DEFINER: the roles that register users need no rights on the log and on Waybill's tables.
CREATE OR REPLACE FUNCTION public.call_webhook() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_body jsonb := jsonb_build_object(
    'event', 'user.registered', 'data', public.registration_data(NEW), 'timestamp', now());
BEGIN
  IF outbox.rollout_decision('registrations', 'user/' || NEW.id) = 'new' THEN RETURN NULL; END IF;
  INSERT INTO public.webhook_logs (body) VALUES (v_body);
  IF (SELECT shadow FROM outbox.rollouts WHERE name = 'registrations') THEN
    -- the message's id; if there is none, the report counts the registration as missing
    PERFORM outbox.report_sent('registrations', coalesce((
      SELECT m.id
        FROM outbox.messages m
       WHERE m.aggregate_type = 'user'
         AND m.aggregate_id = NEW.id::text
         AND m.topic = 'user.registered'
       ORDER BY m.id DESC
       LIMIT 1), NEW.id)::text, v_body);
  END IF;
  RETURN NULL;
END $$;
REVOKE EXECUTE ON FUNCTION public.call_webhook() FROM PUBLIC;
-- triggers fire in the order of their names: this one after user_registered, which enqueues
CREATE OR REPLACE TRIGGER webhook_call AFTER INSERT ON public.wp_user_registrations
  FOR EACH ROW EXECUTE FUNCTION public.call_webhook();
