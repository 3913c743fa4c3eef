-- Enqueue: writes messages and their deliveries in the producer's own transaction, so a message exists if and only if
-- that transaction commits. The functions run with the rights of the schema's owner: a producer needs EXECUTE on them
-- and no other right.
--
-- A batch of any size takes a constant number of statements. Their plans are cached, because planning would cost more
-- than executing. For a single message, starting a statement is the largest cost.

-- The largest message that relays and workers read, in bytes of payload and headers as text: the sum of the upper
-- bounds of message_limits. No enqueued message is larger. Only the owner can write a larger row; it becomes a dead
-- letter unread, because a string of that size could crash the process that reads it.
CREATE OR REPLACE FUNCTION readable_bytes()
RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT 67108864 + 1048576
$$;

-- Validates a message: returns the first problem, or null. Keep it in step with src/core/message.ts, which checks the
-- same rules before the database is called, so that a refused message leaves the caller's transaction usable.
-- p_header_bytes and p_payload_bytes: the sizes as text.
CREATE OR REPLACE FUNCTION message_problem(
  p_topic          text,
  p_namespace      text,
  p_tenant_id      text,
  p_key            text,
  p_dedupe_key     text,
  p_aggregate_type text,
  p_aggregate_id   text,
  p_headers        jsonb,
  p_header_bytes   int,
  p_payload        jsonb,
  p_payload_bytes  int,
  p_delay_ms       double precision,
  p_available_at   timestamptz,
  p_limits         message_limits)
RETURNS text
LANGUAGE sql STABLE
AS $$
  SELECT CASE
    WHEN p_topic IS NULL OR p_topic = '' THEN
      'topic is empty: name what happened, for example user.registered'
    WHEN p_topic !~ '^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$' OR octet_length(p_topic) > 255 THEN
      format('topic "%s" is malformed: use words of letters, digits, _ and -, joined by . : or /, at most 255 bytes',
             left(p_topic, 60))
    WHEN p_namespace = '' THEN
      'namespace is empty: leave it out for the default one'
    WHEN p_namespace !~ '^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$' OR octet_length(p_namespace) > 255 THEN
      format('namespace "%s" is malformed: use words of letters, digits, _ and -, joined by . : or /, '
             'at most 255 bytes',
             left(p_namespace, 60))
    WHEN p_tenant_id = '' OR octet_length(p_tenant_id) > 255 THEN
      format('tenantId "%s" must have 1 to 255 bytes: leave it out if there is none', left(p_tenant_id, 60))
    WHEN p_key = '' OR octet_length(p_key) > 512 THEN
      format('key "%s" must have 1 to 512 bytes: leave it out if order does not matter', left(p_key, 60))
    WHEN p_dedupe_key = '' OR octet_length(p_dedupe_key) > 1024 THEN
      format('dedupeKey "%s" must have 1 to 1024 bytes: leave it out if there is none', left(p_dedupe_key, 60))
    WHEN p_tenant_id IS NOT NULL
         AND p_dedupe_key IS NOT NULL
         AND NOT starts_with(p_dedupe_key, p_tenant_id || '/') THEN
      format('dedupeKey "%s" must begin with the tenantId and a slash: "%s/..."',
             left(p_dedupe_key, 60), left(p_tenant_id, 60))
    WHEN p_aggregate_type = '' OR octet_length(p_aggregate_type) > 255 THEN
      format('aggregateType "%s" must have 1 to 255 bytes', left(p_aggregate_type, 60))
    WHEN p_aggregate_id = '' OR octet_length(p_aggregate_id) > 255 THEN
      format('aggregateId "%s" must have 1 to 255 bytes', left(p_aggregate_id, 60))
    WHEN (p_aggregate_type IS NULL) <> (p_aggregate_id IS NULL) THEN
      'aggregateType and aggregateId belong together: give both or neither'
    WHEN p_headers IS NOT NULL
         AND (jsonb_typeof(p_headers) <> 'object'
              OR jsonb_path_exists(p_headers, '$.* ? (@.type() != "string")')) THEN
      format('headers %s must be an object whose values are strings', left(p_headers::text, 60))
    WHEN p_header_bytes > p_limits.header_bytes THEN
      format('headers has %s bytes, the limit is %s: send less, '
             'or let the owner of the schema raise header_bytes in %I.message_limits',
             p_header_bytes, p_limits.header_bytes, current_schema())
    -- no subquery: with one, PostgreSQL would not inline this function
    WHEN jsonb_array_length(jsonb_path_query_array(p_headers, '$.*')) > 100 THEN
      'headers has more than 100 entries: put them into the payload'
    WHEN p_payload_bytes > p_limits.payload_bytes THEN
      format('payload has %s bytes, the limit is %s: store it elsewhere and send its address, '
             'or let the owner of the schema raise payload_bytes in %I.message_limits',
             p_payload_bytes, p_limits.payload_bytes, current_schema())
    -- a level takes at least eight bytes, so a payload of 1600 bytes or less cannot have more than 200
    WHEN pg_column_size(p_payload) > 1600
         AND jsonb_path_exists(p_payload, 'strict $.**{200} ? (@.type() == "object" || @.type() == "array")') THEN
      'payload is nested deeper than 200 levels: flatten it, or send it as a string'
    WHEN p_delay_ms IS NOT NULL AND p_available_at IS NOT NULL THEN
      'delayMs and availableAt exclude each other: give one'
    WHEN p_delay_ms < 0 OR p_delay_ms > 315360000000 THEN
      format('delayMs %s must be a number between 0 and ten years', p_delay_ms)
    WHEN NOT isfinite(p_available_at) THEN
      format('availableAt %s is not a date: give an ISO 8601 text', p_available_at)
    -- in ISO 8601, years have four digits: JavaScript writes other years as +010000, which PostgreSQL cannot read
    WHEN extract(year FROM p_available_at AT TIME ZONE 'UTC') NOT BETWEEN 1 AND 9999 THEN
      format('availableAt is in the year %s: give one from 1 to 9999',
             extract(year FROM p_available_at AT TIME ZONE 'UTC'))
  END
$$;

-- Explains why messages could not be parsed: returns the first problem, or null. Called only after parsing has failed,
-- so checking one message at a time costs nothing in the usual case.
CREATE OR REPLACE FUNCTION unreadable_message(p_messages jsonb)
RETURNS text
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  v_message jsonb;
  v_index   bigint;
BEGIN
  FOR v_message, v_index IN
    SELECT m.value, m.position - 1
      FROM jsonb_array_elements(p_messages) WITH ORDINALITY m(value, position)
  LOOP
    IF jsonb_typeof(v_message) <> 'object' THEN
      RETURN format('messages[%s] %s is not an object: give {"topic": ..., "payload": ...}',
                    v_index, left(v_message::text, 60));
    END IF;
    BEGIN
      PERFORM (v_message ->> 'delayMs')::double precision;
    EXCEPTION WHEN data_exception THEN
      RETURN format('delayMs %s must be a number between 0 and ten years', left((v_message -> 'delayMs')::text, 60));
    END;
    BEGIN
      PERFORM (v_message ->> 'availableAt')::timestamptz;
    EXCEPTION WHEN data_exception THEN
      RETURN format('availableAt %s is not a date: give an ISO 8601 text',
                    left((v_message -> 'availableAt')::text, 60));
    END;
  END LOOP;
  RETURN NULL;
END $$;

-- The destinations that the routes select for a topic, namespace and tenant. Each destination is returned once, even if
-- several routes lead to it. fair_tenant: the tenant name under which the delivery waits. split_by: null, or the name
-- of what splits the route (add_split_deliveries); a split route has a row of its own. filter: which payloads the
-- destination wants; null: all. The function has no SET clause, so the planner can inline it into the calling
-- statement.
CREATE OR REPLACE FUNCTION targets_of(p_topic text, p_namespace text, p_tenant_id text)
RETURNS TABLE (destination_id int, fair_tenant text, split_by text, filter text)
LANGUAGE sql STABLE ROWS 1
AS $$
  SELECT r.destination_id, fair_tenant(d.fairness, p_tenant_id), r.split_by, d.filter
    FROM (SELECT x.destination_id, x.split_by
            -- two halves, each an index scan: routes of other tenants are skipped even before the table is analyzed
            FROM (SELECT y.destination_id, y.split_by
                    FROM routes y
                   WHERE y.tenant_id IS NULL
                     AND route_matches(y.topic, y.namespace, NULL, p_topic, p_namespace, p_tenant_id)
                  UNION ALL
                  SELECT y.destination_id, y.split_by
                    FROM routes y
                   WHERE y.tenant_id = p_tenant_id
                     AND route_matches(y.topic, y.namespace, NULL, p_topic, p_namespace, p_tenant_id)) x
           GROUP BY x.destination_id, x.split_by) r
    JOIN destinations d ON d.id = r.destination_id
$$;

-- Refuses names that are not fields of a message.
CREATE OR REPLACE FUNCTION refuse_unknown_fields(p_messages jsonb)
RETURNS void
LANGUAGE plpgsql STABLE
AS $$
DECLARE
  v_fields text[] := '{topic,payload,namespace,tenantId,key,dedupeKey,aggregateType,aggregateId,headers,delayMs,'
                     'availableAt}';
  v_name   text;
BEGIN
  SELECT k.name
    INTO v_name
    FROM jsonb_array_elements(p_messages) m,
         LATERAL jsonb_object_keys(CASE WHEN jsonb_typeof(m) = 'object' THEN m - v_fields ELSE '{}' END) k(name)
   LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('%s is not a field of a message: use %s', v_name, array_to_string(v_fields, ', ')),
      HINT = 'Nothing was enqueued.';
  END IF;
END $$;

-- Whether a destination with this filter wants the payload; null: it wants all. A field that is missing, or of another
-- type, is no error.
CREATE OR REPLACE FUNCTION is_wanted(p_payload jsonb, p_filter text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT p_filter IS NULL OR p_payload @? p_filter::jsonpath
$$;

-- Adds a delivery of one message for each destination that its routes select, or lists it as unrouted. targets: these
-- destinations; unrouted: the id that was listed. A message with a split route is left to add_split_deliveries, because
-- another system may send it. A message that only filters have kept from its destinations is not unrouted.
CREATE OR REPLACE FUNCTION add_delivery(
  p_message messages, p_available_at timestamptz, p_delay_ms bigint, OUT targets int[], OUT unrouted uuid[])
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
  v_fair_tenants text[];
  v_split_by     text[];
  v_filters      text[];
  v_is_filtered  boolean := false;
BEGIN
  SELECT array_agg(t.destination_id), array_agg(t.fair_tenant), array_agg(t.split_by), array_agg(t.filter)
    INTO targets, v_fair_tenants, v_split_by, v_filters
    FROM targets_of(p_message.topic, p_message.namespace, p_message.tenant_id) t;
  IF array_remove(v_filters, NULL) <> '{}' THEN
    v_is_filtered := true;
    SELECT array_agg(t.destination_id), array_agg(t.fair_tenant), array_agg(t.split_by)
      INTO targets, v_fair_tenants, v_split_by
      FROM unnest(targets, v_fair_tenants, v_split_by, v_filters) t(destination_id, fair_tenant, split_by, filter)
     WHERE is_wanted(p_message.payload, t.filter);
  END IF;
  IF array_remove(v_split_by, NULL) <> '{}' THEN
    targets := add_split_deliveries(ARRAY[p_message], ARRAY[p_available_at], ARRAY[p_delay_ms], jsonb_build_array(
      split_kind(p_message.namespace, p_message.topic, p_message.tenant_id, targets, v_split_by)));
  ELSIF targets IS NOT NULL THEN
    INSERT INTO deliveries (message_id, destination_id, available_at, delay_ms, bytes, namespace, tenant_id, key_id,
                            sequence)
    SELECT p_message.id, t.destination_id, p_available_at, p_delay_ms, p_message.bytes, p_message.namespace,
           t.fair_tenant, p_message.key_id, p_message.sequence
      FROM unnest(targets, v_fair_tenants) t(destination_id, fair_tenant);
    IF p_message.key_id IS NOT NULL THEN
      INSERT INTO lane_tickets (destination_id, key_id)
      SELECT d, p_message.key_id FROM unnest(targets) d;
    END IF;
  ELSIF NOT v_is_filtered AND NOT has_cursor(p_message.topic, p_message.namespace, p_message.tenant_id) THEN
    INSERT INTO unrouted_messages (message_id, key_id, sequence, available_at, delay_ms)
    VALUES (p_message.id, p_message.key_id, p_message.sequence,
            CASE WHEN p_delay_ms IS NOT NULL THEN p_available_at END, p_delay_ms);
    unrouted := ARRAY[p_message.id];
  END IF;
END $$;

-- The same for a batch. Routes are looked up once for each combination of namespace, topic and tenant.
CREATE OR REPLACE FUNCTION add_deliveries(
  p_messages messages[], p_available timestamptz[], p_delays bigint[], OUT targets int[], OUT unrouted uuid[])
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  v_split    jsonb;
  v_filtered jsonb;
BEGIN
  WITH kinds AS (
    SELECT m.namespace, m.topic, m.tenant_id,
           array_agg(m.id) AS ids,
           array_agg(m.available_at) AS available,
           array_agg(m.delay_ms) AS delays,
           array_agg(m.key_id) AS key_ids,
           array_agg(m.sequence) AS sequences,
           array_agg(m.bytes) AS sizes
      FROM ROWS FROM (unnest(p_messages), unnest(p_available), unnest(p_delays))
           AS m(id, created_at, given_at, transaction_id, key_id, sequence, bytes, namespace, topic, tenant_id, key,
                dedupe_key, aggregate_type, aggregate_id, headers, payload, available_at, delay_ms)
     GROUP BY m.namespace, m.topic, m.tenant_id),
  routed AS (
    SELECT k.*, t.destination_id, t.fair_tenant, t.split_by, t.filter, t.is_split, t.is_filtered
      FROM kinds k
      LEFT JOIN LATERAL (
             SELECT t.*, count(t.split_by) OVER () > 0 AS is_split, count(t.filter) OVER () > 0 AS is_filtered
               FROM targets_of(k.topic, k.namespace, k.tenant_id) t) t ON true),
  added AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, delay_ms, bytes, namespace, tenant_id, key_id,
                            sequence)
    SELECT m.id, r.destination_id, m.available_at, m.delay_ms, m.bytes, r.namespace, r.fair_tenant, m.key_id,
           m.sequence
      FROM routed r,
           ROWS FROM (unnest(r.ids), unnest(r.available), unnest(r.delays), unnest(r.sizes), unnest(r.key_ids),
                      unnest(r.sequences))
           AS m(id, available_at, delay_ms, bytes, key_id, sequence)
     WHERE NOT r.is_split
       AND NOT r.is_filtered
     ORDER BY m.id
    RETURNING destination_id, key_id),
  tickets AS (
    INSERT INTO lane_tickets (destination_id, key_id)
    SELECT DISTINCT d.destination_id, d.key_id FROM added d WHERE d.key_id IS NOT NULL),
  unrouted AS (
    INSERT INTO unrouted_messages (message_id, key_id, sequence, available_at, delay_ms)
    SELECT m.id, m.key_id, m.sequence, CASE WHEN m.delay_ms IS NOT NULL THEN m.available_at END, m.delay_ms
      FROM routed r,
           ROWS FROM (unnest(r.ids), unnest(r.key_ids), unnest(r.sequences), unnest(r.available), unnest(r.delays))
           AS m(id, key_id, sequence, available_at, delay_ms)
     WHERE r.destination_id IS NULL
       AND NOT has_cursor(r.topic, r.namespace, r.tenant_id)
    RETURNING message_id)
  SELECT (SELECT array_agg(DISTINCT destination_id) FROM added),
         (SELECT array_agg(message_id) FROM unrouted),
         (SELECT jsonb_agg(s.kind)
            FROM (SELECT split_kind(namespace, topic, tenant_id, array_agg(destination_id), array_agg(split_by)) AS kind
                    FROM routed
                   WHERE is_split
                     AND NOT is_filtered
                   GROUP BY namespace, topic, tenant_id) s),
         (SELECT jsonb_agg(jsonb_build_object(
                   'namespace', namespace, 'topic', topic, 'tenantId', tenant_id, 'destinationId', destination_id,
                   'fairTenant', fair_tenant, 'splitBy', split_by, 'filter', filter, 'isSplit', is_split))
            FROM routed
           WHERE is_filtered)
    INTO targets, unrouted, v_split, v_filtered;
  IF v_split IS NOT NULL THEN
    targets := array_cat(targets, add_split_deliveries(p_messages, p_available, p_delays, v_split));
  END IF;
  IF v_filtered IS NOT NULL THEN
    targets := array_cat(targets, add_filtered_deliveries(p_messages, p_available, p_delays, v_filtered));
  END IF;
END $$;

-- Adds the deliveries of messages with a destination that has a filter; returns the destinations. p_routed: these
-- destinations, for each combination of namespace, topic and tenant, as add_deliveries has read them: a second look
-- could find other routes, and lose a message between the two.
CREATE OR REPLACE FUNCTION add_filtered_deliveries(
  p_messages messages[], p_available timestamptz[], p_delays bigint[], p_routed jsonb)
RETURNS int[]
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  v_targets int[];
  v_places  bigint[];
  v_kinds   jsonb[];
BEGIN
  WITH wanted AS MATERIALIZED (
    SELECT m.place, m.id, m.available_at, m.delay_ms, m.bytes, m.key_id, m.sequence, r.namespace, r.topic,
           r."tenantId" AS tenant_id, r."destinationId" AS destination_id, r."fairTenant" AS fair_tenant,
           r."splitBy" AS split_by, r."isSplit" AS is_split
      FROM jsonb_to_recordset(p_routed) AS r(
             namespace text, topic text, "tenantId" text, "destinationId" int, "fairTenant" text, "splitBy" text,
             filter text, "isSplit" boolean)
      JOIN ROWS FROM (unnest(p_messages), unnest(p_available), unnest(p_delays)) WITH ORDINALITY
           AS m(id, created_at, given_at, transaction_id, key_id, sequence, bytes, namespace, topic, tenant_id, key,
                dedupe_key, aggregate_type, aggregate_id, headers, payload, available_at, delay_ms, place)
        ON m.topic = r.topic
       AND m.namespace = r.namespace
       AND m.tenant_id IS NOT DISTINCT FROM r."tenantId"
     WHERE is_wanted(m.payload, r.filter)),
  added AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, delay_ms, bytes, namespace, tenant_id, key_id,
                            sequence)
    SELECT w.id, w.destination_id, w.available_at, w.delay_ms, w.bytes, w.namespace, w.fair_tenant, w.key_id,
           w.sequence
      FROM wanted w
     WHERE NOT w.is_split
     ORDER BY w.id
    RETURNING destination_id, key_id),
  tickets AS (
    INSERT INTO lane_tickets (destination_id, key_id)
    SELECT DISTINCT a.destination_id, a.key_id FROM added a WHERE a.key_id IS NOT NULL),
  -- messages that another system may send, one by one: each has its own destinations
  split AS (
    SELECT w.place,
           split_kind(w.namespace, w.topic, w.tenant_id, array_agg(w.destination_id), array_agg(w.split_by)) AS kind
      FROM wanted w
     WHERE w.is_split
     GROUP BY w.place, w.namespace, w.topic, w.tenant_id)
  SELECT (SELECT array_agg(DISTINCT a.destination_id) FROM added a),
         (SELECT array_agg(s.place ORDER BY s.place) FROM split s),
         (SELECT array_agg(s.kind ORDER BY s.place) FROM split s)
    INTO v_targets, v_places, v_kinds;
  FOR i IN 1..coalesce(cardinality(v_places), 0) LOOP
    v_targets := array_cat(v_targets, add_split_deliveries(
      p_messages[v_places[i]:v_places[i]], p_available[v_places[i]:v_places[i]], p_delays[v_places[i]:v_places[i]],
      jsonb_build_array(v_kinds[i])));
  END LOOP;
  RETURN v_targets;
END $$;

-- Writes a batch of messages and their deliveries. ids: of the messages, in the order of the input; for a duplicate,
-- the id of the first message with its dedupe key. sequences: null, unless one has a sequence. duplicates: null, unless
-- a message has a dedupe key. The arguments are those of enqueue_many.
CREATE OR REPLACE FUNCTION add_messages(
  p_messages jsonb, p_names_checked boolean, p_unrouted text,
  OUT ids uuid[], OUT sequences bigint[], OUT duplicates boolean[])
LANGUAGE plpgsql VOLATILE
AS $$
#variable_conflict use_column
DECLARE
  v_limits    message_limits;
  v_messages  messages[];
  v_numbered  messages[];
  v_available timestamptz[];
  v_delays    bigint[];
  v_problem   text;
  v_deduped   boolean;
  v_keyed     boolean;
  -- for each message of the input, the first message with its dedupe key
  v_taken     record;
  v_winners   uuid[];
  v_routed    record;
  v_targets   int[];
  v_ahead     boolean := is_uuidv7_ahead();
  v_rule      text := coalesce(p_unrouted, nullif(current_setting('waybill.unrouted', true), ''), 'keep');
BEGIN
  IF jsonb_typeof(p_messages) IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      HINT = 'Nothing was enqueued.',
      MESSAGE = format('messages %s is not a list: give a JSON array such as [{"topic": "user.registered"}]',
                       coalesce(left(p_messages::text, 60), 'null'));
  END IF;

  -- STRICT: if the row was deleted, enqueue fails; deleting it must not lift the limits
  SELECT * INTO STRICT v_limits FROM message_limits;

  IF NOT p_names_checked THEN PERFORM refuse_unknown_fields(p_messages); END IF;

  -- This exception block costs half a microsecond and no transaction id. The handler finds out why parsing failed.
  BEGIN
    SELECT array_agg(ROW(batch_id(v_ahead), clock_timestamp(), m."availableAt", pg_current_xact_id(), NULL, NULL,
                         m.payload_bytes + m.header_bytes, m.namespace, m.topic, m."tenantId", m.key, m."dedupeKey",
                         m."aggregateType", m."aggregateId", m.headers, m.payload)::messages),
           array_agg(CASE
             WHEN m.problem IS NULL
             THEN coalesce(m."availableAt", clock_timestamp() + coalesce(m."delayMs", 0) * interval '1 ms')
           END),
           array_agg(CASE
             -- the producer gave the time itself
             WHEN m."availableAt" IS NOT NULL THEN -1
             WHEN m.problem IS NULL AND m."delayMs" >= 1 THEN m."delayMs"::bigint
           END),
           bool_or(m."dedupeKey" IS NOT NULL),
           bool_or(m.key IS NOT NULL),
           (array_agg(m.problem) FILTER (WHERE m.problem IS NOT NULL))[1]
      INTO v_messages, v_available, v_delays, v_deduped, v_keyed, v_problem
      FROM (SELECT s.*,
                   message_problem(s.topic, s.namespace, s."tenantId", s.key, s."dedupeKey", s."aggregateType",
                                   s."aggregateId", s.headers, s.header_bytes, s.payload, s.payload_bytes, s."delayMs",
                                   s."availableAt", v_limits) AS problem
              FROM (SELECT r.topic, coalesce(r.namespace, 'default') AS namespace, r."tenantId", r.key, r."dedupeKey",
                           r."aggregateType", r."aggregateId", r.headers, coalesce(r.payload, 'null') AS payload,
                           r."delayMs", r."availableAt", coalesce(octet_length(r.headers::text), 0) AS header_bytes,
                           coalesce(octet_length(r.payload::text), 4) AS payload_bytes
                      FROM jsonb_to_recordset(p_messages) AS r(
                             topic text, payload jsonb, namespace text, "tenantId" text, key text, "dedupeKey" text,
                             "aggregateType" text, "aggregateId" text, headers jsonb, "delayMs" double precision,
                             "availableAt" timestamptz)
                    -- OFFSET 0, here and below: without it, sizes and problem would be computed again at each use
                    OFFSET 0) s
            OFFSET 0) m;
  EXCEPTION
    WHEN data_exception THEN
      v_problem := coalesce(unreadable_message(p_messages), SQLERRM);
    WHEN program_limit_exceeded THEN
      v_problem := 'payload or headers are longer than the longest text of PostgreSQL: '
                   'store them elsewhere and send their address';
  END;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was enqueued.';
  END IF;
  IF v_messages IS NULL THEN RETURN; END IF;
  IF v_rule <> 'keep' THEN PERFORM refuse_unrouted(p_messages, v_rule); END IF;
  -- In REPEATABLE READ and SERIALIZABLE the snapshot may be older than the closing of a cursor. Closing one updates
  -- this row (end_older_snapshots), so such a producer fails here and can try again.
  IF current_setting('transaction_isolation') <> 'read committed' AND EXISTS (SELECT FROM cursors) THEN
    PERFORM FROM owners o WHERE o.name = 'endpoints' FOR SHARE;
  END IF;

  IF v_deduped THEN
    v_taken := take_dedupe_keys(v_messages);
    v_winners := v_taken.winners;
    v_available := ARRAY (
      SELECT v_available[i]
        FROM generate_subscripts(v_messages, 1) i
       WHERE (v_messages[i]).id = v_winners[i]
       ORDER BY i);
    v_delays := ARRAY (
      SELECT v_delays[i]
        FROM generate_subscripts(v_messages, 1) i
       WHERE (v_messages[i]).id = v_winners[i]
       ORDER BY i);
    v_messages := ARRAY (
      SELECT v_messages[i]
        FROM generate_subscripts(v_messages, 1) i
       WHERE (v_messages[i]).id = v_winners[i]
       ORDER BY i);
  END IF;

  -- After the dedupe keys: a duplicate must not use a number, and all producers must lock in the same order.
  IF v_keyed THEN
    v_numbered := number_messages(v_messages);
    IF v_deduped THEN v_winners := move_dedupe_keys(v_winners, v_messages, v_numbered); END IF;
    v_messages := v_numbered;
  END IF;

  -- the usual case is one message: its small statements start faster than the large ones for batches
  IF cardinality(v_messages) = 1 THEN
    INSERT INTO messages SELECT (v_messages[1]).*;
    ids := ARRAY[(v_messages[1]).id];
    IF v_keyed THEN sequences := ARRAY[(v_messages[1]).sequence]; END IF;
    v_routed := add_delivery(v_messages[1], v_available[1], v_delays[1]);
  ELSE
    WITH stored AS (
      INSERT INTO messages
      SELECT m.* FROM unnest(v_messages) m
      RETURNING id, sequence)
    SELECT array_agg(s.id), CASE WHEN v_keyed THEN array_agg(s.sequence) END
      INTO ids, sequences
      FROM stored s;
    v_routed := add_deliveries(v_messages, v_available, v_delays);
  END IF;

  -- The first routes of an owner may have been added while the insert waited: see route_first.
  v_targets := v_routed.targets;
  IF v_routed.unrouted IS NOT NULL THEN
    v_targets := array_cat(v_targets, route_now(v_messages, v_routed.unrouted, v_available, v_delays));
  END IF;
  IF v_targets IS NOT NULL THEN PERFORM notify_relays(v_targets); END IF;

  IF v_deduped THEN
    SELECT array_agg(r.id), CASE WHEN count(r.sequence) > 0 THEN array_agg(r.sequence) END, array_agg(r.duplicate)
      INTO ids, sequences, duplicates
      FROM answer_repeats(v_winners, v_taken.sequences, v_messages) r;
  END IF;
END $$;

-- Enqueues a batch. Returns one row per message, in the order of the input. A duplicate returns the id and the sequence
-- of the first message with its dedupe key, for as long as the key is kept, which may be longer than the message.
-- p_messages: a JSON array of {topic, payload, namespace, tenantId, key, dedupeKey, aggregateType, aggregateId,
-- headers, delayMs, availableAt}. It is one JSON text because every driver binds that parameter alike.
-- p_names_checked: the caller has checked the field names already.
-- p_unrouted: 'keep' or 'refuse' messages that no route and no cursor wants; null: as the setting waybill.unrouted
-- says, or keep.
CREATE OR REPLACE FUNCTION enqueue_many(
  p_messages      jsonb,
  p_names_checked boolean DEFAULT false,
  p_unrouted      text DEFAULT NULL)
RETURNS TABLE (id uuid, sequence bigint, duplicate boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
  v_added record := add_messages(p_messages, p_names_checked, p_unrouted);
BEGIN
  RETURN QUERY
    SELECT a.id, a.sequence, coalesce(a.duplicate, false)
      FROM unnest(v_added.ids, v_added.sequences, v_added.duplicates) a(id, sequence, duplicate);
END $$;

-- Enqueues a batch for the outbox of the package, which has checked the field names: one text in, one text out, because
-- that is the cheapest statement to plan and to answer. Returns JSON: {"ids": [...]}; with sequences (as texts, because
-- JSON readers round large numbers) if a message has one, and duplicates if one has a dedupe key. With
-- p_unrouted = 'refuse' and a message that no route and no cursor wants, nothing is enqueued and the answer is
-- {"unrouted": {"position": ..., "topic": ..., "namespace": ..., "tenant": ...}}: an error would abort the caller's
-- transaction. Only this argument does so; with the setting waybill.unrouted it is an error. add_messages looks again,
-- because a route may be removed in between.
CREATE OR REPLACE FUNCTION enqueue_text(p_messages text, p_unrouted text DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
DECLARE
  v_messages jsonb := p_messages::jsonb;
  v_refused  jsonb;
  v_added    record;
BEGIN
  IF p_unrouted = 'refuse' THEN
    SELECT to_jsonb(u) INTO v_refused FROM first_unrouted(v_messages) u;
    IF v_refused IS NOT NULL THEN RETURN jsonb_build_object('unrouted', v_refused); END IF;
  END IF;
  v_added := add_messages(v_messages, true, p_unrouted);
  RETURN '{"ids":' || coalesce(to_json(v_added.ids)::text, '[]')
         || coalesce(',"sequences":' || to_json(v_added.sequences::text[])::text, '')
         || coalesce(',"duplicates":' || to_json(v_added.duplicates)::text, '') || '}';
END $$;

-- Enqueues one message with named arguments, for psql, triggers and clients in any language. unrouted => 'refuse' makes
-- a message that no route and no cursor wants an error.
CREATE OR REPLACE FUNCTION enqueue(
  topic          text,
  payload        jsonb DEFAULT NULL,
  namespace      text DEFAULT NULL,
  tenant_id      text DEFAULT NULL,
  key            text DEFAULT NULL,
  dedupe_key     text DEFAULT NULL,
  aggregate_type text DEFAULT NULL,
  aggregate_id   text DEFAULT NULL,
  headers        jsonb DEFAULT NULL,
  delay          interval DEFAULT NULL,
  available_at   timestamptz DEFAULT NULL,
  unrouted       text DEFAULT NULL,
  OUT id         uuid,
  OUT sequence   bigint,
  OUT duplicate  boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT e.id, e.sequence, e.duplicate
    FROM enqueue_many(jsonb_build_array(jsonb_build_object(
           'topic', topic, 'payload', payload, 'namespace', namespace, 'tenantId', tenant_id, 'key', key,
           'dedupeKey', dedupe_key, 'aggregateType', aggregate_type, 'aggregateId', aggregate_id, 'headers', headers,
           'delayMs', CASE WHEN delay IS NOT NULL THEN checked_interval('delay', delay, '0', '10 years') END,
           'availableAt', available_at)),
           p_unrouted => unrouted) e
$$;
