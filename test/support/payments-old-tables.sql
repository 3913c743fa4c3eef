-- The processor's tables before Waybill, as upgrade.sql expects them: a row for each payment with its status, a row for
-- each attempt, and a view of both. If yours have other names, change part 1 of upgrade.sql.

CREATE TABLE public.payment_outbox (
  outbox_id       uuid        PRIMARY KEY,
  instruction_id  text        NOT NULL,
  participant_id  text        NOT NULL,
  sequence_id     bigint      NOT NULL,
  idempotency_key text        NOT NULL,
  rail_type       text        NOT NULL,
  payload         jsonb       NOT NULL,
  -- PENDING, DISPATCHING, DISPATCHED, RETRYABLE, FAILED, ZOMBIE_REQUEUE
  status          text        NOT NULL DEFAULT 'PENDING',
  next_attempt_at timestamptz NOT NULL DEFAULT now(),
  created_at      timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE public.outbox_status (
  attempt_id     uuid        PRIMARY KEY,
  outbox_id      uuid        NOT NULL REFERENCES public.payment_outbox,
  attempt_no     int         NOT NULL,
  state          text        NOT NULL,
  claimed_at     timestamptz NOT NULL,
  completed_at   timestamptz,
  rail_reference text,
  rail_code      text,
  error_code     text,
  error_message  text,
  latency_ms     int,
  created_at     timestamptz NOT NULL DEFAULT now()
);

CREATE VIEW public.supervisor_outbox_status AS
SELECT p.status, count(DISTINCT p.outbox_id) AS payments, count(s.attempt_id) AS attempts
  FROM public.payment_outbox p
  LEFT JOIN public.outbox_status s USING (outbox_id)
 GROUP BY p.status;

CREATE FUNCTION public.enqueue_payment_outbox(
  instruction_id text, participant_id text, idempotency_key text, rail_type text, payload jsonb)
RETURNS public.payment_outbox
LANGUAGE sql AS $$
  INSERT INTO public.payment_outbox
    (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
  SELECT gen_random_uuid(), $1, $2, coalesce(max(o.sequence_id), 0) + 1, $3, $4, $5
    FROM public.payment_outbox o
   WHERE o.participant_id = $2
  RETURNING *
$$;
