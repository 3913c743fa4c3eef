-- The cataloguing service before Waybill, as its owner describes it: plain tables, a row trigger that fills the outbox
-- and notifies, and functions. Run as the owner of the database, who is no superuser.

CREATE SCHEMA _private;
CREATE TABLE public.cataloging_jobs (
  job_id          uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  organization_id uuid        NOT NULL,
  status          text        NOT NULL DEFAULT 'queued',
  updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE _private.outbox (
  event_id        uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  table_name      text        NOT NULL,
  record_id       uuid        NOT NULL,
  event_type      text        NOT NULL CHECK (event_type IN ('created', 'status_changed', 'deleted')),
  organization_id uuid        NOT NULL,
  payload         jsonb       NOT NULL,
  created_at      timestamptz NOT NULL DEFAULT now(),
  processed_at    timestamptz,
  retry_count     int         NOT NULL DEFAULT 0,
  last_error      text
);
CREATE INDEX outbox_poll ON _private.outbox (created_at, event_id) WHERE processed_at IS NULL;
CREATE TABLE _private.cursors (
  processor_name    text PRIMARY KEY,
  last_processed_id uuid,
  last_processed_at timestamptz,
  updated_at        timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE _private.outbox_dlq (
  event_id       uuid        PRIMARY KEY,
  original_event jsonb       NOT NULL,
  failure_reason text        NOT NULL,
  failed_at      timestamptz NOT NULL DEFAULT now(),
  retry_count    int         NOT NULL
);

CREATE FUNCTION public.capture_job_event() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$
DECLARE
  v_job   public.cataloging_jobs := CASE TG_OP WHEN 'DELETE' THEN OLD ELSE NEW END;
  v_event text := CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'UPDATE' THEN 'status_changed' ELSE 'deleted' END;
BEGIN
  IF TG_OP = 'UPDATE' AND NEW.status IS NOT DISTINCT FROM OLD.status THEN RETURN NULL; END IF;
  INSERT INTO _private.outbox (table_name, record_id, event_type, organization_id, payload)
  VALUES (TG_TABLE_NAME, v_job.job_id, v_event, v_job.organization_id,
          jsonb_build_object('job_id', v_job.job_id, 'organization_id', v_job.organization_id, 'status', v_job.status));
  PERFORM pg_notify('outbox_events', v_job.job_id::text);
  RETURN NULL;
END $$;
CREATE TRIGGER capture_job_event AFTER INSERT OR UPDATE OR DELETE ON public.cataloging_jobs
  FOR EACH ROW EXECUTE FUNCTION public.capture_job_event();

CREATE FUNCTION public.prune_outbox_events(retention_hours int DEFAULT 72, batch_size int DEFAULT 1000)
RETURNS TABLE (deleted_count bigint, execution_time_ms numeric) LANGUAGE sql AS $$
  WITH gone AS (DELETE FROM _private.outbox WHERE event_id IN (
    SELECT event_id FROM _private.outbox WHERE processed_at < now() - retention_hours * interval '1 hour' LIMIT batch_size) RETURNING 1)
  SELECT count(*), 0.0 FROM gone
$$;
CREATE VIEW public.outbox_health_metrics AS
SELECT 'unprocessed_events' AS metric, count(*)::numeric AS value, 'waiting' AS description FROM _private.outbox WHERE processed_at IS NULL;
CREATE FUNCTION public.run_system_health_check() RETURNS text LANGUAGE sql AS $$ SELECT 'ok' $$;
