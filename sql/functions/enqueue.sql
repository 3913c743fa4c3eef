-- Enqueue: the producer's half. It runs inside the producer's transaction, so the message exists if
-- and only if the transaction commits. It runs with the owner's rights: producers need EXECUTE here
-- and nothing else. A batch of any size is a constant number of statements, and their plans are made once:
-- planning would cost more than the work. For a single message, to begin a statement costs more than the rest.

-- The first thing wrong with a message, or null. Kept in step with src/model/message.ts, which says the
-- same before the database is asked, so that a refusal there leaves the caller's transaction usable.
CREATE OR REPLACE FUNCTION message_problem(
  p_topic text, p_namespace text, p_tenant_id text, p_key text, p_dedupe_key text,
  p_aggregate_type text, p_aggregate_id text, p_headers jsonb, p_payload jsonb,
  p_delay_ms double precision, p_available_at timestamptz, p_max_payload_bytes int)
RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE
    WHEN p_topic IS NULL OR p_topic = '' THEN 'topic is empty: name what happened, for example user.registered'
    WHEN p_topic !~ '^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$' OR octet_length(p_topic) > 255 THEN
      format('topic "%s" is malformed: use words of letters, digits, _ and -, joined by . : or /, at most 255 bytes', left(p_topic, 60))
    WHEN p_namespace = '' THEN 'namespace is empty: leave it out for the default one'
    WHEN p_namespace !~ '^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$' OR octet_length(p_namespace) > 255 THEN
      format('namespace "%s" is malformed: use words of letters, digits, _ and -, joined by . : or /, at most 255 bytes', left(p_namespace, 60))
    WHEN p_tenant_id = '' OR octet_length(p_tenant_id) > 255 THEN
      format('tenantId "%s" must have 1 to 255 bytes: leave it out if there is none', left(p_tenant_id, 60))
    WHEN p_key = '' OR octet_length(p_key) > 512 THEN
      format('key "%s" must have 1 to 512 bytes: leave it out if order does not matter', left(p_key, 60))
    WHEN p_dedupe_key = '' OR octet_length(p_dedupe_key) > 1024 THEN
      format('dedupeKey "%s" must have 1 to 1024 bytes: leave it out if there is none', left(p_dedupe_key, 60))
    WHEN p_tenant_id IS NOT NULL AND p_dedupe_key IS NOT NULL AND NOT starts_with(p_dedupe_key, p_tenant_id || '/') THEN
      format('dedupeKey "%s" must begin with the tenantId and a slash: "%s/..."', left(p_dedupe_key, 60), left(p_tenant_id, 60))
    WHEN p_aggregate_type = '' OR octet_length(p_aggregate_type) > 255 THEN
      format('aggregateType "%s" must have 1 to 255 bytes', left(p_aggregate_type, 60))
    WHEN p_aggregate_id = '' OR octet_length(p_aggregate_id) > 255 THEN
      format('aggregateId "%s" must have 1 to 255 bytes', left(p_aggregate_id, 60))
    WHEN (p_aggregate_type IS NULL) <> (p_aggregate_id IS NULL) THEN
      'aggregateType and aggregateId belong together: give both or neither'
    WHEN p_headers IS NOT NULL AND (jsonb_typeof(p_headers) <> 'object'
         OR jsonb_path_exists(p_headers, '$.* ? (@.type() != "string")')) THEN
      format('headers %s must be an object whose values are strings', left(p_headers::text, 60))
    WHEN p_max_payload_bytes > 0 AND octet_length(p_payload::text) > p_max_payload_bytes THEN
      format('payload has %s bytes, the limit is %s: store it elsewhere and send its address, or raise maxPayloadBytes',
             octet_length(p_payload::text), p_max_payload_bytes)
    -- a level takes eight bytes at least: what is shorter need not be looked through
    WHEN p_max_payload_bytes > 0 AND pg_column_size(p_payload) > 1600
         AND jsonb_path_exists(p_payload, 'strict $.**{200} ? (@.type() == "object" || @.type() == "array")') THEN
      'payload is nested deeper than 200 levels: flatten it, or send it as a string'
    WHEN p_delay_ms IS NOT NULL AND p_available_at IS NOT NULL THEN 'delayMs and availableAt exclude each other: give one'
    WHEN p_delay_ms < 0 OR p_delay_ms > 315360000000 THEN format('delayMs %s must be a number between 0 and ten years', p_delay_ms)
    WHEN NOT isfinite(p_available_at) THEN format('availableAt %s is not a date: give an ISO 8601 text', p_available_at)
  END
$$;

-- What keeps messages from being read at all, or null. Asked only when reading them has failed, and so free
-- to try one after the other.
CREATE OR REPLACE FUNCTION unreadable_message(p_messages jsonb) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
  v_message jsonb;
  v_index   bigint;
BEGIN
  FOR v_message, v_index IN SELECT m.value, m.position - 1 FROM jsonb_array_elements(p_messages) WITH ORDINALITY m(value, position)
  LOOP
    IF jsonb_typeof(v_message) <> 'object' THEN
      RETURN format('messages[%s] %s is not an object: give {"topic": ..., "payload": ...}', v_index, left(v_message::text, 60));
    END IF;
    BEGIN
      PERFORM (v_message ->> 'delayMs')::double precision;
    EXCEPTION WHEN data_exception THEN
      RETURN format('delayMs %s must be a number between 0 and ten years', left((v_message -> 'delayMs')::text, 60));
    END;
    BEGIN
      PERFORM (v_message ->> 'availableAt')::timestamptz;
    EXCEPTION WHEN data_exception THEN
      RETURN format('availableAt %s is not a date: give an ISO 8601 text', left((v_message -> 'availableAt')::text, 60));
    END;
  END LOOP;
  RETURN NULL;
END $$;

-- Where messages of a kind go: each destination once, though several routes may lead there; the share of them that goes,
-- in hundredths of a percent; and under whose name they wait there. It has no settings of its own, so that it becomes a
-- part of the statement that asks.
CREATE OR REPLACE FUNCTION targets_of(p_topic text, p_namespace text, p_tenant_id text)
RETURNS TABLE (destination_id smallint, share int, turn text) LANGUAGE sql STABLE ROWS 1 AS $$
  SELECT r.destination_id, r.share, turn_of(d.fairness, p_tenant_id)
    FROM (SELECT coalesce(o.shadow_destination_id, x.destination_id) AS destination_id, max(coalesce(o.share, 10000)) AS share
            -- in two halves, for the index: the routes of other tenants are not looked at, also before statistics say so
            FROM (SELECT y.destination_id, y.rollout FROM routes y
                   WHERE y.tenant_id IS NULL AND route_matches(y.topic, y.namespace, NULL, p_topic, p_namespace, p_tenant_id)
                  UNION ALL
                  SELECT y.destination_id, y.rollout FROM routes y
                   WHERE y.tenant_id = p_tenant_id AND route_matches(y.topic, y.namespace, NULL, p_topic, p_namespace, p_tenant_id)) x
            LEFT JOIN LATERAL rollout_state(x.rollout) o ON true
           GROUP BY 1) r
    JOIN destinations d ON d.id = r.destination_id
$$;

-- Whether a message is in the share of a rollout that goes to the new side.
CREATE OR REPLACE FUNCTION goes_there(p_share int, p_key text, p_id uuid) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
  SELECT p_share = 10000 OR rollout_bucket(coalesce(p_key, p_id::text)) < p_share
$$;

-- p_messages: a JSON array of {topic, payload, namespace, tenantId, key, dedupeKey, aggregateType,
-- aggregateId, headers, delayMs, availableAt}. One JSON text is the one parameter that every driver
-- binds alike. Answers one row per message, in order; a duplicate carries the id and the
-- sequence of the first message.
-- p_max_payload_bytes: null for the setting waybill.max_payload_bytes or 1 MiB, 0 for a caller that has measured.
CREATE OR REPLACE FUNCTION enqueue_many(p_messages jsonb, p_max_payload_bytes int DEFAULT NULL)
RETURNS TABLE (id uuid, sequence bigint, duplicate boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET jit = off AS $$
DECLARE
  v_setting   text := nullif(current_setting('waybill.max_payload_bytes', true), '');
  v_limit     int;
  v_fields    text[] := '{topic,payload,namespace,tenantId,key,dedupeKey,aggregateType,aggregateId,headers,delayMs,availableAt}';
  v_messages  messages[];
  v_numbered  messages[];
  v_available timestamptz[];
  v_problem   text;
  v_deduped   boolean;
  v_keyed     boolean;
  v_winners   uuid[];
  v_message   messages;
  v_routed    boolean;
  v_targets   smallint[];
  v_turns     text[];
BEGIN
  IF jsonb_typeof(p_messages) IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', HINT = 'Nothing was enqueued.', MESSAGE = format(
      'messages %s is not a list: give a JSON array such as [{"topic": "user.registered"}]', coalesce(left(p_messages::text, 60), 'null'));
  END IF;

  IF p_max_payload_bytes IS NULL AND v_setting !~ '^[0-9]{1,9}$' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('the setting waybill.max_payload_bytes is "%s": give a number of bytes', left(v_setting, 60));
  END IF;
  v_limit := coalesce(p_max_payload_bytes, v_setting::int, 1048576);

  -- A caller that has measured has looked at the names too.
  IF p_max_payload_bytes IS DISTINCT FROM 0 THEN
    SELECT format('%s is not a field of a message: use %s', k.name, array_to_string(v_fields, ', ')) INTO v_problem
      FROM jsonb_array_elements(p_messages) m,
           LATERAL jsonb_object_keys(CASE WHEN jsonb_typeof(m) = 'object' THEN m - v_fields ELSE '{}' END) k(name) LIMIT 1;
    IF v_problem IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was enqueued.';
    END IF;
  END IF;

  -- The handler costs half a microsecond and no transaction id; why reading failed is found out afterwards.
  BEGIN
    SELECT array_agg(ROW(new_id(), clock_timestamp(), pg_current_xact_id(), NULL, NULL, m.namespace, m.topic, m."tenantId",
                         m.key, m."dedupeKey", m."aggregateType", m."aggregateId", m.headers, m.payload)::messages),
           array_agg(CASE WHEN m.problem IS NULL
                          THEN coalesce(m."availableAt", clock_timestamp() + coalesce(m."delayMs", 0) * interval '1 ms') END),
           bool_or(m."dedupeKey" IS NOT NULL), bool_or(m.key IS NOT NULL),
           (array_agg(m.problem) FILTER (WHERE m.problem IS NOT NULL))[1]
      INTO v_messages, v_available, v_deduped, v_keyed, v_problem
      FROM (SELECT r.topic, coalesce(r.namespace, 'default') AS namespace, r."tenantId", r.key, r."dedupeKey",
                   r."aggregateType", r."aggregateId", r.headers, coalesce(r.payload, 'null') AS payload,
                   r."delayMs", r."availableAt",
                   message_problem(r.topic, r.namespace, r."tenantId", r.key, r."dedupeKey", r."aggregateType",
                     r."aggregateId", r.headers, r.payload, r."delayMs", r."availableAt", v_limit) AS problem
              FROM jsonb_to_recordset(p_messages) AS r(
                topic text, payload jsonb, namespace text, "tenantId" text, key text, "dedupeKey" text,
                "aggregateType" text, "aggregateId" text, headers jsonb, "delayMs" double precision,
                "availableAt" timestamptz)
             -- or what is wrong with it would be looked for at each of the three places that ask
             OFFSET 0) m;
  EXCEPTION WHEN data_exception THEN
    v_problem := coalesce(unreadable_message(p_messages), SQLERRM);
  END;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was enqueued.';
  END IF;
  IF v_messages IS NULL THEN RETURN; END IF;

  IF v_deduped THEN
    -- Sorted, so that two batches with the same keys never deadlock. A key that another transaction
    -- holds makes this one wait for it: if that one rolls back, the key is ours.
    INSERT INTO dedupe_keys (message_id, namespace, topic, dedupe_key)
    SELECT DISTINCT ON (m.namespace COLLATE "C", m.topic COLLATE "C", m.dedupe_key COLLATE "C")
           m.id, m.namespace, m.topic, m.dedupe_key
      FROM unnest(v_messages) WITH ORDINALITY AS m WHERE m.dedupe_key IS NOT NULL
     ORDER BY m.namespace COLLATE "C", m.topic COLLATE "C", m.dedupe_key COLLATE "C", m.ordinality
    ON CONFLICT DO NOTHING;
    SELECT array_agg(CASE WHEN m.dedupe_key IS NULL THEN m.id ELSE k.message_id END ORDER BY m.ordinality)
      INTO v_winners
      FROM unnest(v_messages) WITH ORDINALITY AS m
      LEFT JOIN LATERAL (
        SELECT x.message_id FROM dedupe_keys x
         WHERE x.namespace = m.namespace AND x.topic = m.topic AND x.dedupe_key = m.dedupe_key LIMIT 1) k ON true;
    IF array_position(v_winners, NULL) IS NOT NULL THEN
      RAISE EXCEPTION USING ERRCODE = '40001', MESSAGE = 'a dedupe key expired while it was being compared: try again';
    END IF;
    v_available := ARRAY (SELECT v_available[i] FROM generate_subscripts(v_messages, 1) i
                           WHERE (v_messages[i]).id = v_winners[i] ORDER BY i);
    v_messages := ARRAY (SELECT v_messages[i] FROM generate_subscripts(v_messages, 1) i
                          WHERE (v_messages[i]).id = v_winners[i] ORDER BY i);
  END IF;

  -- After the dedupe keys, always: a duplicate takes no number, and both are locked in the same order by everybody.
  IF v_keyed THEN
    v_numbered := number_messages(v_messages);
    IF v_deduped THEN
      -- the ids of those with a key are new
      UPDATE dedupe_keys k SET message_id = n.id
        FROM (SELECT m.id, x.tid FROM unnest(v_numbered) m CROSS JOIN LATERAL (
                SELECT i.ctid AS tid FROM dedupe_keys i
                 WHERE i.namespace = m.namespace AND i.topic = m.topic AND i.dedupe_key = m.dedupe_key OFFSET 0) x
               WHERE m.key IS NOT NULL OFFSET 0) n
       WHERE k.ctid = n.tid;
      v_winners := ARRAY (
        SELECT coalesce(n.new_id, w.id) FROM unnest(v_winners) WITH ORDINALITY AS w(id, position)
          LEFT JOIN (SELECT (v_messages[i]).id AS old_id, (v_numbered[i]).id AS new_id FROM generate_subscripts(v_messages, 1) i) n
            ON n.old_id = w.id
         ORDER BY w.position);
    END IF;
    v_messages := v_numbered;
  END IF;

  INSERT INTO messages SELECT m.* FROM unnest(v_messages) m;

  -- Mostly it is one message: small statements begin sooner than the large one below, which does the same for many.
  IF cardinality(v_messages) = 1 THEN
    v_message := v_messages[1];
    SELECT array_agg(t.destination_id) FILTER (WHERE goes_there(t.share, v_message.key, v_message.id)),
           array_agg(t.turn) FILTER (WHERE goes_there(t.share, v_message.key, v_message.id)), count(*) > 0
      INTO v_targets, v_turns, v_routed
      FROM targets_of(v_message.topic, v_message.namespace, v_message.tenant_id) t;
    IF v_targets IS NOT NULL THEN
      INSERT INTO deliveries (message_id, destination_id, available_at, bytes, namespace, tenant_id, stream_id, sequence)
      SELECT v_message.id, t.destination_id, v_available[1],
             pg_column_size(v_message.payload) + coalesce(pg_column_size(v_message.headers), 0), v_message.namespace, t.turn,
             v_message.stream_id, v_message.sequence
        FROM unnest(v_targets, v_turns) t(destination_id, turn);
      IF v_message.stream_id IS NOT NULL THEN
        INSERT INTO lane_tickets (destination_id, stream_id) SELECT d, v_message.stream_id FROM unnest(v_targets) d;
      END IF;
    ELSIF NOT v_routed AND NOT has_cursor(v_message.topic, v_message.namespace, v_message.tenant_id) THEN
      INSERT INTO unrouted_messages (message_id) VALUES (v_message.id);
    END IF;
  ELSE
    -- Routes are looked for once for all messages of a kind.
    WITH kinds AS (
      SELECT m.namespace, m.topic, m.tenant_id, array_agg(m.id) AS ids, array_agg(m.available_at) AS available,
             array_agg(m.stream_id) AS streams, array_agg(m.sequence) AS sequences, array_agg(m.key) AS keys,
             array_agg(pg_column_size(m.payload) + coalesce(pg_column_size(m.headers), 0)) AS sizes
        FROM ROWS FROM (unnest(v_messages), unnest(v_available)) AS m(id, created_at, transaction_id, stream_id,
               sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type, aggregate_id, headers, payload, available_at)
       GROUP BY m.namespace, m.topic, m.tenant_id),
    routed AS (
      SELECT k.*, t.destination_id, t.share, t.turn
        FROM kinds k LEFT JOIN LATERAL targets_of(k.topic, k.namespace, k.tenant_id) t ON true),
    delivered AS (
      INSERT INTO deliveries (message_id, destination_id, available_at, bytes, namespace, tenant_id, stream_id, sequence)
      SELECT m.id, r.destination_id, m.available_at, m.bytes, r.namespace, r.turn, m.stream_id, m.sequence
        FROM routed r, ROWS FROM (unnest(r.ids), unnest(r.available), unnest(r.sizes), unnest(r.streams), unnest(r.sequences),
               unnest(r.keys)) AS m(id, available_at, bytes, stream_id, sequence, key)
       WHERE r.destination_id IS NOT NULL AND goes_there(r.share, m.key, m.id)
       ORDER BY m.id
      RETURNING destination_id, stream_id),
    tickets AS (
      INSERT INTO lane_tickets (destination_id, stream_id)
      SELECT DISTINCT d.destination_id, d.stream_id FROM delivered d WHERE d.stream_id IS NOT NULL),
    unrouted AS (
      INSERT INTO unrouted_messages (message_id)
      SELECT unnest(r.ids) FROM routed r WHERE r.destination_id IS NULL AND NOT has_cursor(r.topic, r.namespace, r.tenant_id))
    SELECT array_agg(DISTINCT destination_id) INTO v_targets FROM delivered;
  END IF;

  IF v_targets IS NOT NULL THEN PERFORM ring(v_targets); END IF;

  IF v_deduped THEN
    RETURN QUERY SELECT w.id, CASE WHEN n.id IS NOT NULL THEN n.sequence ELSE (SELECT m.sequence FROM messages m WHERE m.id = w.id) END,
                        n.id IS NULL OR w.again
                   FROM (SELECT u.id, u.position, row_number() OVER (PARTITION BY u.id ORDER BY u.position) > 1 AS again
                           FROM unnest(v_winners) WITH ORDINALITY AS u(id, position)) w
                   LEFT JOIN unnest(v_messages) n ON n.id = w.id
                  ORDER BY w.position;
  ELSE
    RETURN QUERY SELECT m.id, m.sequence, false FROM unnest(v_messages) m;
  END IF;
END $$;

-- One message, with named arguments, for psql, triggers and every other language.
CREATE OR REPLACE FUNCTION enqueue(
  topic text, payload jsonb DEFAULT NULL, namespace text DEFAULT NULL, tenant_id text DEFAULT NULL,
  key text DEFAULT NULL, dedupe_key text DEFAULT NULL, aggregate_type text DEFAULT NULL,
  aggregate_id text DEFAULT NULL, headers jsonb DEFAULT NULL, delay interval DEFAULT NULL,
  available_at timestamptz DEFAULT NULL, OUT id uuid, OUT sequence bigint, OUT duplicate boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  SELECT e.id, e.sequence, e.duplicate
    FROM enqueue_many(jsonb_build_array(jsonb_build_object(
      'topic', topic, 'payload', payload, 'namespace', namespace, 'tenantId', tenant_id, 'key', key,
      'dedupeKey', dedupe_key, 'aggregateType', aggregate_type, 'aggregateId', aggregate_id, 'headers', headers,
      'delayMs', CASE WHEN delay IS NOT NULL THEN checked_interval('delay', delay, '0', '10 years') END, 'availableAt', available_at))) e
$$;
