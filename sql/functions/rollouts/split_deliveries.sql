-- Deliveries of split routes: what enqueue does with messages that a rollout divides between Waybill and another
-- system. Only messages with such a route come here. Routes are taken as enqueue has read them: a second look could
-- find another route, and lose the message between the two.

-- The messages of one namespace, topic and tenant that have a split route: their destinations, and what splits the
-- route to each; null: Waybill sends all of it.
CREATE OR REPLACE FUNCTION split_kind(
  p_namespace text, p_topic text, p_tenant_id text, p_destination_ids int[], p_split_by text[])
RETURNS jsonb
LANGUAGE sql IMMUTABLE
AS $$
  SELECT jsonb_build_object('namespace', p_namespace, 'topic', p_topic, 'tenantId', p_tenant_id,
                            'destinationIds', p_destination_ids, 'splitBy', p_split_by)
$$;

-- Whether a message is in the share that Waybill sends, in hundredths of a percent.
CREATE OR REPLACE FUNCTION is_in_share(p_share int, p_key text, p_id uuid)
RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT p_share = 10000 OR rollout_bucket(coalesce(p_key, p_id::text)) < p_share
$$;

-- Adds the deliveries of the messages of these kinds (split_kind), as add_deliveries does for the others; returns their
-- destinations. The shadow of a rollout takes the place of its destination. A message that is left to the other system
-- gets no delivery, and is not unrouted.
CREATE OR REPLACE FUNCTION add_split_deliveries(
  p_messages messages[], p_available timestamptz[], p_delays bigint[], p_kinds jsonb)
RETURNS int[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  v_targets int[];
BEGIN
  WITH routed AS MATERIALIZED (
    SELECT k.namespace, k.topic, k."tenantId" AS tenant_id, s.destination_id, s.share,
           fair_tenant(d.fairness, k."tenantId") AS fair_tenant
      FROM jsonb_to_recordset(p_kinds)
           AS k(namespace text, topic text, "tenantId" text, "destinationIds" int[], "splitBy" text[])
     CROSS JOIN LATERAL (
            SELECT coalesce(o.shadow_destination_id, r.destination_id) AS destination_id,
                   max(coalesce(o.share, 10000)) AS share
              FROM unnest(k."destinationIds", k."splitBy") r(destination_id, split_by)
              LEFT JOIN LATERAL rollout_state(r.split_by) o ON true
             GROUP BY 1) s
      JOIN destinations d ON d.id = s.destination_id),
  added AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, delay_ms, bytes, namespace, tenant_id, key_id,
                            sequence)
    SELECT m.id, r.destination_id, m.available_at, m.delay_ms, m.bytes, m.namespace, r.fair_tenant, m.key_id,
           m.sequence
      FROM ROWS FROM (unnest(p_messages), unnest(p_available), unnest(p_delays))
           AS m(id, created_at, given_at, transaction_id, key_id, sequence, bytes, namespace, topic, tenant_id, key,
                dedupe_key, aggregate_type, aggregate_id, headers, payload, available_at, delay_ms)
      JOIN routed r
        ON (r.namespace, r.topic) = (m.namespace, m.topic)
       AND r.tenant_id IS NOT DISTINCT FROM m.tenant_id
     WHERE is_in_share(r.share, m.key, m.id)
     ORDER BY m.id
    RETURNING destination_id, key_id),
  tickets AS (
    INSERT INTO lane_tickets (destination_id, key_id)
    SELECT DISTINCT d.destination_id, d.key_id FROM added d WHERE d.key_id IS NOT NULL)
  SELECT array_agg(DISTINCT destination_id) INTO v_targets FROM added;
  RETURN v_targets;
END $$;
