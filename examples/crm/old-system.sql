-- The CRM's outbox before Waybill: a plain table with two indexes, and two functions. upgrade.sql expects it so; use this
-- file to try the upgrade on an empty database.

CREATE SCHEMA IF NOT EXISTS app;

CREATE TABLE public.outbox (
  id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
  tenant_id        uuid NOT NULL,
  topic            text NOT NULL,
  payload          jsonb NOT NULL,
  created_at       timestamptz NOT NULL DEFAULT now(),
  delivered_at     timestamptz,
  attempts         int NOT NULL DEFAULT 0,
  processing_token uuid
);
CREATE INDEX outbox_claimable ON public.outbox (delivered_at, created_at)
  WHERE delivered_at IS NULL AND processing_token IS NULL;
CREATE INDEX outbox_token ON public.outbox (processing_token) WHERE processing_token IS NOT NULL;

CREATE FUNCTION app.outbox_claim(p_limit int, p_token uuid, p_tenant uuid DEFAULT NULL)
RETURNS SETOF public.outbox LANGUAGE sql AS $$
  WITH due AS (
    SELECT id
      FROM public.outbox
     WHERE delivered_at IS NULL
       AND processing_token IS NULL
       AND (p_tenant IS NULL OR tenant_id = p_tenant)
     ORDER BY created_at
     LIMIT p_limit
       FOR UPDATE SKIP LOCKED),
  claimed AS (
    UPDATE public.outbox o
       SET processing_token = p_token, attempts = attempts + 1
      FROM due
     WHERE o.id = due.id
    RETURNING o.*)
  SELECT * FROM claimed ORDER BY created_at
$$;

CREATE FUNCTION app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) RETURNS int LANGUAGE sql AS $$
  WITH marked AS (
    UPDATE public.outbox
       SET delivered_at = now(), processing_token = NULL
     WHERE id = ANY (p_ids)
       AND processing_token = p_token
    RETURNING 1)
  SELECT count(*)::int FROM marked
$$;
