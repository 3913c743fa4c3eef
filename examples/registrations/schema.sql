-- The registrations site's outbox table as a view over Waybill: reads show its columns and statuses, and inserts enqueue
-- messages. Run after `waybill migrate up`, as the owner of Waybill's schema; it can be run again. Where webhook_outbox
-- is still a table, upgrade.sql runs this.

-- retry_count is the number of failures: 1 after the first. An event that an operator deleted is not shown. Readers need
-- rights on Waybill's tables: the view gives them none.
CREATE OR REPLACE VIEW public.webhook_outbox WITH (security_invoker = true) AS
SELECT m.id, m.topic AS event_type, m.aggregate_type,
       -- a message of another producer may have an aggregate id that is no uuid; it must not break the view
       CASE
         WHEN m.aggregate_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN m.aggregate_id::uuid
       END AS aggregate_id,
       m.payload,
       CASE
         WHEN s.retrying THEN 'failed'
         WHEN s.status = 'delivered' THEN 'sent'
         WHEN s.status = 'dead' THEN 'dead_letter'
         WHEN s.status = 'unrouted' THEN 'pending'
         ELSE s.status
       END AS status,
       CASE WHEN s.status IN ('processing', 'delivered') THEN s.tries - 1 ELSE s.tries END AS retry_count,
       coalesce(d.max_attempts, 5) AS max_retries,
       CASE WHEN s.retrying THEN s.next_try_at END AS next_retry_at,
       coalesce((m.headers ->> 'time')::timestamptz, m.created_at) AS created_at,
       CASE WHEN s.status IN ('delivered', 'dead') THEN s.changed_at END AS processed_at,
       coalesce(e.error_message, e.error_code) AS error_message,
       e.details AS error_details
  FROM outbox.messages m
  JOIN outbox.message_status s ON s.message_id = m.id AND (s.destination = 'n8n' OR s.status = 'unrouted')
  LEFT JOIN outbox.destinations d ON d.name = s.destination
  LEFT JOIN LATERAL (
         SELECT a.error_message, a.error_code,
                jsonb_strip_nulls(jsonb_build_object('code', a.error_code, 'status', a.remote_code,
                  'response', a.response, 'at', a.ended_at, 'latency_ms', a.latency_ms)) AS details
           FROM outbox.attempt_log a
          WHERE a.message_id = m.id
            AND a.destination = s.destination
            AND a.error_code IS NOT NULL
          ORDER BY a.claim_no DESC
          LIMIT 1) e ON true
 WHERE s.status <> 'discarded'
UNION ALL
-- a dead letter outlives its message
SELECT l.message_id, l.topic, l.aggregate_type,
       CASE
         WHEN l.aggregate_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN l.aggregate_id::uuid
       END,
       l.payload, 'dead_letter', l.tries, d.max_attempts, NULL,
       coalesce((l.headers ->> 'time')::timestamptz, l.created_at), l.dead_at,
       coalesce(l.error_message, l.error_code),
       jsonb_strip_nulls(jsonb_build_object('code', l.error_code, 'status', l.remote_code, 'at', l.dead_at))
  FROM outbox.dead_letters l
  JOIN outbox.destinations d ON d.id = l.destination_id AND d.name = 'n8n'
 WHERE NOT EXISTS (SELECT FROM outbox.messages m WHERE m.id = l.message_id);

ALTER VIEW public.webhook_outbox ALTER COLUMN status SET DEFAULT 'pending';
ALTER VIEW public.webhook_outbox ALTER COLUMN retry_count SET DEFAULT 0;
ALTER VIEW public.webhook_outbox ALTER COLUMN max_retries SET DEFAULT 5;
ALTER VIEW public.webhook_outbox ALTER COLUMN created_at SET DEFAULT now();

-- An insert enqueues. The events of one aggregate are delivered in order, by key. A row with its own created_at keeps it
-- in the header `time`, which is also the timestamp of the webhook's body. SECURITY DEFINER: a role that may insert into
-- webhook_outbox needs no rights in Waybill's schema.
CREATE OR REPLACE FUNCTION public.webhook_outbox_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_problem text := CASE
    WHEN NEW.id IS NOT NULL THEN 'id is ' || NEW.id
    WHEN NEW.status <> 'pending' THEN 'status is ' || NEW.status
    WHEN NEW.retry_count <> 0 THEN 'retry_count is ' || NEW.retry_count
    WHEN NEW.max_retries <> 5 THEN 'max_retries is ' || NEW.max_retries
    WHEN NEW.processed_at IS NOT NULL THEN 'processed_at is ' || NEW.processed_at
    WHEN NEW.error_message IS NOT NULL THEN 'error_message is ' || left(NEW.error_message, 60)
    WHEN NEW.error_details IS NOT NULL THEN 'error_details is ' || left(NEW.error_details::text, 60)
  END;
BEGIN
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('%s: leave it out of the insert into webhook_outbox, Waybill sets it', v_problem),
      HINT = 'Give event_type, aggregate_type, aggregate_id and payload; created_at and next_retry_at are optional.';
  END IF;
  SELECT e.id
    INTO NEW.id
    FROM outbox.enqueue(NEW.event_type, NEW.payload,
           key => NEW.aggregate_type || '/' || NEW.aggregate_id,
           aggregate_type => NEW.aggregate_type,
           aggregate_id => NEW.aggregate_id::text,
           headers => CASE
             WHEN NEW.created_at <> now() THEN jsonb_build_object('time',
               to_char(NEW.created_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))
           END,
           available_at => coalesce(NEW.next_retry_at, CASE WHEN NEW.created_at < now() THEN NEW.created_at END)) e;
  NEW.created_at := coalesce(NEW.created_at, now());
  RETURN NEW;
END $$;
-- a role that may execute it could enqueue, through a trigger on a table of its own
REVOKE EXECUTE ON FUNCTION public.webhook_outbox_insert() FROM PUBLIC;
CREATE OR REPLACE TRIGGER webhook_outbox_insert INSTEAD OF INSERT ON public.webhook_outbox
  FOR EACH ROW EXECUTE FUNCTION public.webhook_outbox_insert();

-- The statuses are Waybill's to change.
CREATE OR REPLACE FUNCTION public.webhook_outbox_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = '0A000',
    MESSAGE = format('%s of webhook_outbox is refused: Waybill keeps the statuses', TG_OP),
    HINT = format(CASE
      WHEN TG_OP = 'DELETE' AND OLD.status = 'dead_letter' THEN
        'To delete it: SELECT outbox.discard_dead_letters(''n8n'', ids => ''{%s}''), or use the page.'
      WHEN TG_OP = 'DELETE' THEN 'To delete a waiting event: SELECT outbox.cancel(''%s''), or use the page.'
      WHEN OLD.status = 'dead_letter' THEN
        'To retry it: SELECT outbox.retry_dead_letters(''n8n'', ids => ''{%s}''), or use the page.'
      ELSE 'To retry it now: SELECT outbox.retry_now(''n8n'', ids => ''{%s}''), or use the page.'
    END, OLD.id);
END $$;
CREATE OR REPLACE TRIGGER webhook_outbox_refuse INSTEAD OF UPDATE OR DELETE ON public.webhook_outbox
  FOR EACH ROW EXECUTE FUNCTION public.webhook_outbox_refuse();
