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

-- The last error of an event, and whether it has a status at all. Functions, because their plans are cached: more
-- parts of the view would be planned with every query. PARALLEL UNSAFE: a query of the view starts no parallel workers,
-- which would take longer than a poll.
CREATE OR REPLACE FUNCTION _private.last_error(p_message_id uuid) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (
    SELECT a.error_message
      FROM outbox.attempts a
      JOIN outbox.destinations t ON t.id = a.destination_id
     WHERE a.message_id = p_message_id
       AND t.name = 'notifications'
       AND (a.state IN ('retryable', 'failed', 'zombie_requeue')
            OR (a.state = 'released' AND a.error_code IS NOT NULL))
     ORDER BY a.claim_no DESC
     LIMIT 1);
END $$;

CREATE OR REPLACE FUNCTION _private.has_status(p_message_id uuid) RETURNS boolean
LANGUAGE plpgsql STABLE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN EXISTS (
    SELECT FROM outbox.message_status s
     WHERE s.message_id = p_message_id
       AND (s.destination = 'notifications' OR s.status = 'unrouted'));
END $$;

-- The events: waiting (pending, claimed or unrouted), dead, ended, and those from before the route.
-- Each part begins with the table that holds its state, so that a poll for unprocessed events reads none of the others.
-- An event counts as processed when its processing has ended: it was sent, is dead, or was discarded by an operator.
-- CASE: an outbox that other applications share may have tenants that are no uuids. An event that was moved from the
-- old tables keeps its id and creation time in headers. ^@ instead of LIKE: the planner may use statistics for it.
CREATE OR REPLACE VIEW _private.outbox WITH (security_invoker = true) AS
SELECT CASE WHEN e.topic ^@ 'job.' THEN coalesce((e.headers ->> 'event_id')::uuid, e.id) END AS event_id,
       e.aggregate_type AS table_name,
       CASE WHEN e.topic ^@ 'job.' THEN e.aggregate_id::uuid END AS record_id,
       e.payload ->> 'event' AS event_type,
       CASE WHEN e.topic ^@ 'job.' THEN e.tenant_id::uuid END AS organization_id,
       e.payload -> 'record' AS payload,
       coalesce((e.headers ->> 'created_at')::timestamptz, e.created_at) AS created_at,
       e.processed_at,
       -- a try in flight, or a successful one, is not a failed one
       e.retry_count,
       _private.last_error(e.id) AS last_error
  FROM (
    SELECT m.id, m.topic, m.aggregate_type, m.aggregate_id, m.tenant_id, m.headers, m.payload, m.created_at,
           NULL::timestamptz AS processed_at, w.tries AS retry_count
      FROM (SELECT d.message_id, d.tries
              FROM outbox.deliveries d
              JOIN outbox.destinations t ON t.id = d.destination_id
             WHERE t.name = 'notifications'
            UNION ALL
            SELECT c.message_id, c.tries - 1
              FROM outbox.leases l
              JOIN outbox.destinations t ON t.id = l.destination_id
             CROSS JOIN unnest(l.message_ids, l.claim_nos, l.tries) c(message_id, claim_no, tries)
             WHERE t.name = 'notifications'
               AND NOT EXISTS (
                     SELECT FROM outbox.attempts a
                      WHERE a.message_id = c.message_id
                        AND a.destination_id = l.destination_id
                        AND a.claim_no = c.claim_no)
            UNION ALL
            SELECT u.message_id, 0
              FROM outbox.unrouted_messages u) w
      JOIN outbox.messages m ON m.id = w.message_id
     WHERE m.topic ^@ 'job.'
    UNION ALL
    SELECT d.message_id, d.topic, d.aggregate_type, d.aggregate_id, d.tenant_id, d.headers, d.payload, d.created_at,
           d.dead_at, d.tries
      FROM outbox.dead_letters d
      JOIN outbox.destinations t ON t.id = d.destination_id
     WHERE t.name = 'notifications'
       AND d.topic ^@ 'job.'
    UNION ALL
    SELECT m.id, m.topic, m.aggregate_type, m.aggregate_id, m.tenant_id, m.headers, m.payload, m.created_at,
           a.ended_at, a.tries - CASE a.state WHEN 'dispatched' THEN 1 ELSE 0 END
      FROM outbox.attempts a
      JOIN outbox.destinations t ON t.id = a.destination_id
      JOIN outbox.messages m ON m.id = a.message_id
     WHERE t.name = 'notifications'
       AND m.topic ^@ 'job.'
       AND a.state IN ('dispatched', 'discarded')
       -- after a replay it is waiting, or dead, or has ended again
       AND NOT EXISTS (
             SELECT FROM outbox.attempts n
              WHERE n.message_id = a.message_id
                AND n.destination_id = a.destination_id
                AND n.claim_no > a.claim_no)
       AND NOT EXISTS (
             SELECT FROM outbox.deliveries d
              WHERE d.message_id = a.message_id
                AND d.destination_id = a.destination_id)
       AND NOT EXISTS (
             SELECT FROM outbox.dead_letters d
              WHERE d.message_id = a.message_id
                AND d.destination_id = a.destination_id)
       AND NOT EXISTS (
             SELECT FROM outbox.leases l, unnest(l.message_ids, l.claim_nos) c(message_id, claim_no)
              WHERE l.destination_id = a.destination_id
                AND c.message_id = a.message_id
                AND c.claim_no > a.claim_no)
    UNION ALL
    -- before there was a route, cursors were the only readers, and they keep no record for each event. The lower bound
    -- makes the planner expect few of these events, and so use the primary key.
    SELECT m.id, m.topic, m.aggregate_type, m.aggregate_id, m.tenant_id, m.headers, m.payload, m.created_at, NULL, 0
      FROM outbox.messages m
     WHERE m.topic ^@ 'job.'
       AND m.id >= '00000000-0000-0000-0000-000000000000'
       AND m.id < (SELECT coalesce(outbox.id_at(min(r.added_at)), 'ffffffff-ffff-ffff-ffff-ffffffffffff')
                     FROM outbox.routes r
                     JOIN outbox.destinations t ON t.id = r.destination_id
                    WHERE t.name = 'notifications')
       AND NOT _private.has_status(m.id)
  ) e;

-- The planner takes an empty table that was never analyzed for a large one, and a poll would read all messages for it.
ANALYZE outbox.unrouted_messages;

-- For lookups in the view by its columns, which are uuids; Waybill's own indexes are of texts. They are not partial:
-- the planner has no statistics of the expression of a partial index.
CREATE INDEX IF NOT EXISTS messages_by_event
  ON outbox.messages ((CASE WHEN topic ^@ 'job.' THEN coalesce((headers ->> 'event_id')::uuid, id) END));
CREATE INDEX IF NOT EXISTS messages_by_record
  ON outbox.messages ((CASE WHEN topic ^@ 'job.' THEN aggregate_id::uuid END));
CREATE INDEX IF NOT EXISTS messages_by_organization
  ON outbox.messages ((CASE WHEN topic ^@ 'job.' THEN tenant_id::uuid END));
CREATE INDEX IF NOT EXISTS messages_by_event_type
  ON outbox.messages ((payload ->> 'event'));

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
                    REVOKE ALL ON FUNCTION public.prune_outbox_events, public.run_system_health_check, _private.notify_outbox_events,
                                        _private.last_error, _private.has_status FROM %1$s',
                   v_role);
  END LOOP;
END $$;
GRANT USAGE ON SCHEMA _private TO cataloguing_service;
GRANT SELECT ON _private.outbox, _private.cursors, _private.outbox_dlq, public.outbox_health_metrics TO cataloguing_service;
GRANT EXECUTE ON FUNCTION public.prune_outbox_events, public.run_system_health_check, _private.last_error,
  _private.has_status TO cataloguing_service;
