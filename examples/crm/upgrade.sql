-- Moves the CRM from its own outbox table to Waybill, in one transaction: all or nothing. Run it in psql, in the folder of
-- schema.sql or elsewhere, after `waybill migrate up` and `waybill roles install`:
--   psql -v ON_ERROR_STOP=1 -f upgrade.sql
-- UPGRADE.md says what happens to each row.

\set ON_ERROR_STOP on
BEGIN;
-- Waits for the claims and inserts that are under way, and gives up rather than hold up the other sessions.
SET LOCAL lock_timeout = '5s';
LOCK TABLE public.outbox IN ACCESS EXCLUSIVE MODE;

-- A view or a function of yours would go on reading the old table, and a trigger of yours would go with it, without a
-- word. A function whose body is a text names the new view from then on, and is no problem.
DO $$
DECLARE
  v_readers  text := (
    SELECT string_agg(DISTINCT coalesce(r.ev_class::regclass::text, d.objid::regprocedure::text), ', ')
      FROM pg_depend d
      LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
     -- a function depends on the table, or on the type of its rows
     WHERE ((d.refclassid = 'pg_class'::regclass AND d.refobjid = 'public.outbox'::regclass)
            OR (d.refclassid = 'pg_type'::regclass AND d.refobjid = 'public.outbox'::regtype))
       AND (r.ev_class <> d.refobjid
            OR (d.classid = 'pg_proc'::regclass
                AND d.objid <> ALL (ARRAY['app.outbox_claim'::regproc, 'app.outbox_mark_delivered'::regproc]::oid[]))));
  v_triggers text := (
    SELECT string_agg(t.tgname, ', ' ORDER BY t.tgname)
      FROM pg_trigger t
     WHERE t.tgrelid = 'public.outbox'::regclass
       AND NOT t.tgisinternal);
BEGIN
  IF v_readers IS NOT NULL THEN
    RAISE EXCEPTION 'these read public.outbox: %', v_readers
      USING HINT = 'Drop them, run this again, and create them anew over the new public.outbox.';
  END IF;
  IF v_triggers IS NOT NULL THEN
    RAISE EXCEPTION 'public.outbox has these triggers: %', v_triggers
      USING HINT = 'They would stay with the archive. Drop them and run this again; schema.sql has a trigger of its own.';
  END IF;
END $$;

-- 1. The functions return rows of the table, so they go first. 2. The indexes are of no use to an archive. 3. The table
-- is not dropped: it becomes the archive.
DROP FUNCTION app.outbox_claim, app.outbox_mark_delivered;
DO $$
DECLARE
  v_index regclass;
BEGIN
  -- whatever their names are; the primary key stays
  FOR v_index IN
    SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = 'public.outbox'::regclass AND NOT i.indisunique
  LOOP
    EXECUTE format('DROP INDEX %s', v_index);
  END LOOP;
END $$;
CREATE SCHEMA IF NOT EXISTS archive;
ALTER TABLE public.outbox SET SCHEMA archive;
REVOKE ALL ON archive.outbox FROM PUBLIC;
DO $$
DECLARE
  v_role text;
BEGIN
  FOR v_role IN SELECT r.rolname FROM pg_roles r WHERE r.rolname IN ('anon', 'authenticated', 'service_role') LOOP
    EXECUTE format('REVOKE ALL ON archive.outbox FROM %I', v_role);
  END LOOP;
END $$;

\ir schema.sql

-- Undelivered rows become messages, with id, tenant, topic, payload and created_at, a thousand at a time. Rows in flight
-- come first, token by token, and are claimed again for their token: their worker can still mark them.
CREATE TEMPORARY TABLE undelivered ON COMMIT DROP AS
SELECT o.*, row_number() OVER (PARTITION BY o.processing_token ORDER BY o.created_at, o.id) AS place
  FROM archive.outbox o
 WHERE o.delivered_at IS NULL;
CREATE INDEX ON undelivered (processing_token, place);
ANALYZE undelivered;
DELETE FROM archive.outbox o WHERE o.delivered_at IS NULL;

DO $$
DECLARE
  v_group record;
  v_left  bigint;
  v_count bigint;
BEGIN
  FOR v_group IN
    SELECT u.processing_token AS token, count(*) AS rows
      FROM undelivered u
     GROUP BY 1
     ORDER BY 1 NULLS LAST
  LOOP
    FOR v_first IN 1..v_group.rows BY 1000 LOOP
      INSERT INTO app.outbox_ids (id, message_id)
      SELECT u.id, e.id
        FROM outbox.enqueue_many((
               SELECT jsonb_agg(jsonb_build_object(
                        'topic', x.topic, 'payload', x.payload, 'tenantId', x.tenant_id,
                        'availableAt', least(x.created_at, now()), 'headers', jsonb_build_object('outbox-id', x.id))
                        ORDER BY x.place)
                 FROM undelivered x
                WHERE x.processing_token IS NOT DISTINCT FROM v_group.token
                  AND x.place BETWEEN v_first AND v_first + 999)) WITH ORDINALITY e
        JOIN undelivered u
          ON u.processing_token IS NOT DISTINCT FROM v_group.token
         AND u.place = v_first + e.ordinality - 1;
    END LOOP;

    v_left := CASE WHEN v_group.token IS NULL THEN 0 ELSE v_group.rows END;
    WHILE v_left > 0 LOOP
      SELECT count(*) INTO v_count FROM app.outbox_claim(least(v_left, 10000)::int, v_group.token);
      IF v_count = 0 THEN
        RAISE EXCEPTION '% rows of the token % could not be claimed again', v_left, v_group.token;
      END IF;
      v_left := v_left - v_count;
    END LOOP;
  END LOOP;
END $$;
COMMIT;
