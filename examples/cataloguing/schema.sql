-- The cataloguing service's own objects over Waybill: its table is watched, its private tables are views, its functions
-- call Waybill's. Run after `waybill migrate up`, as an administrator; it can be run again.

SELECT outbox.install_roles();

-- The application writes jobs and has no other rights. Only the service may process, read and prune events.
DO $$ BEGIN
  IF to_regrole('cataloguing_app') IS NULL THEN CREATE ROLE cataloguing_app NOLOGIN; END IF;
  IF to_regrole('cataloguing_service') IS NULL THEN CREATE ROLE cataloguing_service LOGIN; END IF;
  -- for the service's own sessions, in psql for instance; Waybill's connections set these limits themselves
  IF NOT EXISTS (
    SELECT FROM pg_db_role_setting s
     WHERE s.setrole = to_regrole('cataloguing_service') AND s.setdatabase = 0
       AND s.setconfig @> '{statement_timeout=30s,lock_timeout=10s,idle_in_transaction_session_timeout=60s}')
  THEN
    ALTER ROLE cataloguing_service SET statement_timeout = '30s';
    ALTER ROLE cataloguing_service SET lock_timeout = '10s';
    ALTER ROLE cataloguing_service SET idle_in_transaction_session_timeout = '60s';
  END IF;
END $$;
GRANT waybill_relay, waybill_maintenance, waybill_auditor TO cataloguing_service;

CREATE TABLE IF NOT EXISTS public.cataloging_jobs (
  job_id          uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  organization_id uuid        NOT NULL,
  status          text        NOT NULL DEFAULT 'queued',
  updated_at      timestamptz NOT NULL DEFAULT now()
);
GRANT SELECT, INSERT, UPDATE, DELETE ON public.cataloging_jobs TO cataloguing_app;

SELECT outbox.watch('public.cataloging_jobs', topic => 'job', key => 'job_id', tenant => 'organization_id',
                    columns => '{job_id,organization_id,status}', when_changed => '{status}', changed => 'status_changed');

-- Every event goes to one destination, which notifies the users of an organisation. It is defined as `waybill apply`
-- would define it, so that events are routed before the first processor starts.
SELECT outbox.apply_definitions('{
  "destinations": [{"name": "notifications", "kind": "handler", "maxAttempts": 10, "retryBaseMs": 1000, "retryMaxMs": 300000}],
  "routes": [{"topic": "job.*", "to": "notifications"}]}');

-- security_invoker: a view shows what its reader may read, so a right on the view alone gives no access.
CREATE SCHEMA IF NOT EXISTS _private;

-- CASE: an outbox that other applications share may have tenants that are no uuids. An event that was moved from the
-- old tables keeps its id in a header, and its creation time as the due time.
CREATE OR REPLACE VIEW _private.outbox WITH (security_invoker = true) AS
SELECT CASE WHEN m.topic LIKE 'job.%' THEN coalesce((m.headers ->> 'event_id')::uuid, m.id) END AS event_id,
       m.aggregate_type AS table_name,
       CASE WHEN m.topic LIKE 'job.%' THEN m.aggregate_id::uuid END AS record_id,
       m.payload ->> 'event' AS event_type,
       CASE WHEN m.topic LIKE 'job.%' THEN m.tenant_id::uuid END AS organization_id,
       m.payload -> 'record' AS payload,
       coalesce(m.available_at, m.created_at) AS created_at,
       CASE WHEN s.status = 'delivered' THEN s.changed_at END AS processed_at,
       -- a try in flight, or a successful one, is not a failed one
       coalesce(s.tries - CASE WHEN s.status IN ('processing', 'delivered') THEN 1 ELSE 0 END, 0) AS retry_count,
       s.last_error
  FROM outbox.messages m
  -- OFFSET 0: looks the status up for each event; a join would compute all of them for each
  LEFT JOIN LATERAL (SELECT * FROM outbox.message_status x WHERE x.message_id = m.id AND x.destination = 'notifications' OFFSET 0) s ON true
 WHERE m.topic LIKE 'job.%';

-- For the view's organization_id, which is a uuid; Waybill's own index of tenants is one of texts.
CREATE INDEX IF NOT EXISTS messages_by_organization
  ON outbox.messages ((CASE WHEN topic LIKE 'job.%' THEN tenant_id::uuid END), id) WHERE topic LIKE 'job.%';

-- A position is a snapshot and not an id, because an id is made before its transaction commits. last_processed_id is
-- for people: the last event that was read of this window, or else of the newest transaction.
CREATE OR REPLACE VIEW _private.cursors WITH (security_invoker = true) AS
SELECT c.name AS processor_name,
       coalesce((SELECT (m.headers ->> 'event_id')::uuid FROM outbox.messages m WHERE m.id = l.id AND m.topic LIKE 'job.%'), l.id)
         AS last_processed_id,
       c.seen_at AS last_processed_at, c.moved_at AS updated_at
  FROM outbox.cursors c,
       LATERAL (
         SELECT coalesce(c.position, (
           SELECT m.id FROM outbox.messages m
            WHERE m.transaction_id < pg_snapshot_xmax(c.seen) AND pg_visible_in_snapshot(m.transaction_id, c.seen) AND m.topic LIKE 'job.%'
            ORDER BY m.transaction_id DESC, m.id DESC LIMIT 1))) l(id)
 WHERE c.kept IS NULL;

CREATE OR REPLACE VIEW _private.outbox_dlq WITH (security_invoker = true) AS
SELECT e.event_id,
       jsonb_build_object('event_id', e.event_id, 'table_name', d.aggregate_type, 'record_id', d.aggregate_id,
                          'event_type', d.payload ->> 'event', 'organization_id', d.tenant_id,
                          'payload', d.payload -> 'record', 'created_at', coalesce(d.headers -> 'created_at', to_jsonb(d.created_at)),
                          'processed_at', NULL, 'retry_count', d.tries, 'last_error', d.error_message) AS original_event,
       concat_ws(': ', d.error_code, d.error_message) AS failure_reason, d.dead_at AS failed_at, d.tries AS retry_count
  FROM outbox.dead_letters d,
       LATERAL (SELECT CASE WHEN d.topic LIKE 'job.%' THEN coalesce((d.headers ->> 'event_id')::uuid, d.message_id) END) e(event_id)
 WHERE d.topic LIKE 'job.%';

-- The names below have no schema in the service's calls, so they are in public, where rpc finds them too.
CREATE OR REPLACE VIEW public.outbox_health_metrics WITH (security_invoker = true) AS
SELECT n.metric, sum(h.value) AS value, string_agg(h.description, '; ' ORDER BY n.place) AS description
  FROM (VALUES (1, 'waiting', 'unprocessed_events'), (2, 'processing', 'unprocessed_events'), (3, 'average_delivery_ms', 'avg_processing_time_ms'),
               (4, 'retrying', 'failed_events'), (5, 'dead', 'dlq_events')) n(place, ours, metric)
  JOIN outbox.health h ON h.metric = n.ours
 GROUP BY n.metric ORDER BY min(n.place);

-- Removes the oldest day of events that can be removed, and empty days before it: one short transaction per call, so
-- the caller pauses and calls again until deleted_count is 0. A day stays while a
-- processor has not read it. If few of its events are pending or dead, each call does a step towards removing the
-- others. A day that cannot be locked within 200 ms is left for the next call.
CREATE OR REPLACE FUNCTION public.prune_outbox_events(retention_hours int DEFAULT 72, batch_size int DEFAULT 1000)
RETURNS TABLE (deleted_count int, execution_time_ms int)
LANGUAGE plpgsql AS $$
DECLARE
  v_began   timestamptz := clock_timestamp();
  v_kept    interval := retention_hours * interval '1 hour';
  v_expired record;
  v_day     date;
  v_rows    bigint;
BEGIN
  IF retention_hours IS NULL OR retention_hours < 24 THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('retention_hours is %s: give at least 24, because whole days are removed', coalesce(retention_hours::text, 'null'));
  END IF;
  IF batch_size IS NULL OR batch_size < 1 THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('batch_size is %s: give at least 1', coalesce(batch_size::text, 'null'));
  END IF;
  deleted_count := 0;
  FOR v_expired IN
    SELECT e.partition, e.day FROM outbox.expired_partitions(v_kept, v_kept) e WHERE e.in_use IS NULL ORDER BY e.day, e.partition DESC
  LOOP
    EXIT WHEN deleted_count > 0 AND v_expired.day > v_day;
    v_day := v_expired.day;
    BEGIN
      v_rows := outbox.remove_partition(v_expired.partition, v_kept, v_kept);
      -- attempts are removed with their events, but are not events
      IF v_expired.partition LIKE 'messages%' THEN deleted_count := deleted_count + coalesce(v_rows, 0); END IF;
    EXCEPTION WHEN lock_not_available THEN NULL;
    END;
  END LOOP;
  execution_time_ms := extract(epoch FROM clock_timestamp() - v_began) * 1000;
  RETURN NEXT;
END $$;

CREATE OR REPLACE FUNCTION public.run_system_health_check() RETURNS TABLE (check_name text, ok boolean, detail text)
LANGUAGE sql AS $$ SELECT * FROM outbox.health_check() $$;

-- For the service's listeners: one notification for each transaction that inserts or deletes jobs, or sets a status. It
-- arrives with the commit and carries no event. NOTIFY serializes the commits of all writers: without listeners, drop
-- the trigger.
CREATE OR REPLACE FUNCTION _private.notify_outbox_events() RETURNS trigger
LANGUAGE plpgsql SET search_path = '' AS $$
BEGIN
  PERFORM pg_catalog.pg_notify('outbox_events', TG_TABLE_NAME);
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER notify_outbox_events AFTER INSERT OR DELETE OR UPDATE OF status ON public.cataloging_jobs
  FOR EACH STATEMENT EXECUTE FUNCTION _private.notify_outbox_events();

-- Service role only: also where default privileges open the schema public to other roles, as on Supabase.
DO $$
DECLARE
  v_role text;
BEGIN
  FOR v_role IN
    SELECT 'PUBLIC' UNION ALL SELECT quote_ident(r.rolname) FROM pg_roles r WHERE r.rolname IN ('anon', 'authenticated')
  LOOP
    EXECUTE format('REVOKE ALL ON public.outbox_health_metrics, _private.outbox, _private.cursors, _private.outbox_dlq FROM %s;
                    REVOKE ALL ON FUNCTION public.prune_outbox_events, public.run_system_health_check, _private.notify_outbox_events FROM %1$s',
                   v_role);
  END LOOP;
END $$;
GRANT USAGE ON SCHEMA _private TO cataloguing_service;
GRANT SELECT ON _private.outbox, _private.cursors, _private.outbox_dlq, public.outbox_health_metrics TO cataloguing_service;
GRANT EXECUTE ON FUNCTION public.prune_outbox_events, public.run_system_health_check TO cataloguing_service;
