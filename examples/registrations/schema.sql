-- The registrations site's outbox table as a view over Waybill: reads show its columns and statuses, and inserts enqueue
-- messages. Run after `waybill migrate up`, as the owner of Waybill's schema; it can be run again. Where webhook_outbox
-- is still a table, upgrade.sql runs this.

-- The time that a row came with, from the header `time`. The header of another producer's message may be something else:
-- then the time of the enqueue. Immutable for the index: the text has an offset, or is in UTC.
CREATE OR REPLACE FUNCTION public.webhook_outbox_time(p_text text, p_otherwise timestamptz) RETURNS timestamptz
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp SET timezone = 'UTC' AS $$
BEGIN
  IF p_text !~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?$' THEN RETURN p_otherwise; END IF;
  RETURN p_text::timestamptz;
EXCEPTION
  WHEN data_exception THEN RETURN p_otherwise;
END $$;

-- The last failure of an event at n8n. Functions like this one keep the partitions of outbox.attempts out of the view:
-- planning for each of them would take most of the time of a short list.
CREATE OR REPLACE FUNCTION public.webhook_outbox_error(p_id uuid) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (
    SELECT jsonb_strip_nulls(jsonb_build_object('message', coalesce(a.error_message, a.error_code),
             'code', a.error_code, 'status', a.remote_code, 'response', a.response, 'at', a.ended_at,
             'latency_ms', a.latency_ms))
      FROM outbox.attempts a
      JOIN outbox.destinations t ON t.id = a.destination_id AND t.name = 'n8n'
     WHERE a.message_id = p_id
       AND a.error_code IS NOT NULL
     ORDER BY a.claim_no DESC
     LIMIT 1);
END $$;

-- The events that are being sent.
CREATE OR REPLACE FUNCTION public.webhook_outbox_claims()
RETURNS TABLE (message_id uuid, destination_id int, claim_no int, tries int)
LANGUAGE plpgsql STABLE ROWS 100 SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT c.message_id, c.destination_id, c.claim_no, c.tries
    FROM outbox.active_claims c
    JOIN outbox.destinations t ON t.id = c.destination_id AND t.name = 'n8n';
END $$;

-- Whether nothing has happened to an event since this attempt. A replay may have brought it back.
CREATE OR REPLACE FUNCTION public.webhook_outbox_is_last(p_id uuid, p_destination_id int, p_claim_no int)
RETURNS boolean
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN NOT EXISTS (
           SELECT FROM outbox.attempts a
            WHERE a.message_id = p_id
              AND a.destination_id = p_destination_id
              AND a.claim_no > p_claim_no)
     AND NOT EXISTS (
           SELECT FROM outbox.deliveries d
            WHERE d.message_id = p_id
              AND d.destination_id = p_destination_id)
     AND NOT EXISTS (
           SELECT FROM outbox.dead_letters d
            WHERE d.message_id = p_id
              AND d.destination_id = p_destination_id)
     AND NOT EXISTS (
           SELECT FROM outbox.leases l, unnest(l.message_ids, l.claim_nos) c(message_id, claim_no)
            WHERE l.destination_id = p_destination_id
              AND c.message_id = p_id
              AND c.claim_no > p_claim_no);
END $$;
-- with the caller's rights; the indexes call the first one in each enqueue
GRANT EXECUTE ON FUNCTION public.webhook_outbox_time, public.webhook_outbox_error, public.webhook_outbox_claims,
                          public.webhook_outbox_is_last TO PUBLIC;

-- For the created_at and the aggregate_id of the view, written as they are there.
CREATE INDEX IF NOT EXISTS messages_by_webhook_time ON outbox.messages ((
  CASE WHEN headers ? 'time' THEN public.webhook_outbox_time(headers ->> 'time', created_at) ELSE created_at END));
CREATE INDEX IF NOT EXISTS messages_by_webhook_aggregate ON outbox.messages ((
  CASE WHEN aggregate_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN aggregate_id::uuid END));

-- retry_count is the number of failures: 1 after the first. An event that an operator deleted is not shown. Readers need
-- rights on Waybill's tables: the view gives them none.
--
-- The state of an event is in one of five places. Each part of the UNION is a plain table without conditions of its own,
-- so the planner can begin with any of them, or with the messages: a list with a limit reads only its events, and a
-- query for one status none of the others. OFFSET 0: a subquery can be read for each message, a function cannot.
CREATE OR REPLACE VIEW public.webhook_outbox WITH (security_invoker = true) AS
SELECT m.id, m.topic AS event_type, m.aggregate_type,
       -- a message of another producer may have an aggregate id that is no uuid; it must not break the view
       CASE
         WHEN m.aggregate_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN m.aggregate_id::uuid
       END AS aggregate_id,
       m.payload, s.status, s.retry_count,
       coalesce((SELECT t.max_attempts FROM outbox.destinations t WHERE t.name = 'n8n'), 5) AS max_retries,
       s.next_retry_at,
       CASE
         WHEN m.headers ? 'time' THEN public.webhook_outbox_time(m.headers ->> 'time', m.created_at)
         ELSE m.created_at
       END AS created_at,
       s.processed_at,
       CASE WHEN s.may_have_failed THEN public.webhook_outbox_error(m.id) ->> 'message' END AS error_message,
       CASE WHEN s.may_have_failed THEN public.webhook_outbox_error(m.id) - 'message' END AS error_details
  FROM (
         SELECT d.message_id, d.destination_id, CASE WHEN d.tries > 0 THEN 'failed' ELSE 'pending' END AS status,
                d.tries AS retry_count, CASE WHEN d.tries > 0 THEN d.available_at END AS next_retry_at,
                NULL::timestamptz AS processed_at, d.claim_no > 0 AS may_have_failed, NULL::int AS claim_no,
                NULL::outbox.attempt_state AS state
           FROM outbox.deliveries d
         UNION ALL
         -- without a route
         SELECT u.message_id, NULL, 'pending', 0, NULL, NULL, false, NULL, NULL
           FROM outbox.unrouted_messages u
         UNION ALL
         -- the first claim has no failure before it
         SELECT c.message_id, c.destination_id, 'processing', c.tries - 1, NULL, NULL, c.claim_no > 1, NULL, NULL
           FROM (SELECT * FROM public.webhook_outbox_claims() OFFSET 0) c
         UNION ALL
         SELECT l.message_id, l.destination_id, 'dead_letter', l.tries, NULL, l.dead_at, l.claim_no > 0, NULL, NULL
           FROM outbox.dead_letters l
         UNION ALL
         -- with the conditions below
         SELECT a.message_id, a.destination_id, 'sent', a.tries - 1, NULL, a.ended_at, a.claim_no > 1, a.claim_no,
                a.state
           FROM outbox.attempts a) s
  JOIN outbox.messages m ON m.id = s.message_id
 WHERE (s.destination_id IS NULL
        OR s.destination_id = (SELECT t.id FROM outbox.destinations t WHERE t.name = 'n8n'))
   AND (s.state IS NULL OR s.state = 'dispatched')
   AND (s.state IS NULL
        OR s.message_id >= coalesce((
             SELECT r.before_id
               FROM outbox.brought_back r
               JOIN outbox.destinations t ON t.id = r.destination_id AND t.name = 'n8n'
              ORDER BY r.before_id DESC
              LIMIT 1), '00000000-0000-0000-0000-000000000000')
        OR public.webhook_outbox_is_last(s.message_id, s.destination_id, s.claim_no));

-- The planner takes an empty table that was never analyzed for a large one, and would read all messages for it.
ANALYZE outbox.unrouted_messages;

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
  v_missing text := CASE
    WHEN NEW.event_type IS NULL THEN 'event_type'
    WHEN NEW.aggregate_type IS NULL THEN 'aggregate_type'
    WHEN NEW.aggregate_id IS NULL THEN 'aggregate_id'
    WHEN NEW.payload IS NULL THEN 'payload'
  END;
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
  -- as in the table, whose columns were NOT NULL
  IF v_missing IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '23502',
      MESSAGE = format('%s is null: every row of webhook_outbox has one', v_missing),
      HINT = 'Give event_type, aggregate_type, aggregate_id and payload.';
  END IF;
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
