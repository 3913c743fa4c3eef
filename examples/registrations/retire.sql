-- Retires the old system after the rollout has been at 100 for long enough: removes its trigger and archives its log.
-- It changes all or nothing, and fails below 100, because the old trigger still sends then.

BEGIN;
DO $$
BEGIN
  -- locks the rollout until the end of the transaction
  PERFORM outbox.rollout_decision(name, '') FROM outbox.rollouts WHERE name = 'registrations';
  IF coalesce((SELECT percent FROM outbox.rollouts WHERE name = 'registrations'), 0) < 100 THEN
    RAISE EXCEPTION 'the rollout registrations is below 100: the old trigger still sends'
      USING HINT = 'Run waybill rollout set registrations --percent 100 first.';
  END IF;
END $$;
DROP TRIGGER webhook_call ON public.wp_user_registrations;
DROP FUNCTION public.call_webhook();
CREATE SCHEMA IF NOT EXISTS archive;
ALTER TABLE public.webhook_logs SET SCHEMA archive;
COMMIT;
