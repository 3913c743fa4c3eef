-- Claim: moves due deliveries of one destination out of the table deliveries and into one lease, in one transaction.
-- Concurrent claims never take the same delivery and never wait for each other (SKIP LOCKED).
--
-- claim_batch claims for one destination, claim_batches for many. take_batch claims from all parts of one destination
-- (messages without a key, messages with a key, or one quarantined message) and writes the lease. claim_batches calls
-- it only for destinations that have more than messages without a key; for all others it calls claim_queues once. Each
-- of these functions takes deliveries out of the table and returns them:
--   claim_queue          messages without a key, oldest first
--   claim_queues         the same for many destinations that have nothing else; it writes their leases too
--   claim_keyed          messages with a key (keys/lane_claims.sql)
--   claim_queue_fairly   like claim_queue, shared between tenants (fairness/claim_fairly.sql)
--   claim_quarantined    one message whose last holder died (core/quarantine.sql)
--
-- Rows are deleted by an array of ctids. A join would become a sequential scan of the whole table once autovacuum has
-- analyzed an empty queue. The plans are cached, which halves the cost of a small claim. All scans but the ordered read
-- of an index are switched off, so a plan is right whenever it was made. claim_batch and claim_batches set this for the
-- functions that only they call: each SET of a function costs some microseconds per call.

-- Takes messages without a key, oldest first, as far as they fit into p_max_bytes. p_is_first: the claim holds nothing
-- yet, so the first message is taken however large it is.
--
-- The scan start (p_scan_from_at, p_scan_from_id) is where the last claim of this relay ended. While an old transaction
-- holds back xmin, the index keeps the entries of deleted rows, and a scan from the beginning would walk them again.
-- A scan from there misses rows that committed late, or whose producer gave an earlier time, so the relay uses it only
-- for a while (src/relay/delivery/scan-start.ts).
CREATE OR REPLACE FUNCTION claim_queue(
  p_destination_id int,
  p_limit          int,
  p_max_bytes      bigint,
  p_is_first       boolean,
  p_namespace      text,
  p_scan_from_at   timestamptz,
  p_scan_from_id   uuid)
RETURNS taken
LANGUAGE plpgsql VOLATILE
SET enable_sort = off
AS $$
DECLARE
  v_now   timestamptz := clock_timestamp();
  v_taken taken;
BEGIN
  WITH due AS MATERIALIZED (
    SELECT d.ctid AS row_address, d.bytes
      FROM deliveries d
     WHERE d.destination_id = p_destination_id
       AND d.key_id IS NULL
       AND d.available_at <= v_now
       AND (d.available_at, d.message_id) >= (p_scan_from_at, p_scan_from_id)
       AND NOT d.quarantined
       -- checked in the same snapshot as the deliveries: a message enqueued after a pause is not claimed
       AND (SELECT t.paused_at IS NULL FROM destinations t WHERE t.id = p_destination_id)
       AND (p_namespace IS NULL OR d.namespace = p_namespace)
     ORDER BY d.available_at, d.message_id
     LIMIT p_limit
       FOR UPDATE SKIP LOCKED),
  counted AS (
    SELECT x.row_address, x.bytes, sum(x.bytes) OVER (ROWS UNBOUNDED PRECEDING) AS total_bytes FROM due x),
  gone AS (
    DELETE FROM deliveries d
     WHERE d.ctid = ANY (ARRAY (
             SELECT c.row_address
               FROM counted c
              WHERE c.total_bytes <= p_max_bytes
                 OR (c.total_bytes = c.bytes AND p_is_first)))
    RETURNING d.message_id, d.claim_no + 1 AS claim_no, d.tries + 1 AS tries, d.available_at, d.bytes)
  SELECT array_agg(t.message_id), array_agg(t.claim_no), array_agg(t.tries), array_agg(t.available_at),
         NULL, NULL, NULL, sum(t.bytes), false
    INTO v_taken
    FROM (SELECT * FROM gone ORDER BY gone.available_at, gone.message_id) t;
  RETURN v_taken;
END $$;

-- claim_queue for many destinations in one statement, with a lease for each. p_requests: the positions of these
-- destinations in the arrays, which have one element for each destination. Returns the deliveries request by request;
-- requests: the position that each of them belongs to.
CREATE OR REPLACE FUNCTION claim_queues(
  p_requests        int[],
  p_relay_id        uuid,
  p_max_bytes       bigint,
  p_lease_ms        int,
  p_namespace       text,
  p_destination_ids int[],
  p_lease_ids       uuid[],
  p_limits          int[],
  p_scan_from_at    timestamptz[],
  p_scan_from_id    uuid[],
  OUT all_taken     taken,
  OUT requests      int[])
LANGUAGE plpgsql VOLATILE
-- The planner expects too few rows: keep it from nested loops, except for LATERAL, and from sorts; the index is sorted.
SET enable_nestloop = off SET enable_sort = off
AS $$
DECLARE
  v_now      timestamptz := clock_timestamp();
  v_duration interval := checked_number('p_lease_ms', p_lease_ms, 1, 604800000) * interval '1 ms';
BEGIN
  WITH due AS MATERIALIZED (
    SELECT d.row_address, d.bytes,
           sum(d.bytes) OVER (PARTITION BY r.request ORDER BY d.available_at, d.message_id) AS total_bytes
      FROM unnest(p_requests) r(request)
     CROSS JOIN LATERAL (
           SELECT x.ctid AS row_address, x.bytes, x.available_at, x.message_id
             FROM deliveries x
            WHERE x.destination_id = p_destination_ids[r.request]
              AND x.key_id IS NULL
              AND x.available_at <= v_now
              AND (x.available_at, x.message_id)
                  >= (coalesce(p_scan_from_at[r.request], '-infinity'),
                      coalesce(p_scan_from_id[r.request], '00000000-0000-0000-0000-000000000000'))
              AND NOT x.quarantined
              AND (SELECT t.paused_at IS NULL
                     FROM destinations t
                    WHERE t.id = p_destination_ids[r.request])
              AND (p_namespace IS NULL OR x.namespace = p_namespace)
            ORDER BY x.available_at, x.message_id
            LIMIT p_limits[r.request]
              FOR UPDATE SKIP LOCKED) d),
  gone AS (
    DELETE FROM deliveries d
     WHERE d.ctid = ANY (ARRAY (
             SELECT c.row_address
               FROM due c
              WHERE c.total_bytes <= p_max_bytes
                 OR c.total_bytes = c.bytes))
    RETURNING array_position(p_destination_ids, d.destination_id) AS request, d.message_id, d.claim_no + 1 AS claim_no,
              d.tries + 1 AS tries, d.available_at, d.bytes),
  sorted AS MATERIALIZED (
    SELECT g.*
      FROM gone g
     ORDER BY g.request, g.available_at, g.message_id),
  written AS (
    INSERT INTO leases (id, relay_id, claimed_at, expires_at, duration, remaining, destination_id, quarantined,
                        message_ids, claim_nos, tries)
    SELECT p_lease_ids[s.request], p_relay_id, v_now, clock_timestamp() + v_duration, v_duration, count(*),
           p_destination_ids[s.request], false, array_agg(s.message_id), array_agg(s.claim_no), array_agg(s.tries)
      FROM sorted s
     GROUP BY s.request)
  SELECT array_agg(s.message_id), array_agg(s.claim_no), array_agg(s.tries), array_agg(s.available_at), sum(s.bytes),
         array_agg(s.request)
    INTO all_taken.message_ids, all_taken.claim_nos, all_taken.tries, all_taken.available_at, all_taken.bytes,
         requests
    FROM sorted s;
END $$;

-- Takes these locked deliveries, in this order, as far as they fit into p_max_bytes. If the claim holds nothing yet
-- (p_is_first), the first one is taken however large it is.
CREATE OR REPLACE FUNCTION take_deliveries(p_rows tid[], p_sizes int[], p_max_bytes bigint, p_is_first boolean)
RETURNS taken
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_rows  tid[] := p_rows;
  v_taken taken;
BEGIN
  IF (SELECT sum(bytes) FROM unnest(p_sizes) bytes) > p_max_bytes THEN
    v_rows := ARRAY (
      SELECT x.row_address
        FROM (SELECT u.row_address, u.place, sum(u.bytes) OVER (ORDER BY u.place) AS total_bytes
                FROM unnest(p_rows, p_sizes) WITH ORDINALITY AS u(row_address, bytes, place)) x
       WHERE x.total_bytes <= p_max_bytes
          OR (x.place = 1 AND p_is_first));
  END IF;
  IF v_rows IS NULL OR v_rows = '{}' THEN RETURN NULL; END IF;
  WITH gone AS (
    DELETE FROM deliveries d
     WHERE d.ctid = ANY (v_rows)
    RETURNING d.message_id, d.claim_no + 1 AS claim_no, d.tries + 1 AS tries, d.available_at, d.bytes, d.quarantined)
  SELECT array_agg(t.message_id), array_agg(t.claim_no), array_agg(t.tries), array_agg(t.available_at),
         NULL, NULL, NULL, sum(t.bytes), bool_or(t.quarantined)
    INTO v_taken
    FROM (SELECT * FROM gone ORDER BY gone.available_at, gone.message_id) t;
  RETURN v_taken;
END $$;

-- Claims a batch in one lease. It takes messages without a key and messages with a key. p_lanes_first says which of the
-- two come first; the others get the remaining room. The relay alternates, so neither starves the other. A claim that
-- begins with the messages without a key takes a quarantined message instead, alone, if one is due; a claim that begins
-- with the others does so only if it finds nothing else.
--
-- A lease can hold several messages of one key, in sequence. Its holder must send them one after the other, and must
-- release those that come after an undelivered one. p_one_per_key: claim only the first message of each key.
--
-- p_tenant_ids: claim only for these tenants. p_after_tenant, p_after_lane_tenant: with fairness, the tenants that were
-- served last, for messages without and with a key.
--
-- p_expire_after_ms: the column expired tells whether a message is older than this; null: no message expires. The age
-- counts from the enqueue, or from the due time that the producer gave. For the first claim of a message with a delay,
-- it counts from when the message is due. Expired messages are claimed too, and the relay ends them.
CREATE OR REPLACE FUNCTION claim_batch(
  p_destination_id    int,
  p_lease_id          uuid,
  p_relay_id          uuid,
  p_limit             int,
  p_max_bytes         bigint,
  p_lease_ms          int,
  p_tenant_ids        text[] DEFAULT NULL,
  p_namespace         text DEFAULT NULL,
  p_scan_from_at      timestamptz DEFAULT '-infinity',
  p_scan_from_id      uuid DEFAULT '00000000-0000-0000-0000-000000000000',
  p_lanes_first       boolean DEFAULT false,
  p_after_tenant      text DEFAULT NULL,
  p_after_lane_tenant text DEFAULT NULL,
  p_one_per_key       boolean DEFAULT false,
  p_expire_after_ms   bigint DEFAULT NULL)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, quarantined boolean, available_at timestamptz, created_at timestamptz,
  key_id bigint, sequence bigint, previous_sequence bigint, namespace text, topic text, tenant_id text, key text,
  dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb, expired boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_lowest  uuid;
  v_highest uuid;
  v_taken   taken;
BEGIN
  PERFORM assert_read_committed('claim');
  v_taken := take_batch(p_destination_id, p_lease_id, p_relay_id, p_limit, p_max_bytes, p_lease_ms, p_tenant_ids,
                        p_namespace, p_scan_from_at, p_scan_from_id, p_lanes_first, p_after_tenant,
                        p_after_lane_tenant, p_one_per_key);
  IF v_taken.message_ids IS NULL THEN RETURN; END IF;
  SELECT i.ids[1], i.ids[cardinality(i.ids)]
    INTO v_lowest, v_highest
    FROM (SELECT array_agg(u.id ORDER BY u.id) FROM unnest(v_taken.message_ids) u(id)) i(ids);
  RETURN QUERY EXECUTE taken_messages('$9', CASE WHEN p_expire_after_ms IS NOT NULL THEN '$10' END, '')
    USING v_taken.message_ids, v_taken.claim_nos, v_taken.tries, v_taken.available_at, v_taken.key_ids,
          v_taken.previous_sequences, v_lowest, v_highest, v_taken.quarantined,
          clock_timestamp() - p_expire_after_ms * interval '1 ms';
END $$;

-- Claims for many destinations in one transaction, each in a lease of its own, as claim_batch does for one. The arrays
-- have one element for each destination; p_expire_after_ms is null if no message of theirs expires. p_max_bytes is
-- shared equally, but every destination gets at least one message. request is the position in the arrays. take_batch is
-- called in the order of the destinations' ids, because claims may wait for each other when they make new lanes.
CREATE OR REPLACE FUNCTION claim_batches(
  p_relay_id           uuid,
  p_max_bytes          bigint,
  p_lease_ms           int,
  p_tenant_ids         text[],
  p_namespace          text,
  p_destination_ids    int[],
  p_lease_ids          uuid[],
  p_limits             int[],
  p_lanes_first        boolean[],
  p_scan_from_at       timestamptz[],
  p_scan_from_id       uuid[],
  p_after_tenants      text[],
  p_after_lane_tenants text[],
  p_expire_after_ms    bigint[])
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, quarantined boolean, available_at timestamptz, created_at timestamptz,
  key_id bigint, sequence bigint, previous_sequence bigint, namespace text, topic text, tenant_id text, key text,
  dedupe_key text, aggregate_type text, aggregate_id text, headers jsonb, payload jsonb, expired boolean, request int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_max_bytes   bigint := greatest(p_max_bytes / cardinality(p_destination_ids), 1);
  v_plain       int[];
  v_others      int[];
  v_request     int;
  v_lowest      uuid;
  v_highest     uuid;
  v_queues      record;
  v_taken       taken;
  v_all         taken;
  v_requests    int[];
  v_quarantined boolean[];
BEGIN
  PERFORM assert_read_committed('claim');
  SELECT array_agg(k.request) FILTER (WHERE k.is_plain),
         array_agg(k.request ORDER BY k.destination_id) FILTER (WHERE NOT k.is_plain)
    INTO v_plain, v_others
    FROM (SELECT DISTINCT ON (u.id)
                 u.place AS request, u.id AS destination_id,
                 p_tenant_ids IS NULL
                 AND d.fairness = 'none'
                 AND (SELECT true FROM lane_tickets t WHERE t.destination_id = u.id LIMIT 1) IS NULL
                 AND (SELECT true FROM lanes l WHERE l.destination_id = u.id LIMIT 1) IS NULL
                 AND (SELECT true
                        FROM deliveries x
                       WHERE x.destination_id = u.id
                         AND x.quarantined
                       LIMIT 1) IS NULL AS is_plain
            FROM unnest(p_destination_ids) WITH ORDINALITY u(id, place)
           CROSS JOIN LATERAL (
                 SELECT x.fairness
                   FROM destinations x
                  WHERE x.id = u.id
                    AND x.paused_at IS NULL
                 OFFSET 0) d
           ORDER BY u.id, u.place) k;
  IF v_plain IS NOT NULL THEN
    v_queues := claim_queues(v_plain, p_relay_id, v_max_bytes, p_lease_ms, p_namespace, p_destination_ids, p_lease_ids,
                             p_limits, p_scan_from_at, p_scan_from_id);
    v_all := v_queues.all_taken;
    v_requests := v_queues.requests;
    v_quarantined := array_fill(false, ARRAY[coalesce(cardinality(v_requests), 0)]);
  END IF;
  FOREACH v_request IN ARRAY coalesce(v_others, '{}') LOOP
    v_taken := take_batch(p_destination_ids[v_request], p_lease_ids[v_request], p_relay_id, p_limits[v_request],
                          v_max_bytes, p_lease_ms, p_tenant_ids, p_namespace,
                          coalesce(p_scan_from_at[v_request], '-infinity'),
                          coalesce(p_scan_from_id[v_request], '00000000-0000-0000-0000-000000000000'),
                          p_lanes_first[v_request], p_after_tenants[v_request], p_after_lane_tenants[v_request], false);
    CONTINUE WHEN v_taken.message_ids IS NULL;
    v_all := join_taken(v_all, v_taken);
    v_requests := v_requests || array_fill(v_request, ARRAY[cardinality(v_taken.message_ids)]);
    v_quarantined := v_quarantined || array_fill(v_taken.quarantined, ARRAY[cardinality(v_taken.message_ids)]);
  END LOOP;
  IF v_all.message_ids IS NULL THEN RETURN; END IF;
  SELECT i.ids[1], i.ids[cardinality(i.ids)]
    INTO v_lowest, v_highest
    FROM (SELECT array_agg(u.id ORDER BY u.id) FROM unnest(v_all.message_ids) u(id)) i(ids);
  RETURN QUERY EXECUTE taken_messages(
    '($9)[u.place]',
    CASE WHEN p_expire_after_ms IS NOT NULL THEN '$11 - ($12)[($10)[u.place]] * interval ''1 ms''' END,
    ', ($10)[u.place]')
    USING v_all.message_ids, v_all.claim_nos, v_all.tries, v_all.available_at, v_all.key_ids,
          v_all.previous_sequences, v_lowest, v_highest, v_quarantined, v_requests, clock_timestamp(),
          p_expire_after_ms;
END $$;

-- The query that reads the messages of a claim: what was taken is $1 to $6, the bounds of the ids are $7 and $8.
-- Planned at every call, with bounds of the ids that are known then, so only the partitions in question are visited.
-- OFFSET 0 makes it one index look-up per id; otherwise the planner would join the whole range between the oldest and
-- the newest id. An outer join: a missing message comes back without a topic, and a message that is too large to read
-- comes back without headers and payload. The relay makes both dead letters. The arguments are SQL expressions.
-- p_expired_before: messages from before that time have expired; null: none.
CREATE OR REPLACE FUNCTION taken_messages(p_quarantined text, p_expired_before text, p_more_columns text)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT 'SELECT u.id, u.claim_no, u.tries, ' || p_quarantined || ', u.available_at, m.created_at, u.key_id,
                 m.sequence, u.previous_sequence, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key,
                 m.aggregate_type, m.aggregate_id,
                 CASE WHEN m.bytes <= readable_bytes() THEN m.headers END,
                 CASE WHEN m.bytes <= readable_bytes() THEN m.payload END, '
         || CASE
              WHEN p_expired_before IS NULL THEN 'NULL::boolean'
              ELSE format('coalesce(m.available_at, m.created_at) < %1$s AND (u.claim_no > 1 OR u.available_at < %1$s)',
                          p_expired_before)
            END
         || p_more_columns || '
            FROM unnest($1, $2, $3, $4, $5, $6)
                 WITH ORDINALITY AS u(id, claim_no, tries, available_at, key_id, previous_sequence, place)
            LEFT JOIN LATERAL (SELECT * FROM messages x WHERE x.id = u.id AND x.id BETWEEN $7 AND $8 OFFSET 0) m
              ON true
           ORDER BY u.place'
$$;

-- Takes the deliveries of one claim and writes their lease; the arguments are those of claim_batch.
CREATE OR REPLACE FUNCTION take_batch(
  p_destination_id    int,
  p_lease_id          uuid,
  p_relay_id          uuid,
  p_limit             int,
  p_max_bytes         bigint,
  p_lease_ms          int,
  p_tenant_ids        text[],
  p_namespace         text,
  p_scan_from_at      timestamptz,
  p_scan_from_id      uuid,
  p_lanes_first       boolean,
  p_after_tenant      text,
  p_after_lane_tenant text,
  p_one_per_key       boolean)
RETURNS taken
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_now             timestamptz := clock_timestamp();
  v_lease_ms        int := checked_number('p_lease_ms', p_lease_ms, 1, 604800000);
  v_destination     destinations;
  v_is_shared       boolean;
  v_has_keyed       boolean;
  v_has_quarantined boolean;
  v_taken           taken;
BEGIN
  SELECT * INTO v_destination FROM destinations WHERE id = p_destination_id;
  IF v_destination.paused_at IS NOT NULL THEN RETURN NULL; END IF;
  v_is_shared := p_tenant_ids IS NOT NULL
              OR (v_destination.fairness = 'tenant' AND has_fairness(v_destination));
  SELECT (SELECT true FROM lane_tickets t WHERE t.destination_id = p_destination_id LIMIT 1) IS TRUE
         OR (SELECT true
               FROM lanes l
              WHERE l.destination_id = p_destination_id
                AND l.available_at <= v_now
                AND l.available_at IS NOT NULL
                AND l.blocked_by IS NULL
              LIMIT 1) IS TRUE,
         (SELECT true
            FROM deliveries d
           WHERE d.destination_id = p_destination_id
             AND d.quarantined
           LIMIT 1) IS TRUE
    INTO v_has_keyed, v_has_quarantined;

  IF v_is_shared OR v_has_keyed OR v_has_quarantined THEN
    v_taken := claim_by_parts(v_destination, p_lease_id, p_limit, p_max_bytes, p_tenant_ids, p_namespace,
                              p_scan_from_at, p_scan_from_id, p_lanes_first, p_after_tenant, p_after_lane_tenant,
                              p_one_per_key, v_is_shared, v_has_keyed, v_has_quarantined);
  ELSE
    v_taken := claim_queue(p_destination_id, p_limit, p_max_bytes, true, p_namespace, p_scan_from_at, p_scan_from_id);
  END IF;
  IF v_taken.message_ids IS NULL THEN RETURN NULL; END IF;

  INSERT INTO leases (id, relay_id, claimed_at, expires_at, duration, remaining, destination_id, quarantined,
                      message_ids, claim_nos, tries, key_ids, sequences)
  VALUES (p_lease_id, p_relay_id, v_now, clock_timestamp() + v_lease_ms * interval '1 ms',
          v_lease_ms * interval '1 ms', cardinality(v_taken.message_ids), p_destination_id, v_taken.quarantined,
          v_taken.message_ids, v_taken.claim_nos, v_taken.tries, v_taken.key_ids, v_taken.sequences);
  RETURN v_taken;
END $$;

-- The claim of a destination that has more than messages without a key. p_is_shared: tenants share the claim.
-- p_has_keyed: lanes are due, or have tickets. p_has_quarantined: some messages are quarantined, perhaps not due yet.
-- The others are as in claim_batch.
CREATE OR REPLACE FUNCTION claim_by_parts(
  p_destination       destinations,
  p_lease_id          uuid,
  p_limit             int,
  p_max_bytes         bigint,
  p_tenant_ids        text[],
  p_namespace         text,
  p_scan_from_at      timestamptz,
  p_scan_from_id      uuid,
  p_lanes_first       boolean,
  p_after_tenant      text,
  p_after_lane_tenant text,
  p_one_per_key       boolean,
  p_is_shared         boolean,
  p_has_keyed         boolean,
  p_has_quarantined   boolean)
RETURNS taken
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_taken taken;
  v_room  int;
  v_bytes bigint;
BEGIN
  IF p_has_quarantined AND NOT p_lanes_first THEN
    v_taken := claim_quarantined(p_destination.id, p_lease_id, p_tenant_ids, p_namespace);
    IF v_taken.message_ids IS NOT NULL THEN RETURN v_taken; END IF;
  END IF;
  FOR v_part IN 1..2 LOOP
    v_room := p_limit - coalesce(cardinality(v_taken.message_ids), 0);
    v_bytes := p_max_bytes - coalesce(v_taken.bytes, 0);
    EXIT WHEN v_room <= 0;
    v_taken := join_taken(v_taken, CASE
      WHEN p_lanes_first = (v_part = 1) THEN
        CASE WHEN p_has_keyed THEN
          claim_keyed(p_destination, p_lease_id, v_room, v_bytes, v_taken.message_ids IS NULL, p_namespace,
                      p_one_per_key, p_is_shared, p_tenant_ids, p_after_lane_tenant)
        END
      WHEN p_is_shared THEN
        claim_queue_fairly(p_destination.id, v_room, v_bytes, v_taken.message_ids IS NULL, p_namespace,
                           p_tenant_ids, p_after_tenant)
      ELSE
        claim_queue(p_destination.id, v_room, v_bytes, v_taken.message_ids IS NULL, p_namespace,
                    p_scan_from_at, p_scan_from_id)
    END);
  END LOOP;
  IF v_taken.message_ids IS NULL AND p_has_quarantined AND p_lanes_first THEN
    v_taken := claim_quarantined(p_destination.id, p_lease_id, p_tenant_ids, p_namespace);
  END IF;
  RETURN v_taken;
END $$;

-- Appends one result to another. If only one of them comes from lanes, the other has no keys.
CREATE OR REPLACE FUNCTION join_taken(a taken, b taken)
RETURNS taken
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  v_no_keys_a bigint[];
  v_no_keys_b bigint[];
BEGIN
  IF b.message_ids IS NULL THEN RETURN a; END IF;
  IF a.message_ids IS NULL THEN RETURN b; END IF;
  v_no_keys_a := array_fill(NULL::bigint, ARRAY[cardinality(a.message_ids)]);
  v_no_keys_b := array_fill(NULL::bigint, ARRAY[cardinality(b.message_ids)]);
  a.key_ids := coalesce(a.key_ids, v_no_keys_a) || coalesce(b.key_ids, v_no_keys_b);
  a.sequences := coalesce(a.sequences, v_no_keys_a) || coalesce(b.sequences, v_no_keys_b);
  a.previous_sequences := coalesce(a.previous_sequences, v_no_keys_a) || coalesce(b.previous_sequences, v_no_keys_b);
  a.message_ids := a.message_ids || b.message_ids;
  a.claim_nos := a.claim_nos || b.claim_nos;
  a.tries := a.tries || b.tries;
  a.available_at := a.available_at || b.available_at;
  a.bytes := a.bytes + b.bytes;
  RETURN a;
END $$;

-- Claims messages for a worker in any language: first reaps expired leases, then claims by the destination's name.
-- Returns at most one message of each key, so a worker can send them in any order, or all at once, without breaking the
-- order of a key: the next message of a key comes after this one has ended. With fairness between tenants, each claim
-- continues after the tenant that came last in this session; the first claim begins with any tenant. Commit at once:
-- until then, other claims get nothing of the keys that this one has looked at (about four times max_messages, with
-- fairness at least 10,000; more if the first ones gave nothing).
CREATE OR REPLACE FUNCTION claim(
  destination    text,
  token          uuid,
  max_messages   int DEFAULT 100,
  tenant         text DEFAULT NULL,
  lease          interval DEFAULT '30 seconds',
  only_namespace text DEFAULT NULL)
RETURNS TABLE (
  message_id uuid, claim_no int, tries int, created_at timestamptz, sequence bigint, previous_sequence bigint,
  namespace text, topic text, tenant_id text, key text, dedupe_key text, aggregate_type text, aggregate_id text,
  headers jsonb, payload jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_destination destinations := find_destination(claim.destination);
  v_lease_id    uuid := new_id();
  v_row         record;
  v_unreadable  uuid[] := '{}';
  v_codes       text[] := '{}';
  v_limit       int := checked_number('max_messages', max_messages, 1, 10000);
  v_lease_ms    int := checked_interval('lease', lease, '1 millisecond', '7 days');
  v_is_fair     boolean := v_destination.fairness = 'tenant' AND tenant IS NULL;
  -- for messages without and with a key: the tenants that this session served last
  v_after       text;
  v_after_lane  text;
  v_last        text;
  v_last_lane   text;
BEGIN
  IF token IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22004',
      MESSAGE = 'token is null: give a UUID that names this worker, for example gen_random_uuid()';
  END IF;
  PERFORM reap();
  IF v_is_fair THEN
    v_after := last_served(v_destination.id, 'queue');
    v_after_lane := last_served(v_destination.id, 'lanes');
  END IF;
  FOR v_row IN
    SELECT *
      FROM claim_batch(v_destination.id, v_lease_id, token, v_limit, 64 * 1024 * 1024, v_lease_ms,
                       CASE WHEN tenant IS NOT NULL THEN ARRAY[tenant] END, only_namespace,
                       p_lanes_first => random() < 0.5, p_after_tenant => v_after, p_after_lane_tenant => v_after_lane,
                       p_one_per_key => true)
  LOOP
    IF v_is_fair AND v_row.key_id IS NULL THEN
      v_last := later_served(v_after, v_last, coalesce(v_row.tenant_id, ''));
    ELSIF v_is_fair THEN
      v_last_lane := later_served(v_after_lane, v_last_lane, coalesce(v_row.tenant_id, ''));
    END IF;
    IF v_row.payload IS NULL THEN
      v_unreadable := v_unreadable || v_row.message_id;
      v_codes := v_codes || CASE WHEN v_row.topic IS NULL THEN 'message_missing' ELSE 'too_large_to_read' END;
      CONTINUE;
    END IF;
    RETURN QUERY
      SELECT v_row.message_id, v_row.claim_no, v_row.tries, v_row.created_at, v_row.sequence, v_row.previous_sequence,
             v_row.namespace, v_row.topic, v_row.tenant_id, v_row.key, v_row.dedupe_key, v_row.aggregate_type,
             v_row.aggregate_id, v_row.headers, v_row.payload;
  END LOOP;
  IF v_last IS NOT NULL THEN PERFORM remember_served(v_destination.id, 'queue', v_last); END IF;
  IF v_last_lane IS NOT NULL THEN PERFORM remember_served(v_destination.id, 'lanes', v_last_lane); END IF;
  IF v_unreadable <> '{}' THEN
    PERFORM settle(v_lease_id, token, v_unreadable, NULL,
                   array_fill('reject'::outcome, ARRAY[cardinality(v_unreadable)]), p_error_codes => v_codes);
  END IF;
END $$;
