-- Step 1 of UPGRADE.md: takes the old outbox out of use. It waits for transactions that write jobs or events, and holds
-- back new ones until the end of the upgrade. Run it together with the next steps, in one transaction.

SET LOCAL lock_timeout = '10s';
LOCK TABLE public.cataloging_jobs, _private.outbox, _private.cursors, _private.outbox_dlq IN ACCESS EXCLUSIVE MODE;

-- the row triggers that fill the old outbox, and their functions
DO $$
DECLARE
  v_trigger record;
BEGIN
  FOR v_trigger IN
    SELECT t.tgname, p.oid::regprocedure AS function
      FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
     WHERE t.tgrelid = 'public.cataloging_jobs'::regclass AND NOT t.tgisinternal
       AND p.prosrc ~* 'insert\s+into\s+("?_private"?\.)?"?outbox"?\M'
  LOOP
    EXECUTE format('DROP TRIGGER %I ON public.cataloging_jobs', v_trigger.tgname);
    -- several triggers may share a function
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgfoid = v_trigger.function) THEN
      EXECUTE format('DROP FUNCTION %s', v_trigger.function);
    END IF;
  END LOOP;
END $$;

-- what reads the old tables, and is made anew
DROP VIEW IF EXISTS public.outbox_health_metrics, _private.outbox_health_metrics;
DROP ROUTINE IF EXISTS public.prune_outbox_events, _private.prune_outbox_events,
                       public.run_system_health_check, _private.run_system_health_check;

-- the tables are kept, with everything in them
CREATE SCHEMA _private_archive;
ALTER TABLE _private.outbox SET SCHEMA _private_archive;
ALTER TABLE _private.cursors SET SCHEMA _private_archive;
ALTER TABLE _private.outbox_dlq SET SCHEMA _private_archive;
