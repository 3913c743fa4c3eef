-- Replaces the table webhook_outbox by the view of schema.sql, and moves its rows to Waybill: all of it or nothing, in
-- one transaction. Run it with psql as an administrator, after the steps of UPGRADE.md. Inserts wait meanwhile, and then
-- go to the view. The table with all its rows becomes archive.webhook_outbox.

\set ON_ERROR_STOP on
BEGIN;
-- gives up instead of making inserts wait behind a long transaction: run it again
SET LOCAL lock_timeout = '5s';
-- from here on, inserts wait
LOCK TABLE public.webhook_outbox IN ACCESS EXCLUSIVE MODE;

-- A view or a function of yours would go on reading the old table, and a trigger of yours would go with it, without a
-- word. A function whose body is a text names the new view from then on, and is no problem.
DO $$
DECLARE
  v_readers  text := (
    SELECT string_agg(DISTINCT coalesce(r.ev_class::regclass::text, d.objid::regprocedure::text), ', ')
      FROM pg_depend d
      LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
     -- a function depends on the table, or on the type of its rows
     WHERE ((d.refclassid = 'pg_class'::regclass AND d.refobjid = 'public.webhook_outbox'::regclass)
            OR (d.refclassid = 'pg_type'::regclass AND d.refobjid = 'public.webhook_outbox'::regtype))
       AND (r.ev_class <> d.refobjid OR d.classid = 'pg_proc'::regclass));
  v_triggers text := (
    SELECT string_agg(t.tgname, ', ' ORDER BY t.tgname)
      FROM pg_trigger t
     WHERE t.tgrelid = 'public.webhook_outbox'::regclass
       AND NOT t.tgisinternal);
BEGIN
  IF v_readers IS NOT NULL THEN
    RAISE EXCEPTION 'these read webhook_outbox: %', v_readers
      USING HINT = 'Drop them, run this again, and create them anew over the new webhook_outbox.';
  END IF;
  IF v_triggers IS NOT NULL THEN
    RAISE EXCEPTION 'webhook_outbox has these triggers: %', v_triggers
      USING HINT = 'They would stay with the archive. Drop them and run this again.';
  END IF;
END $$;

CREATE SCHEMA IF NOT EXISTS archive;
ALTER TABLE public.webhook_outbox SET SCHEMA archive;
-- the message that a row became
ALTER TABLE archive.webhook_outbox ADD message_id uuid;

-- Rows become messages in the order of their creation, sent ones stay. Each keeps its creation time in the header
-- `time`, and its id in the dedupe key. One that waits for a retry is due at that time, all others at their creation.
DO $$
DECLARE
  v_n8n      outbox.destinations;
  v_rows     jsonb;
  v_unrouted text;
BEGIN
  SELECT * INTO v_n8n FROM outbox.destinations WHERE name = 'n8n';
  IF NOT FOUND THEN
    RAISE EXCEPTION 'there is no destination n8n'
      USING HINT = 'Run waybill apply --config examples/registrations/waybill.config.mjs first.';
  END IF;
  -- locks the rollout until the end of the transaction
  PERFORM outbox.rollout_decision(r.name, '') FROM outbox.rollouts r WHERE r.name = 'registrations';
  IF EXISTS (SELECT FROM archive.webhook_outbox WHERE event_type = 'user.registered' AND status <> 'sent')
     AND (SELECT r.percent FROM outbox.rollouts r WHERE r.name = 'registrations') < 100 THEN
    RAISE EXCEPTION 'the rollout registrations is below 100, so Waybill would not send the moved registrations'
      USING HINT = 'If the old trigger has sent them, set their status to sent. '
                   'If not, run waybill rollout set registrations --percent 100 --yes.';
  END IF;

  FOR v_rows IN
    SELECT jsonb_agg(jsonb_build_object(
             'topic', o.event_type, 'payload', o.payload, 'key', o.aggregate_type || '/' || o.aggregate_id,
             'aggregateType', o.aggregate_type, 'aggregateId', o.aggregate_id,
             'dedupeKey', 'webhook_outbox/' || o.id,
             'headers', jsonb_build_object('time',
               to_char(o.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')),
             'availableAt', CASE WHEN o.status = 'failed' THEN coalesce(o.next_retry_at, o.created_at)
                                 ELSE o.created_at END) ORDER BY o.place)
      FROM (SELECT *, row_number() OVER (ORDER BY created_at, id) AS place
              FROM archive.webhook_outbox
             WHERE status <> 'sent') o
     GROUP BY (o.place - 1) / 500
     ORDER BY (o.place - 1) / 500
  LOOP
    PERFORM outbox.enqueue_many(v_rows);
    -- in a new schema, the next batch would be planned for empty tables
    ANALYZE outbox.keys, outbox.dedupe_keys;
  END LOOP;
  UPDATE archive.webhook_outbox o
     SET message_id = m.id
    FROM outbox.messages m
   WHERE m.dedupe_key = 'webhook_outbox/' || o.id;
  SELECT string_agg(DISTINCT o.event_type, ', ')
    INTO v_unrouted
    FROM archive.webhook_outbox o
   WHERE o.status <> 'sent'
     AND NOT EXISTS (
           SELECT FROM outbox.deliveries d WHERE d.message_id = o.message_id AND d.destination_id = v_n8n.id);
  IF v_unrouted IS NOT NULL THEN
    RAISE EXCEPTION 'no route leads to n8n for the events %, so Waybill would not send them', v_unrouted
      USING HINT = 'Add the routes to waybill.config.mjs, and run waybill apply. '
                   'If these events are not to be sent any more, set the status of their rows to sent.';
  END IF;

  -- A row that has failed keeps its count, and its last error as an attempt. At least one try is left.
  CREATE TEMPORARY TABLE failures ON COMMIT DROP AS
  SELECT o.message_id, o.status = 'dead_letter' AS dead, o.error_message,
         left(o.error_details::text, 4096) AS response, coalesce(o.processed_at, o.created_at) AS ended_at,
         CASE
           WHEN o.status = 'dead_letter' THEN greatest(o.retry_count, 1)
           ELSE least(greatest(o.retry_count, 1), v_n8n.max_attempts - 1)
         END AS tries
    FROM archive.webhook_outbox o
    JOIN outbox.deliveries d ON d.message_id = o.message_id AND d.destination_id = v_n8n.id
   WHERE o.status IN ('failed', 'dead_letter');
  INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code, error_message,
                               response)
  SELECT f.message_id, v_n8n.id, f.tries, f.tries,
         (CASE WHEN f.dead THEN 'failed' ELSE 'retryable' END)::outbox.attempt_state,
         clock_timestamp(), 'moved', f.error_message, f.response
    FROM failures f;
  UPDATE outbox.deliveries d
     SET tries = f.tries, claim_no = f.tries
    FROM failures f
   WHERE d.message_id = f.message_id
     AND d.destination_id = v_n8n.id
     AND NOT f.dead;
  INSERT INTO outbox.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code,
                                   error_message, created_at, key_id, sequence, bytes, namespace, topic, tenant_id, key,
                                   dedupe_key, aggregate_type, aggregate_id, headers, payload)
  SELECT m.id, v_n8n.id, f.ended_at, f.tries, f.tries, 'exhausted', 'moved', f.error_message, m.created_at, m.key_id,
         m.sequence, m.bytes, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id,
         m.headers, m.payload
    FROM failures f
    JOIN outbox.messages m ON m.id = f.message_id
   WHERE f.dead;
  DELETE FROM outbox.deliveries d
   USING failures f
   WHERE d.message_id = f.message_id
     AND d.destination_id = v_n8n.id
     AND f.dead;
END $$;

\ir schema.sql

-- Roles that could insert into the table, or read it, can do the same with the view.
DO $$
DECLARE
  v_grant record;
BEGIN
  FOR v_grant IN
    SELECT a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee
      FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
     WHERE c.oid = 'archive.webhook_outbox'::regclass
       AND a.privilege_type IN ('INSERT', 'SELECT')
  LOOP
    EXECUTE format('GRANT %s ON public.webhook_outbox TO %s', v_grant.privilege_type, v_grant.grantee);
  END LOOP;
END $$;
COMMIT;
