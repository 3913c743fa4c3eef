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

-- A trigger of another table that goes on inserting would make every write to that table fail.
DO $$
DECLARE
  v_triggers text := (
    SELECT string_agg(format('%I on %s', t.tgname, t.tgrelid::regclass), ', ' ORDER BY t.tgname)
      FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
     WHERE NOT t.tgisinternal
       AND p.prosrc ~* '(insert\s+into|update|delete\s+from)\s+"?_private"?\."?(outbox|cursors|outbox_dlq)"?\M');
BEGIN
  IF v_triggers IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('these triggers write to the old tables, which become views: %s', v_triggers),
      HINT = 'Nothing was changed. Drop them, watch their tables with outbox.watch instead, and run this again.';
  END IF;
END $$;

-- what reads the old tables, and is made anew
DROP VIEW IF EXISTS public.outbox_health_metrics, _private.outbox_health_metrics;
DROP ROUTINE IF EXISTS public.prune_outbox_events, _private.prune_outbox_events,
                       public.run_system_health_check, _private.run_system_health_check;

-- A view of yours would go on reading the old tables, without a word.
DO $$
DECLARE
  v_readers text := (
    SELECT string_agg(DISTINCT coalesce(r.ev_class::regclass::text, d.objid::regprocedure::text), ', ')
      FROM pg_depend d
      LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
     -- a function depends on a table, or on the type of its rows
     WHERE ((d.refclassid = 'pg_class'::regclass AND d.refobjid IN (
               '_private.outbox'::regclass, '_private.cursors'::regclass, '_private.outbox_dlq'::regclass))
            OR (d.refclassid = 'pg_type'::regclass AND d.refobjid IN (
               '_private.outbox'::regtype, '_private.cursors'::regtype, '_private.outbox_dlq'::regtype)))
       AND (r.ev_class <> d.refobjid OR d.classid = 'pg_proc'::regclass));
BEGIN
  IF v_readers IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('these read the old tables: %s', v_readers),
      HINT = 'Nothing was changed. Drop them, run this again, and create them anew over the new _private.outbox.';
  END IF;
END $$;

-- the tables are kept, with everything in them
CREATE SCHEMA _private_archive;
ALTER TABLE _private.outbox SET SCHEMA _private_archive;
ALTER TABLE _private.cursors SET SCHEMA _private_archive;
ALTER TABLE _private.outbox_dlq SET SCHEMA _private_archive;
