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
-- The queue: messages without a key, oldest first.
CREATE OR REPLACE FUNCTION claim_queue(
  p_destination_id smallint, p_limit int, p_max_bytes bigint, p_tenant_ids text[], p_namespace text,
  p_floor_at timestamptz, p_floor_id uuid, p_begun boolean)
RETURNS taken LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET jit = off AS $$
DECLARE
  v_now      timestamptz := clock_timestamp();
  v_tids     tid[];
  v_bytes    bigint;
  v_suspects boolean;
  v_taken    taken;
BEGIN
  IF p_tenant_ids IS NULL THEN
    SELECT array_agg(x.tid), sum(x.bytes), bool_or(x.alone) INTO v_tids, v_bytes, v_suspects
      FROM (SELECT d.ctid AS tid, d.bytes, d.alone FROM deliveries d
             WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.available_at <= v_now
               AND (d.available_at, d.message_id) >= (p_floor_at, p_floor_id)
               -- in one snapshot with what waits: what comes after a pause is not claimed
               AND (SELECT t.paused_at IS NULL FROM destinations t WHERE t.id = p_destination_id)
               AND (p_namespace IS NULL OR d.namespace = p_namespace)
             ORDER BY d.available_at, d.message_id LIMIT p_limit FOR UPDATE SKIP LOCKED) x;
  ELSE
    -- each tenant its share, so that each is an ordered read of its own index range, whatever the others' backlog
    SELECT array_agg(x.tid), sum(x.bytes), bool_or(x.alone) INTO v_tids, v_bytes, v_suspects
      FROM unnest(p_tenant_ids) t(tenant_id) CROSS JOIN LATERAL (
        SELECT d.ctid AS tid, d.bytes, d.alone FROM deliveries d
         WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id = t.tenant_id AND d.available_at <= v_now
           AND (SELECT x.paused_at IS NULL FROM destinations x WHERE x.id = p_destination_id)
           AND (p_namespace IS NULL OR d.namespace = p_namespace)
         ORDER BY d.available_at, d.message_id LIMIT ceil(p_limit::numeric / cardinality(p_tenant_ids)) FOR UPDATE SKIP LOCKED) x;
  END IF;
  IF v_tids IS NULL THEN RETURN NULL; END IF;

  -- Of the locked rows take a prefix within the bounds; a suspect (alone) is taken by itself, when it is first. The
  -- first is taken whatever its size, unless the claim has begun with something else. Where tenants take turns, the
  -- first of each comes before the second of any: by age, a long backlog would leave the others no room.
  IF v_suspects OR v_bytes > p_max_bytes OR cardinality(v_tids) > p_limit THEN
    v_tids := ARRAY (
      SELECT x.tid
        FROM (SELECT r.tid, r.alone, row_number() OVER w AS place, sum(r.bytes) OVER w AS total_bytes,
                     first_value(r.alone) OVER w AS suspect_first
                FROM (SELECT d.ctid AS tid, d.alone, d.bytes, d.available_at, d.message_id,
                             array_position(p_tenant_ids, d.tenant_id) AS turn,
                             CASE WHEN p_tenant_ids IS NOT NULL THEN
                               row_number() OVER (PARTITION BY d.tenant_id ORDER BY d.available_at, d.message_id) END AS round
                        FROM deliveries d WHERE d.ctid = ANY (v_tids)) r
              WINDOW w AS (ORDER BY r.round, r.turn, r.available_at, r.message_id)) x
       WHERE (x.place = 1 AND NOT p_begun)
          OR (NOT (x.suspect_first AND NOT p_begun) AND NOT x.alone AND x.place <= p_limit AND x.total_bytes <= p_max_bytes));
  END IF;

  WITH gone AS (
    DELETE FROM deliveries d WHERE d.ctid = ANY (v_tids)
    RETURNING d.message_id, d.claim_no + 1 AS claim_no, d.tries + 1 AS tries, d.available_at, d.bytes, d.alone)
  SELECT array_agg(t.message_id), array_agg(t.claim_no), array_agg(t.tries), array_agg(t.available_at), NULL, NULL, NULL, sum(t.bytes), bool_or(t.alone)
    INTO v_taken
    FROM (SELECT * FROM gone ORDER BY gone.available_at, gone.message_id) t;
  RETURN v_taken;
END $$;

-- Both kinds of work in one lease: the queue, and the lanes of messages with a key. The relay says which is
-- looked at first, in turn, so that neither starves the other; the second gets the room that is left.
CREATE OR REPLACE FUNCTION claim_batch(
  p_destination_id smallint, p_lease_id uuid, p_relay_id uuid, p_limit int, p_max_bytes bigint, p_lease_ms int,
  p_tenant_ids text[] DEFAULT NULL, p_namespace text DEFAULT NULL,
  p_floor_at timestamptz DEFAULT '-infinity', p_floor_id uuid DEFAULT '00000000-0000-0000-0000-000000000000',
  p_lanes_first boolean DEFAULT false, p_after_tenant text DEFAULT NULL)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, alone boolean, available_at timestamptz, created_at timestamptz,
  stream_id bigint, sequence bigint, previous_sequence bigint, namespace text, topic text, tenant_id text, key text,
  dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_now         timestamptz := clock_timestamp();
  v_destination destinations;
  v_tenant_ids  text[];
  v_after       text := p_after_tenant;
  v_tried       text[] := '{}';
  v_suspect     record;
  v_lanes_first boolean := p_lanes_first;
  v_woken       int;
  v_later       text[];
  v_others      text[];
  v_turns       text[];
  v_lanes       boolean;
  v_room        int;
  v_taken       taken;
  v_more        taken;
BEGIN
  PERFORM assert_read_committed('claim');
  SELECT * INTO v_destination FROM destinations WHERE id = p_destination_id;
  IF v_destination.paused_at IS NOT NULL THEN RETURN; END IF;
  LOOP
    -- where tenants take turns, a newcomer's ticket must not wait long behind those of another
    v_woken := wake_lanes(v_destination, greatest(4 * p_limit, CASE WHEN v_destination.fairness = 'tenant' THEN 10000 ELSE 0 END));
    IF v_destination.fairness = 'tenant' THEN PERFORM give_turns(p_destination_id); END IF;
    IF p_tenant_ids IS NOT NULL OR v_destination.fairness = 'tenant' THEN
      v_tenant_ids := due_tenants_in(p_destination_id, p_namespace, p_tenant_ids, v_after, least(p_limit, 100));
      -- what is taken by itself is taken first or not at all: so its tenant's turn must be the first of a claim
      v_suspect := suspect_turn(p_destination_id, p_namespace, v_tenant_ids);
      v_lanes_first := CASE WHEN v_suspect.place = 1 THEN v_suspect.in_lanes ELSE p_lanes_first END;
      IF v_suspect.place IS NOT NULL THEN v_tenant_ids := v_tenant_ids[:greatest(v_suspect.place - 1, 1)]; END IF;
    END IF;

    -- Whoever takes turns goes on behind the last one served: so nobody before it may be left out, and those who have
    -- the second kind only keep a place each, which they are given before the others get more.
    v_later := CASE WHEN cardinality(v_tenant_ids) > 1 THEN tenants_without(p_destination_id, p_namespace, v_tenant_ids, v_lanes_first) ELSE '{}' END;
    v_others := ARRAY (SELECT t.id FROM unnest(v_tenant_ids) WITH ORDINALITY t(id, place) WHERE t.id <> ALL (v_later) ORDER BY t.place);
    FOR v_step IN 1..3 LOOP
      v_turns := CASE WHEN v_tenant_ids IS NULL AND v_step <> 2 THEN NULL WHEN v_step = 2 THEN v_later ELSE v_others END;
      CONTINUE WHEN v_turns = '{}';
      v_lanes := v_lanes_first = (v_step = 1);
      v_room := p_limit - coalesce(cardinality(v_taken.message_ids), 0) - CASE WHEN v_step = 1 THEN cardinality(v_later) ELSE 0 END;
      v_more := CASE WHEN v_lanes
        THEN claim_lanes(p_destination_id, p_lease_id, v_room, p_max_bytes - coalesce(v_taken.bytes, 0), v_turns, p_namespace,
               v_taken.message_ids IS NOT NULL)
        ELSE claim_queue(p_destination_id, v_room, p_max_bytes - coalesce(v_taken.bytes, 0), v_turns, p_namespace,
               p_floor_at, p_floor_id, v_taken.message_ids IS NOT NULL)
        END;
      v_taken := join_taken(v_taken, v_more);
      EXIT WHEN v_taken.alone OR cardinality(v_taken.message_ids) >= p_limit;
    END LOOP;
    EXIT WHEN v_taken.message_ids IS NOT NULL OR clock_timestamp() > v_now + interval '1 second';
    -- tenants whose work somebody else has locked must not hide those behind them
    IF NOT v_tenant_ids <@ v_tried THEN
      v_tried := v_tried || v_tenant_ids;
      v_after := v_tenant_ids[cardinality(v_tenant_ids)];
      CONTINUE;
    END IF;
    -- Tickets of other tenants, or of messages that are gone, must not hide those behind them: they are eaten for good,
    -- so this ends; and after a second the next claim goes on.
    EXIT WHEN v_woken = 0;
  END LOOP;
  IF v_taken.message_ids IS NULL THEN RETURN; END IF;

  INSERT INTO leases (id, relay_id, claimed_at, expires_at, duration, remaining, destination_id, alone, message_ids, claim_nos,
                      tries, stream_ids, sequences)
  VALUES (p_lease_id, p_relay_id, v_now, clock_timestamp() + p_lease_ms * interval '1 ms', p_lease_ms * interval '1 ms',
          cardinality(v_taken.message_ids), p_destination_id, v_taken.alone, v_taken.message_ids, v_taken.claim_nos,
          v_taken.tries, v_taken.stream_ids, v_taken.sequences);

  -- An outer join: a message that is missing comes back without a topic and ends as a dead letter.
  RETURN QUERY EXECUTE
    'SELECT u.id, u.claim_no, u.tries, $5, u.available_at, m.created_at, u.stream_id, m.sequence, u.previous_sequence,
            m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
       FROM unnest($1, $2, $3, $4, $6, $7) WITH ORDINALITY AS u(id, claim_no, tries, available_at, stream_id, previous_sequence, place)
       LEFT JOIN LATERAL (SELECT * FROM messages x WHERE x.id = u.id AND x.id BETWEEN $8 AND $9 OFFSET 0) m ON true
      ORDER BY u.place'
    USING v_taken.message_ids, v_taken.claim_nos, v_taken.tries, v_taken.available_at, v_taken.alone, v_taken.stream_ids,
          v_taken.previous_sequences, (SELECT i FROM unnest(v_taken.message_ids) i ORDER BY i LIMIT 1),
          (SELECT i FROM unnest(v_taken.message_ids) i ORDER BY i DESC LIMIT 1);
END $$;

-- One after the other. Where only one of the two comes from lanes, the other has no streams.
CREATE OR REPLACE FUNCTION join_taken(a taken, b taken) RETURNS taken LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF b.message_ids IS NULL THEN RETURN a; END IF;
  IF a.message_ids IS NULL THEN RETURN b; END IF;
  a.stream_ids := coalesce(a.stream_ids, array_fill(NULL::bigint, ARRAY[cardinality(a.message_ids)]))
               || coalesce(b.stream_ids, array_fill(NULL::bigint, ARRAY[cardinality(b.message_ids)]));
  a.sequences := coalesce(a.sequences, array_fill(NULL::bigint, ARRAY[cardinality(a.message_ids)]))
              || coalesce(b.sequences, array_fill(NULL::bigint, ARRAY[cardinality(b.message_ids)]));
  a.previous_sequences := coalesce(a.previous_sequences, array_fill(NULL::bigint, ARRAY[cardinality(a.message_ids)]))
                       || coalesce(b.previous_sequences, array_fill(NULL::bigint, ARRAY[cardinality(b.message_ids)]));
  a.message_ids := a.message_ids || b.message_ids;
  a.claim_nos := a.claim_nos || b.claim_nos;
  a.tries := a.tries || b.tries;
  a.available_at := a.available_at || b.available_at;
  a.bytes := a.bytes + b.bytes;
  RETURN a;
END $$;

-- The simple form, for workers in any language: reaps expired leases itself, then claims by name. Where tenants take
-- turns, each claim goes on behind the tenant that had the last one in this session; the first begins with any.
CREATE OR REPLACE FUNCTION claim(
  destination text, token uuid, max_messages int DEFAULT 100, tenant text DEFAULT NULL, lease interval DEFAULT '30 seconds',
  only_namespace text DEFAULT NULL)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, created_at timestamptz, sequence bigint, previous_sequence bigint, namespace text,
  topic text, tenant_id text, key text, dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_destination destinations := find_destination(claim.destination);
  v_lease_id    uuid := new_id();
  v_row         record;
  v_missing     uuid[] := '{}';
  v_limit       int := checked_number('max_messages', max_messages, 1, 10000);
  v_lease_ms    int := checked_interval('lease', lease, '1 millisecond', '7 days');
  v_memory      text := 'waybill.turn_' || v_destination.id;
  v_after       text;
  v_last        text;
BEGIN
  IF token IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22004', MESSAGE = 'token is null: give a UUID that names this worker, for example gen_random_uuid()';
  END IF;
  PERFORM reap();
  -- the mark tells the turn of those without a tenant from a setting that was taken back
  IF v_destination.fairness = 'tenant' AND tenant IS NULL THEN
    v_after := CASE WHEN starts_with(current_setting(v_memory, true), '=') THEN substr(current_setting(v_memory, true), 2)
                    ELSE coalesce(any_tenant(v_destination.id), '') END;
  END IF;
  FOR v_row IN
    SELECT * FROM claim_batch(v_destination.id, v_lease_id, token, v_limit, 64 * 1024 * 1024, v_lease_ms,
                              CASE WHEN tenant IS NOT NULL THEN ARRAY[tenant] END, only_namespace,
                              p_lanes_first => random() < 0.5, p_after_tenant => v_after)
  LOOP
    IF v_row.topic IS NULL THEN
      v_missing := v_missing || v_row.message_id;
      CONTINUE;
    END IF;
    IF v_after IS NOT NULL AND (v_last IS NULL OR (coalesce(v_row.tenant_id, '') COLLATE "C" <= v_after, coalesce(v_row.tenant_id, '') COLLATE "C")
                                                > (v_last COLLATE "C" <= v_after, v_last COLLATE "C")) THEN
      v_last := coalesce(v_row.tenant_id, '');
    END IF;
    RETURN QUERY SELECT v_row.message_id, v_row.claim_no, v_row.tries, v_row.created_at, v_row.sequence, v_row.previous_sequence, v_row.namespace,
      v_row.topic, v_row.tenant_id, v_row.key, v_row.dedupe_key, v_row.aggregate_type, v_row.aggregate_id,
      v_row.headers, v_row.payload;
  END LOOP;
  IF v_last IS NOT NULL THEN PERFORM set_config(v_memory, '=' || v_last, false); END IF;
  IF v_missing <> '{}' THEN
    PERFORM settle(v_lease_id, token, v_missing, NULL, array_fill('reject'::outcome, ARRAY[cardinality(v_missing)]),
                   p_error_codes => array_fill('message_missing'::text, ARRAY[cardinality(v_missing)]));
  END IF;
END $$;
