-- Fair claims: like claim_queue and claim_lanes, but shared equally between the tenants that fairness.sql chooses. The
-- first message of every tenant comes before the second of any, so a long backlog leaves room for others. If another
-- session has locked the work of these tenants, the claim continues with later ones, for a second at most.

-- Takes messages without a key. Each tenant's share is an ordered read of its own index range, so its cost does not
-- depend on other backlogs. The range is written as two bounds, and the order begins with the tenant: only the index
-- by tenant fits that. With tenant_id = t.id, the planner may choose the index by time and skip the messages of all
-- other tenants: it does that if its statistics know one tenant only.
CREATE OR REPLACE FUNCTION claim_queue_fairly(
  p_destination_id int,
  p_limit          int,
  p_max_bytes      bigint,
  p_is_first       boolean,
  p_namespace      text,
  p_tenant_ids     text[],
  p_after_tenant   text)
RETURNS taken
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_now     timestamptz := clock_timestamp();
  v_after   text := p_after_tenant;
  v_tried   text[] := '{}';
  v_tenants text[];
  v_rows    tid[];
  v_sizes   int[];
BEGIN
  LOOP
    v_tenants := next_tenants(p_destination_id, false, p_namespace, p_tenant_ids, v_after, least(p_limit, 100));
    EXIT WHEN v_tenants <@ v_tried OR clock_timestamp() > v_now + interval '1 second';
    SELECT (array_agg(x.row_address ORDER BY x.round, x.place))[:p_limit],
           (array_agg(x.bytes ORDER BY x.round, x.place))[:p_limit]
      INTO v_rows, v_sizes
      FROM (SELECT d.row_address, d.bytes, t.place,
                   row_number() OVER (PARTITION BY t.place ORDER BY d.available_at, d.message_id) AS round
              FROM unnest(v_tenants) WITH ORDINALITY t(id, place)
             CROSS JOIN LATERAL (
                    SELECT d.ctid AS row_address, d.bytes, d.available_at, d.message_id
                      FROM deliveries d
                     WHERE d.destination_id = p_destination_id
                       AND d.key_id IS NULL
                       AND d.tenant_id >= t.id
                       AND (d.tenant_id, d.available_at) <= (t.id, v_now)
                       AND NOT d.quarantined
                       AND (SELECT x.paused_at IS NULL
                              FROM destinations x
                             WHERE x.id = p_destination_id)
                       AND (p_namespace IS NULL OR d.namespace = p_namespace)
                     ORDER BY d.tenant_id, d.available_at, d.message_id
                     LIMIT ceil(p_limit::numeric / cardinality(v_tenants))
                       FOR UPDATE SKIP LOCKED) d) x;
    IF v_rows IS NOT NULL THEN RETURN take_deliveries(v_rows, v_sizes, p_max_bytes, p_is_first); END IF;
    v_tried := v_tried || v_tenants;
    v_after := v_tenants[cardinality(v_tenants)];
  END LOOP;
  RETURN NULL;
END $$;

-- Takes messages with a key, from due lanes.
CREATE OR REPLACE FUNCTION claim_lanes_fairly(
  p_destination_id int,
  p_lease_id       uuid,
  p_limit          int,
  p_max_bytes      bigint,
  p_is_first       boolean,
  p_namespace      text,
  p_one_per_key    boolean,
  p_tenant_ids     text[],
  p_after_tenant   text)
RETURNS taken
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_started timestamptz := clock_timestamp();
  v_after   text := p_after_tenant;
  v_tried   text[] := '{}';
  v_tenants text[];
  v_taken   taken;
BEGIN
  LOOP
    v_tenants := next_tenants(p_destination_id, true, p_namespace, p_tenant_ids, v_after, least(p_limit, 100));
    EXIT WHEN v_tenants <@ v_tried OR clock_timestamp() > v_started + interval '1 second';
    v_taken := claim_lanes(p_destination_id, p_lease_id, p_limit, p_max_bytes, p_is_first, p_namespace, p_one_per_key,
                           v_tenants);
    EXIT WHEN v_taken.message_ids IS NOT NULL;
    v_tried := v_tried || v_tenants;
    v_after := v_tenants[cardinality(v_tenants)];
  END LOOP;
  RETURN v_taken;
END $$;

-- Locks due lanes of these tenants, except those in p_passed, the same number for each. The first lane of each tenant
-- comes before the second of any. The range of a tenant is written as in claim_queue_fairly.
CREATE OR REPLACE FUNCTION lock_lanes_of(
  p_destination_id int,
  p_tenant_ids     text[],
  p_limit          int,
  p_passed         bigint[],
  p_namespace      text,
  p_now            timestamptz,
  OUT keys         bigint[],
  OUT lasts        bigint[])
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
  SELECT array_agg(x.key_id ORDER BY x.round, x.place), array_agg(x.last_sequence ORDER BY x.round, x.place)
    INTO keys, lasts
    FROM (SELECT l.key_id, l.last_sequence, t.place,
                 row_number() OVER (PARTITION BY t.place ORDER BY l.available_at, l.key_id) AS round
            FROM unnest(p_tenant_ids) WITH ORDINALITY t(id, place)
           CROSS JOIN LATERAL (
                  SELECT l.key_id, l.last_sequence, l.available_at
                    FROM lanes l
                   WHERE l.destination_id = p_destination_id
                     AND l.tenant_id >= t.id
                     AND (l.tenant_id, l.available_at) <= (t.id, p_now)
                     AND l.available_at IS NOT NULL
                     AND l.blocked_by IS NULL
                     AND l.key_id <> ALL (p_passed)
                     AND (SELECT x.paused_at IS NULL
                            FROM destinations x
                           WHERE x.id = p_destination_id)
                     AND (p_namespace IS NULL OR l.namespace = p_namespace)
                   ORDER BY l.tenant_id, l.available_at, l.key_id
                   LIMIT ceil(p_limit::numeric / cardinality(p_tenant_ids))
                     FOR UPDATE SKIP LOCKED) l) x;
END $$;
