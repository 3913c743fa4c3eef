-- The end of the old system, when the rollout has stood at 100 for long enough: its trigger goes, its log is kept aside.
-- All of it or nothing, and not a day too soon: below 100 the old trigger still sends.

BEGIN;
DO $$
BEGIN
  -- whoever has asked holds the rollout as it is until the end of the transaction
  PERFORM outbox.rollout_decision(name, '') FROM outbox.rollouts WHERE name = 'registrations';
  IF coalesce((SELECT percent FROM outbox.rollouts WHERE name = 'registrations'), 0) < 100 THEN
    RAISE EXCEPTION 'the rollout registrations is below 100: the old trigger still sends'
      USING HINT = 'Run waybill rollout set registrations --percent 100 first.';
  END IF;
END $$;
DROP TRIGGER call_webhook ON public.wp_user_registrations;
DROP FUNCTION public.call_webhook();
CREATE SCHEMA IF NOT EXISTS archive;
ALTER TABLE public.webhook_logs SET SCHEMA archive;
COMMIT;
