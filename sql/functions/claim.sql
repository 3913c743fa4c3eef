-- Claim: due deliveries leave the hot table and become one lease, in one call and one transaction.
--
-- Rows are found by the due index with SKIP LOCKED and deleted by ctid: a join would flip to a scan of
-- the whole queue after autoanalyze has seen it empty. Payloads are fetched by a second statement with
-- literal id bounds, so that only the partitions in question are visited, and one index look-up per id
-- (OFFSET 0 keeps the planner from joining the whole range between the oldest and the newest id). The plans
-- of the other statements are made once, which is half the cost of a small claim; so that it does not matter
-- when they were made, everything but the ordered read of the due index is switched off.
--
-- The floor (p_floor_at, p_floor_id) is where the last claim of this relay ended. Under a held xmin the
-- index keeps the entries of rows long gone, and every scan from the start walks them again. Rows that
-- commit late lie below the floor: the relay decides when to use it (src/relay/floor.ts).
CREATE OR REPLACE FUNCTION claim_batch(
  p_destination_id smallint, p_lease_id uuid, p_relay_id uuid, p_limit int, p_max_bytes bigint, p_lease_ms int,
  p_tenant_ids text[] DEFAULT NULL, p_namespace text DEFAULT NULL,
  p_floor_at timestamptz DEFAULT '-infinity', p_floor_id uuid DEFAULT '00000000-0000-0000-0000-000000000000')
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, alone boolean, available_at timestamptz, created_at timestamptz,
  sequence bigint, namespace text, topic text, tenant_id text, key text, dedupe_key text,
  aggregate_type text, aggregate_id text, headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_now       timestamptz := clock_timestamp();
  v_tids      tid[];
  v_bytes     bigint;
  v_suspects  boolean;
  v_ids       uuid[];
  v_nos       int[];
  v_tries     int[];
  v_available timestamptz[];
  v_alone     boolean;
BEGIN
  IF EXISTS (SELECT FROM destinations WHERE id = p_destination_id AND paused_at IS NOT NULL) THEN RETURN; END IF;
  IF p_tenant_ids IS NULL THEN
    SELECT array_agg(x.tid), sum(x.bytes), bool_or(x.alone) INTO v_tids, v_bytes, v_suspects
      FROM (SELECT d.ctid AS tid, d.bytes, d.alone FROM deliveries d
             WHERE d.destination_id = p_destination_id AND d.available_at <= v_now
               AND (d.available_at, d.message_id) >= (p_floor_at, p_floor_id)
               AND (p_namespace IS NULL OR d.namespace = p_namespace)
             ORDER BY d.available_at, d.message_id LIMIT p_limit FOR UPDATE SKIP LOCKED) x;
  ELSE
    -- per tenant, so that each is an ordered read of its own index range, whatever the others' backlog
    SELECT array_agg(x.tid), sum(x.bytes), bool_or(x.alone) INTO v_tids, v_bytes, v_suspects
      FROM (SELECT x.* FROM (SELECT DISTINCT unnest(p_tenant_ids)) t(tenant_id) CROSS JOIN LATERAL (
              SELECT d.ctid AS tid, d.bytes, d.alone, d.available_at, d.message_id FROM deliveries d
               WHERE d.destination_id = p_destination_id AND d.tenant_id = t.tenant_id AND d.available_at <= v_now
                 AND (p_namespace IS NULL OR d.namespace = p_namespace)
               ORDER BY d.available_at, d.message_id LIMIT p_limit FOR UPDATE SKIP LOCKED) x
             ORDER BY x.available_at, x.message_id LIMIT p_limit) x;
  END IF;
  IF v_tids IS NULL THEN RETURN; END IF;

  -- Of the locked rows take a prefix within the bytes; a suspect (alone) is taken by itself, when it is first.
  IF v_suspects OR v_bytes > p_max_bytes THEN
    v_tids := ARRAY (
      SELECT x.tid
        FROM (SELECT d.ctid AS tid, d.alone, row_number() OVER w AS place, sum(d.bytes) OVER w AS total_bytes,
                     first_value(d.alone) OVER w AS suspect_first
                FROM deliveries d WHERE d.ctid = ANY (v_tids)
              WINDOW w AS (ORDER BY d.available_at, d.message_id)) x
       WHERE x.place = 1 OR (NOT x.suspect_first AND NOT x.alone AND x.total_bytes <= p_max_bytes));
  END IF;

  WITH taken AS (
    DELETE FROM deliveries d WHERE d.ctid = ANY (v_tids)
    RETURNING d.message_id, d.claim_no + 1 AS claim_no, d.tries + 1 AS tries, d.available_at, d.alone)
  SELECT array_agg(t.message_id), array_agg(t.claim_no), array_agg(t.tries), array_agg(t.available_at), bool_or(t.alone)
    INTO v_ids, v_nos, v_tries, v_available, v_alone
    FROM (SELECT * FROM taken ORDER BY taken.available_at, taken.message_id) t;
  IF v_ids IS NULL THEN RETURN; END IF;

  INSERT INTO leases (id, relay_id, claimed_at, expires_at, duration, remaining, destination_id, alone, message_ids, claim_nos, tries)
  VALUES (p_lease_id, p_relay_id, v_now, clock_timestamp() + p_lease_ms * interval '1 ms', p_lease_ms * interval '1 ms',
          cardinality(v_ids), p_destination_id, v_alone, v_ids, v_nos, v_tries);

  -- An outer join: a message that is missing comes back without a topic and ends as a dead letter.
  RETURN QUERY EXECUTE
    'SELECT u.id, u.claim_no, u.tries, $5, u.available_at, m.created_at, m.sequence, m.namespace, m.topic, m.tenant_id,
            m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
       FROM unnest($1, $2, $3, $4) WITH ORDINALITY AS u(id, claim_no, tries, available_at, place)
       LEFT JOIN LATERAL (SELECT * FROM messages x WHERE x.id = u.id AND x.id BETWEEN $6 AND $7 OFFSET 0) m ON true
      ORDER BY u.place'
    USING v_ids, v_nos, v_tries, v_available, v_alone,
          (SELECT i FROM unnest(v_ids) i ORDER BY i LIMIT 1), (SELECT i FROM unnest(v_ids) i ORDER BY i DESC LIMIT 1);
END $$;

-- The simple form, for workers in any language: reaps expired leases itself, then claims by name.
CREATE OR REPLACE FUNCTION claim(
  destination text, token uuid, max_messages int DEFAULT 100, tenant text DEFAULT NULL, lease interval DEFAULT '30 seconds',
  only_namespace text DEFAULT NULL)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, created_at timestamptz, sequence bigint, namespace text, topic text,
  tenant_id text, key text, dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_destination destinations := find_destination(claim.destination);
  v_lease_id    uuid := new_id();
  v_row         record;
  v_missing     uuid[] := '{}';
BEGIN
  IF token IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'token is null: give a UUID that names this worker, for example gen_random_uuid()';
  END IF;
  PERFORM reap();
  FOR v_row IN
    SELECT * FROM claim_batch(v_destination.id, v_lease_id, token, greatest(max_messages, 1), 64 * 1024 * 1024,
                              (extract(epoch FROM lease) * 1000)::int, CASE WHEN tenant IS NOT NULL THEN ARRAY[tenant] END, only_namespace)
  LOOP
    IF v_row.topic IS NULL THEN
      v_missing := v_missing || v_row.message_id;
      CONTINUE;
    END IF;
    RETURN QUERY SELECT v_row.message_id, v_row.claim_no, v_row.tries, v_row.created_at, v_row.sequence, v_row.namespace,
      v_row.topic, v_row.tenant_id, v_row.key, v_row.dedupe_key, v_row.aggregate_type, v_row.aggregate_id,
      v_row.headers, v_row.payload;
  END LOOP;
  IF v_missing <> '{}' THEN
    PERFORM settle(v_lease_id, token, v_missing, NULL, array_fill('reject'::outcome, ARRAY[cardinality(v_missing)]),
                   p_error_codes => array_fill('message_missing'::text, ARRAY[cardinality(v_missing)]));
  END IF;
END $$;
