-- First step of the upgrade (UPGRADE.md): takes the old table away from producers and dispatchers until the end of the
-- transaction. It waits for their open transactions for five seconds and then fails, having changed nothing.
SET LOCAL lock_timeout = '5s';
LOCK TABLE public.modkit_outbox_events IN ACCESS EXCLUSIVE MODE;

-- A view of yours would go on reading the old table, without a word.
DO $$
DECLARE
  v_readers text := (
    SELECT string_agg(DISTINCT coalesce(r.ev_class::regclass::text, d.objid::regprocedure::text), ', ')
      FROM pg_depend d
      LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
     -- a function depends on the table, or on the type of its rows
     WHERE ((d.refclassid = 'pg_class'::regclass AND d.refobjid = 'public.modkit_outbox_events'::regclass)
            OR (d.refclassid = 'pg_type'::regclass AND d.refobjid = 'public.modkit_outbox_events'::regtype))
       AND (r.ev_class <> d.refobjid OR d.classid = 'pg_proc'::regclass));
BEGIN
  IF v_readers IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('these read the table modkit_outbox_events: %s', v_readers),
      HINT = 'Nothing was changed. Drop them, run this again, and create them anew over the view.';
  END IF;
END $$;
ALTER TABLE public.modkit_outbox_events RENAME TO modkit_outbox_events_old;
