-- The CRM's own objects over Waybill: its table is a view, its functions call Waybill's, and `service_role` gets exactly
-- what its worker calls. Run after `waybill migrate up`; it can be run again.

CREATE SCHEMA IF NOT EXISTS app;

-- Every message goes to one destination, which the CRM's worker serves. The application owns it, as if `waybill apply`
-- had defined it, so a relay of the application can take over from the worker. 1,000 tries, the last ones five minutes
-- apart, survive an outage of Kafka of three days.
SELECT outbox.apply_definitions('{
  "destinations": [{"name": "crm", "kind": "worker", "maxAttempts": 1000, "retryBaseMs": 1000, "retryMaxMs": 300000}],
  "routes": [{"topic": "*", "to": "crm"}]}');

-- The ids of rows that came with their own: a second row with the same id is refused.
CREATE TABLE IF NOT EXISTS app.outbox_ids (
  id         uuid PRIMARY KEY,
  message_id uuid NOT NULL UNIQUE
);

-- For the view: the rows that are claimed. Functions like this one keep the partitions of outbox.attempts out of the
-- view: planning for each of them would take most of the time of a short list.
CREATE OR REPLACE FUNCTION app.outbox_claimed()
RETURNS TABLE (message_id uuid, destination_id int, tries int, token uuid)
LANGUAGE plpgsql STABLE ROWS 100 SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY
  SELECT c.message_id, c.destination_id, c.tries, c.relay_id
    FROM outbox.active_claims c
    JOIN outbox.destinations t ON t.id = c.destination_id AND t.name = 'crm';
END $$;

-- For the view: whether nothing has happened to a row since this attempt. A replay may have brought it back.
CREATE OR REPLACE FUNCTION app.outbox_is_last(p_id uuid, p_destination_id int, p_claim_no int) RETURNS boolean
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
-- for readers of the view, whose rights they have; service_role gets them below
REVOKE EXECUTE ON FUNCTION app.outbox_claimed, app.outbox_is_last FROM PUBLIC;

-- For the id, the tenant_id and the created_at of the view, written as they are there.
CREATE INDEX IF NOT EXISTS messages_by_outbox_id ON outbox.messages ((
  CASE
    WHEN headers ->> 'outbox-id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN (headers ->> 'outbox-id')::uuid
    ELSE id
  END));
CREATE INDEX IF NOT EXISTS messages_by_outbox_tenant ON outbox.messages ((
  CASE WHEN tenant_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN tenant_id::uuid END),
  (coalesce(available_at, created_at)));
CREATE INDEX IF NOT EXISTS messages_by_outbox_time ON outbox.messages ((coalesce(available_at, created_at)));

-- id is that of the header outbox-id, for a row that came with its own. created_at is the time that the row came with,
-- or else that of the insert. A tenant that is no uuid, of a message that was not inserted here, is shown as null. A row
-- that an operator discarded is not shown. Readers need rights on Waybill's tables: the view gives them none.
--
-- The state of a row is in one of four places. Each part of the UNION is a plain table without conditions of its own, so
-- the planner can begin with any of them, or with the messages: a list with a limit reads only its rows, and a query for
-- undelivered rows none of the delivered ones. OFFSET 0: a subquery can be read for each message, a function cannot.
CREATE OR REPLACE VIEW public.outbox WITH (security_invoker = true) AS
SELECT CASE
         WHEN m.headers ->> 'outbox-id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
         THEN (m.headers ->> 'outbox-id')::uuid
         ELSE m.id
       END AS id,
       CASE
         WHEN m.tenant_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN m.tenant_id::uuid
       END AS tenant_id,
       m.topic, m.payload, coalesce(m.available_at, m.created_at) AS created_at,
       s.delivered_at, s.tries AS attempts, s.token AS processing_token
  FROM (
         -- waiting for a worker
         SELECT d.message_id, d.destination_id, d.tries, NULL::uuid AS token, NULL::timestamptz AS delivered_at,
                NULL::int AS claim_no, NULL::outbox.attempt_state AS state
           FROM outbox.deliveries d
         UNION ALL
         -- waiting for an operator
         SELECT l.message_id, l.destination_id, l.tries, NULL, NULL, NULL, NULL
           FROM outbox.dead_letters l
         UNION ALL
         SELECT c.message_id, c.destination_id, c.tries, c.token, NULL, NULL, NULL
           FROM (SELECT * FROM app.outbox_claimed() OFFSET 0) c
         UNION ALL
         -- delivered, with the conditions below
         SELECT a.message_id, a.destination_id, a.tries, NULL, a.ended_at, a.claim_no, a.state
           FROM outbox.attempts a) s
  JOIN outbox.messages m ON m.id = s.message_id
 WHERE s.destination_id = (SELECT t.id FROM outbox.destinations t WHERE t.name = 'crm')
   AND (s.state IS NULL OR s.state = 'dispatched')
   AND (s.state IS NULL
        OR s.message_id >= coalesce((
             SELECT r.before_id
               FROM outbox.brought_back r
               JOIN outbox.destinations t ON t.id = r.destination_id AND t.name = 'crm'
              ORDER BY r.before_id DESC
              LIMIT 1), '00000000-0000-0000-0000-000000000000')
        OR app.outbox_is_last(s.message_id, s.destination_id, s.claim_no));

-- Code that inserts into the table keeps working: the insert enqueues. A row with its own created_at takes its place
-- among the others by that time; a time in the future counts as now. A row with its own id keeps it, also in the header
-- outbox-id of what a relay sends.
CREATE OR REPLACE FUNCTION app.outbox_insert() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_id uuid;
BEGIN
  IF NEW.delivered_at IS NOT NULL OR NEW.processing_token IS NOT NULL OR NEW.attempts <> 0 THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('a new row has delivered_at %s, processing_token %s, attempts %s: leave them out',
                       coalesce(NEW.delivered_at::text, 'null'), coalesce(NEW.processing_token::text, 'null'),
                       coalesce(NEW.attempts::text, 'null'));
  END IF;
  IF NEW.payload IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '23502', MESSAGE = 'payload is null: every row of public.outbox has one';
  END IF;
  NEW.created_at := least(NEW.created_at, clock_timestamp());
  NEW.attempts := 0;
  SELECT id
    INTO v_id
    FROM outbox.enqueue(NEW.topic, NEW.payload, tenant_id => NEW.tenant_id::text, available_at => NEW.created_at,
                        headers => CASE WHEN NEW.id IS NOT NULL THEN jsonb_build_object('outbox-id', NEW.id) END);
  IF NEW.id IS NOT NULL THEN
    INSERT INTO app.outbox_ids (id, message_id) VALUES (NEW.id, v_id);
  END IF;
  NEW.id := coalesce(NEW.id, v_id);
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER outbox_insert INSTEAD OF INSERT ON public.outbox
  FOR EACH ROW EXECUTE FUNCTION app.outbox_insert();

-- Rows change by functions only.
CREATE OR REPLACE FUNCTION app.outbox_refuse() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_id uuid := coalesce((SELECT i.message_id FROM app.outbox_ids i WHERE i.id = OLD.id), OLD.id);
BEGIN
  RAISE EXCEPTION USING ERRCODE = '0A000',
    MESSAGE = format('%s of public.outbox is refused: its rows change by functions only', TG_OP),
    HINT = CASE TG_OP
      WHEN 'DELETE' THEN format('To delete a waiting row: SELECT outbox.cancel(''%s''). '
                                'app.outbox_retention() removes delivered ones.', v_id)
      ELSE format('To mark rows: app.outbox_mark_delivered. A claim ends by itself after two minutes. '
                  'To retry a row now: SELECT outbox.retry_now(''crm'', ids => ''{%s}'').', v_id)
    END;
END $$;
REVOKE EXECUTE ON FUNCTION app.outbox_refuse() FROM PUBLIC;
CREATE OR REPLACE TRIGGER outbox_refuse INSTEAD OF UPDATE OR DELETE ON public.outbox
  FOR EACH ROW EXECUTE FUNCTION app.outbox_refuse();

-- Claims up to p_limit rows for two minutes, oldest first, as whole rows with their token. Rows that are neither marked
-- delivered nor marked failed by then are claimed again, alone.
CREATE OR REPLACE FUNCTION app.outbox_claim(p_limit int, p_token uuid, p_tenant uuid DEFAULT NULL)
RETURNS SETOF public.outbox
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce((SELECT i.id FROM app.outbox_ids i WHERE i.message_id = c.message_id), c.message_id),
         CASE
           WHEN c.tenant_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN c.tenant_id::uuid
         END,
         c.topic, c.payload, coalesce(m.available_at, c.created_at), NULL::timestamptz, c.tries, p_token
    FROM outbox.claim('crm', p_token, p_limit, tenant => p_tenant::text, lease => '2 minutes') WITH ORDINALITY c
    -- OFFSET 0: one index look-up for each row
   CROSS JOIN LATERAL (SELECT x.available_at FROM outbox.messages x WHERE x.id = c.message_id OFFSET 0) m
   ORDER BY c.ordinality
$$;

-- What a token holds, by the ids of public.outbox. For the two functions below.
CREATE OR REPLACE FUNCTION app.outbox_held(p_token uuid) RETURNS TABLE (id uuid, message_id uuid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce((SELECT i.id FROM app.outbox_ids i WHERE i.message_id = c.message_id), c.message_id), c.message_id
    FROM outbox.active_claims c
    JOIN outbox.destinations t ON t.id = c.destination_id AND t.name = 'crm'
   WHERE c.relay_id = p_token
$$;

-- Answers how many rows this call really marked: none with a wrong or lost token.
CREATE OR REPLACE FUNCTION app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT outbox.mark_delivered(p_token, ARRAY (
           SELECT h.message_id FROM app.outbox_held(p_token) h WHERE h.id = ANY (p_ids)), 'crm')
$$;

-- An addition to the CRM's two functions: keeps each row's own failure, {"ID": "error", ...}. A failed row is claimed
-- again after its delay, together with others; a worker that does not call this waits for the end of the lease.
CREATE OR REPLACE FUNCTION app.outbox_mark_failed(p_token uuid, p_errors jsonb) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT (count(*) FILTER (
            WHERE outbox.nack(p_token, h.message_id, p_errors ->> h.id::text, destination => 'crm')))::int
    FROM app.outbox_held(p_token) h
   WHERE p_errors ? h.id::text
$$;

-- Retention for a CRM without a relay, to be called once a day by pg_cron: creates the partitions of the next 60 days,
-- and removes whole days whose messages are all delivered and older than p_days. Answers how many messages it removed. A
-- day that is in use at this moment stays until the next call.
CREATE OR REPLACE FUNCTION app.outbox_retention(p_days int DEFAULT 7) RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_partition text;
  v_rows      bigint;
  v_removed   bigint := 0;
  v_messages  interval := make_interval(days => p_days);
  v_attempts  interval := make_interval(days => greatest(p_days, 30));
BEGIN
  PERFORM outbox.make_partitions();
  FOR v_partition IN
    SELECT partition FROM outbox.expired_partitions(v_messages, v_attempts) WHERE statement IS NOT NULL
  LOOP
    BEGIN
      v_rows := outbox.remove_partition(v_partition, v_messages, v_attempts);
      IF v_partition LIKE 'messages%' THEN v_removed := v_removed + coalesce(v_rows, 0); END IF;
    EXCEPTION
      WHEN lock_not_available THEN NULL;
    END;
  END LOOP;
  DELETE FROM app.outbox_ids i
   WHERE i.message_id < outbox.id_at(now() - v_messages)
     AND NOT EXISTS (SELECT FROM outbox.messages m WHERE m.id = i.message_id);
  PERFORM outbox.prune_dedupe_keys(interval '30 days', 100000), outbox.prune_statistics();
  RETURN v_removed;
END $$;

-- The functions run with the rights of Waybill's owner, as Waybill's own do, and not with those of this login.
DO $$
DECLARE
  v_owner    text := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'outbox');
  v_function regprocedure;
BEGIN
  EXECUTE format('GRANT USAGE, CREATE ON SCHEMA app TO %I', v_owner);
  FOR v_function IN
    SELECT p.oid
      FROM pg_proc p
     WHERE p.pronamespace = 'app'::regnamespace
       AND p.proname IN ('outbox_insert', 'outbox_claim', 'outbox_held', 'outbox_mark_delivered', 'outbox_mark_failed',
                         'outbox_retention')
  LOOP
    EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', v_function);
    EXECUTE format('ALTER FUNCTION %s OWNER TO %I', v_function, v_owner);
  END LOOP;
  EXECUTE format('ALTER TABLE app.outbox_ids OWNER TO %I', v_owner);
  IF v_owner <> current_user THEN EXECUTE format('REVOKE CREATE ON SCHEMA app FROM %I', v_owner); END IF;
END $$;

-- Identities of a contact in other systems: within a tenant, an external id belongs to one contact, and so does an
-- e-mail address, whatever its case. A new table is closed to the API's users until you write policies and grant rights;
-- one that exists keeps its own.
DO $$
DECLARE
  v_role text;
BEGIN
  IF to_regclass('public.contact_identities') IS NOT NULL THEN RETURN; END IF;
  CREATE TABLE public.contact_identities (
    tenant_id  uuid NOT NULL,
    contact_id uuid NOT NULL,
    type       text NOT NULL CHECK (type IN ('external_id', 'email')),
    value      text NOT NULL CHECK (value <> '')
  );
  ALTER TABLE public.contact_identities ENABLE ROW LEVEL SECURITY;
  FOR v_role IN SELECT r.rolname FROM pg_roles r WHERE r.rolname IN ('anon', 'authenticated') LOOP
    EXECUTE format('REVOKE ALL ON public.contact_identities FROM %I', v_role);
  END LOOP;
END $$;
CREATE UNIQUE INDEX IF NOT EXISTS contact_identities_external_id
  ON public.contact_identities (tenant_id, type, value) WHERE type = 'external_id';
CREATE UNIQUE INDEX IF NOT EXISTS contact_identities_email
  ON public.contact_identities (tenant_id, type, lower(value)) WHERE type = 'email';

-- On Supabase, default privileges give the API's roles everything in `public`. They keep nothing of the outbox, but for
-- what the worker and the code that inserts need.
DO $$
DECLARE
  v_role text;
BEGIN
  FOR v_role IN SELECT r.rolname FROM pg_roles r WHERE r.rolname IN ('anon', 'authenticated', 'service_role') LOOP
    EXECUTE format('REVOKE ALL ON public.outbox FROM %I', v_role);
    IF v_role <> 'service_role' THEN CONTINUE; END IF;
    GRANT INSERT, SELECT ON public.outbox TO service_role;
    GRANT USAGE ON SCHEMA app TO service_role;
    GRANT EXECUTE ON FUNCTION app.outbox_claim, app.outbox_mark_delivered, app.outbox_mark_failed TO service_role;
    -- for a service role that may read: with its own rights, so without them these read nothing
    GRANT EXECUTE ON FUNCTION app.outbox_claimed, app.outbox_is_last TO service_role;
  END LOOP;
END $$;
