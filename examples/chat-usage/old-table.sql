-- The table that the platform had before Waybill, as UPGRADE.md expects it.
CREATE TABLE public.modkit_outbox_events (
  id              uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  namespace       text        NOT NULL,
  topic           text        NOT NULL,
  tenant_id       uuid,
  dedupe_key      text,
  payload         jsonb       NOT NULL,
  status          text        NOT NULL DEFAULT 'pending'
                              CHECK (status IN ('pending', 'processing', 'delivered', 'dead')),
  attempts        int         NOT NULL DEFAULT 0,
  next_attempt_at timestamptz NOT NULL DEFAULT now(),
  locked_by       text,
  locked_until    timestamptz,
  last_error      text,
  created_at      timestamptz NOT NULL DEFAULT now(),
  updated_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX modkit_outbox_events_due ON public.modkit_outbox_events (status, next_attempt_at);
CREATE INDEX modkit_outbox_events_locked ON public.modkit_outbox_events (locked_until);
CREATE UNIQUE INDEX modkit_outbox_events_dedupe ON public.modkit_outbox_events (namespace, topic, dedupe_key)
  WHERE dedupe_key IS NOT NULL;
