-- The CRM's own objects over Waybill: its table is a view, its functions call ours. Run after `waybill migrate up`;
-- it may be run again.

CREATE SCHEMA IF NOT EXISTS app;

-- Everything that happens goes to one destination, which the CRM's worker serves.
SELECT outbox.define_destination('crm');
INSERT INTO outbox.routes (destination_id, topic)
SELECT id, '*' FROM outbox.destinations WHERE name = 'crm' ON CONFLICT DO NOTHING;

CREATE OR REPLACE VIEW public.outbox AS
SELECT m.id, m.tenant_id, m.topic, m.payload, m.created_at,
       CASE WHEN s.status = 'delivered' THEN s.changed_at END AS delivered_at,
       s.tries AS attempts, s.locked_by AS processing_token
  FROM outbox.messages m JOIN outbox.message_status s ON s.message_id = m.id AND s.destination = 'crm';

-- Code that inserts into the table goes on working: the insert enqueues.
CREATE OR REPLACE FUNCTION app.outbox_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  SELECT id INTO NEW.id FROM outbox.enqueue(NEW.topic, NEW.payload, tenant_id => NEW.tenant_id);
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER outbox_insert INSTEAD OF INSERT ON public.outbox
  FOR EACH ROW EXECUTE FUNCTION app.outbox_insert();

CREATE OR REPLACE FUNCTION app.outbox_claim(p_limit int, p_token uuid, p_tenant text DEFAULT NULL)
RETURNS TABLE (id uuid, tenant_id text, topic text, payload jsonb, created_at timestamptz, attempts int)
LANGUAGE sql AS $$
  SELECT message_id, tenant_id, topic, payload, created_at, tries
    FROM outbox.claim('crm', p_token, p_limit, tenant => p_tenant)
$$;

CREATE OR REPLACE FUNCTION app.outbox_mark_delivered(p_token uuid, p_ids uuid[]) RETURNS int
LANGUAGE sql AS $$ SELECT outbox.mark_delivered(p_token, p_ids, 'crm') $$;

-- Who a contact is, elsewhere: within a tenant an external id belongs to one contact, and an e-mail address too,
-- whatever its case.
CREATE TABLE IF NOT EXISTS public.contact_identities (
  tenant_id  text NOT NULL,
  contact_id uuid NOT NULL,
  type       text NOT NULL CHECK (type IN ('external_id', 'email')),
  value      text NOT NULL CHECK (value <> '')
);
CREATE UNIQUE INDEX IF NOT EXISTS contact_identities_external_id
  ON public.contact_identities (tenant_id, type, value) WHERE type = 'external_id';
CREATE UNIQUE INDEX IF NOT EXISTS contact_identities_email
  ON public.contact_identities (tenant_id, type, lower(value)) WHERE type = 'email';
