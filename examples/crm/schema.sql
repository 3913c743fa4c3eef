-- The CRM's own objects over Waybill: its table is a view, its functions call Waybill's. Run after `waybill migrate
-- up`; it can be run again.

CREATE SCHEMA IF NOT EXISTS app;

-- Every message goes to one destination, which the CRM's worker serves. The application owns it, as if `waybill apply`
-- had defined it, so a relay of the application can take over from the worker.
SELECT outbox.apply_definitions('{
  "destinations": [{"name": "crm", "kind": "worker", "maxAttempts": 10, "retryBaseMs": 1000, "retryMaxMs": 300000}],
  "routes": [{"topic": "*", "to": "crm"}]}');

-- created_at is the time that the row came with, if it came with one. Readers need rights on Waybill's tables: the view
-- gives them none.
CREATE OR REPLACE VIEW public.outbox WITH (security_invoker = true) AS
SELECT m.id, m.tenant_id::uuid AS tenant_id, m.topic, m.payload, coalesce(m.available_at, m.created_at) AS created_at,
       CASE WHEN s.status = 'delivered' THEN s.changed_at END AS delivered_at,
       s.tries AS attempts, s.locked_by AS processing_token
  FROM outbox.messages m JOIN outbox.message_status s ON s.message_id = m.id AND s.destination = 'crm';

-- Code that inserts into the table keeps working: the insert enqueues. A row with its own created_at takes its place
-- among the others by that time; a time in the future counts as now.
CREATE OR REPLACE FUNCTION app.outbox_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT id
    INTO NEW.id
    FROM outbox.enqueue(NEW.topic, NEW.payload, tenant_id => NEW.tenant_id::text,
                        available_at => CASE WHEN NEW.created_at < clock_timestamp() THEN NEW.created_at END);
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER outbox_insert INSTEAD OF INSERT ON public.outbox
  FOR EACH ROW EXECUTE FUNCTION app.outbox_insert();

-- The rows are read after the claim, so they carry its token.
CREATE OR REPLACE FUNCTION app.outbox_claim(p_limit int, p_token uuid, p_tenant uuid DEFAULT NULL)
RETURNS SETOF public.outbox LANGUAGE plpgsql AS $$
DECLARE
  v_ids uuid[];
BEGIN
  SELECT array_agg(c.message_id ORDER BY c.ordinality)
    INTO v_ids
    FROM outbox.claim('crm', p_token, p_limit, tenant => p_tenant::text) WITH ORDINALITY c;
  RETURN QUERY
    SELECT o.*
      FROM unnest(v_ids) WITH ORDINALITY i(id, place)
      JOIN public.outbox o ON o.id = i.id
     ORDER BY i.place;
END $$;

CREATE OR REPLACE FUNCTION app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) RETURNS int
LANGUAGE sql AS $$ SELECT outbox.mark_delivered(p_token, p_ids, 'crm') $$;

-- Identities of a contact in other systems: within a tenant, an external id belongs to one contact, and so does an
-- e-mail address, whatever its case.
CREATE TABLE IF NOT EXISTS public.contact_identities (
  tenant_id  uuid NOT NULL,
  contact_id uuid NOT NULL,
  type       text NOT NULL CHECK (type IN ('external_id', 'email')),
  value      text NOT NULL CHECK (value <> '')
);
CREATE UNIQUE INDEX IF NOT EXISTS contact_identities_external_id
  ON public.contact_identities (tenant_id, type, value) WHERE type = 'external_id';
CREATE UNIQUE INDEX IF NOT EXISTS contact_identities_email
  ON public.contact_identities (tenant_id, type, lower(value)) WHERE type = 'email';
