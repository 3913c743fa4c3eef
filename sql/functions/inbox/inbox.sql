-- Inbox: tells a consumer, in its own transaction, which messages are new to it. The consumer does its work in the same
-- transaction, so both are committed or neither is. The consumer's database can be another one than the outbox's. The
-- functions run with the rights of the schema's owner: a consumer needs EXECUTE on them and no other right.

-- Parses messages into rows, in their order, each with its first problem, or null. Keep it in step with
-- src/core/received-message.ts, which checks the same rules before the database is called, so that a refused message
-- leaves the caller's transaction usable.
CREATE OR REPLACE FUNCTION inbox_messages(p_messages jsonb)
RETURNS TABLE (
  place bigint, dedupe_key text, namespace text, tenant_id text, key text, sequence bigint, previous_sequence bigint,
  problem text)
LANGUAGE sql IMMUTABLE
AS $$
  SELECT m.place, coalesce(m.dedupe_key, m.message_id::text), coalesce(m.namespace, 'default'),
         coalesce(m.tenant_id, ''), m.key, m.sequence, m.previous_sequence,
         CASE
           WHEN num_nonnulls(m.message_id, m.dedupe_key) = 0 THEN
             'messageId is missing: give it, or a dedupeKey that is the same for every delivery of the message'
           WHEN num_nonnulls(m.message_id, m.dedupe_key) = 2 THEN
             format('messageId %s and dedupeKey "%s" exclude each other: give one',
                    m.message_id, left(m.dedupe_key, 60))
           WHEN m.dedupe_key = '' OR octet_length(m.dedupe_key) > 1024 THEN
             format('dedupeKey "%s" must have 1 to 1024 bytes', left(m.dedupe_key, 60))
           WHEN m.namespace = '' OR octet_length(m.namespace) > 255 THEN
             format('namespace "%s" must have 1 to 255 bytes: leave it out for the default one', left(m.namespace, 60))
           WHEN m.tenant_id = '' OR octet_length(m.tenant_id) > 255 THEN
             format('tenantId "%s" must have 1 to 255 bytes: leave it out if there is none', left(m.tenant_id, 60))
           WHEN m.key = '' OR octet_length(m.key) > 512 THEN
             format('key "%s" must have 1 to 512 bytes: leave it out if order does not matter', left(m.key, 60))
           WHEN m.key IS NULL AND m.sequence IS NOT NULL THEN
             format('sequence %s needs a key: it counts the messages of one key', m.sequence)
           WHEN m.sequence < 1 THEN format('sequence %s must be 1 or more', m.sequence)
           WHEN m.sequence IS NULL AND m.previous_sequence IS NOT NULL THEN
             format('previousSequence %s needs a sequence', m.previous_sequence)
           WHEN m.previous_sequence < 0 OR m.previous_sequence >= m.sequence THEN
             format('previousSequence %s must be from 0 to below the sequence, which is %s',
                    m.previous_sequence, m.sequence)
         END
    FROM ROWS FROM (
           jsonb_to_recordset(p_messages) AS (
             "messageId" uuid, "dedupeKey" text, namespace text, "tenantId" text, key text, sequence bigint,
             "previousSequence" bigint))
         WITH ORDINALITY
         AS m(message_id, dedupe_key, namespace, tenant_id, key, sequence, previous_sequence, place)
$$;

-- Explains why messages could not be parsed: returns the first problem, or null. Called only after parsing has failed,
-- so checking one message at a time costs nothing in the usual case.
CREATE OR REPLACE FUNCTION unreadable_received(p_messages jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  v_message jsonb;
  v_index   bigint;
  v_field   text;
BEGIN
  FOR v_message, v_index IN
    SELECT m.value, m.position - 1
      FROM jsonb_array_elements(p_messages) WITH ORDINALITY m(value, position)
  LOOP
    IF jsonb_typeof(v_message) <> 'object' THEN
      RETURN format('messages[%s] %s is not an object: give {"messageId": ...}', v_index, left(v_message::text, 60));
    END IF;
    BEGIN
      PERFORM (v_message ->> 'messageId')::uuid;
    EXCEPTION WHEN data_exception THEN
      RETURN format('messageId %s is not a UUID: give the id of the message, or a dedupeKey',
                    left((v_message -> 'messageId')::text, 60));
    END;
    FOREACH v_field IN ARRAY '{sequence,previousSequence}'::text[] LOOP
      BEGIN
        PERFORM (v_message ->> v_field)::bigint;
      EXCEPTION WHEN data_exception THEN
        RETURN format('%s %s is not a whole number: give the one that came with the message',
                      v_field, left((v_message -> v_field)::text, 60));
      END;
    END LOOP;
  END LOOP;
  RETURN NULL;
END $$;

-- The sequence that the consumer should have processed last before this message: the previous one at its destination,
-- or the next lower one if that is not known. 0 if the message is the first of its key and none was processed.
CREATE OR REPLACE FUNCTION inbox_expected_sequence(
  p_sequence          bigint,
  p_previous_sequence bigint,
  p_last_sequence     bigint)
RETURNS bigint
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_previous_sequence > 0 THEN p_previous_sequence
    WHEN p_previous_sequence = 0 AND p_last_sequence = 0 THEN 0
    ELSE p_sequence - 1
  END
$$;

-- When a message was created, from its id; null if the consumer uses a dedupe key of its own.
CREATE OR REPLACE FUNCTION inbox_made_at(p_dedupe_key text) RETURNS timestamptz
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN p_dedupe_key ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
    THEN id_time(p_dedupe_key::uuid)
  END
$$;

-- Records received messages. Returns one row per message, in order. is_new: process it now, in this transaction. If
-- not, it is a duplicate, and first_processed_at says when it was processed. If another transaction is processing the
-- same message, the call waits for it; if that one rolls back, the message is new here.
-- p_messages: a JSON array of {messageId or dedupeKey, namespace, tenantId, key, sequence, previousSequence}.
-- p_refuse_gaps: if there is a gap, nothing of the call is recorded, and no row is new.
--
-- For a new message with a sequence, gap says whether it is the next one of its key (in its namespace and tenant) for
-- this consumer. null: it is. 'missing': last_sequence, the highest one processed, is below expected_sequence, the one
-- that should have come before. 'step_back': a later one was processed already.
--
-- A lower sequence is not a step back if its message was created 30 days or more after the one at the position. No key
-- is forgotten sooner than that, and within a numbering later sequences are later messages. So the key was forgotten
-- and has started again, and the position starts again with it.
CREATE OR REPLACE FUNCTION inbox_begin_many(p_consumer text, p_messages jsonb, p_refuse_gaps boolean DEFAULT false)
RETURNS TABLE (is_new boolean, first_processed_at timestamptz, gap text, expected_sequence bigint, last_sequence bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET jit = off
AS $$
DECLARE
  v_fields   text[] := '{messageId,dedupeKey,namespace,tenantId,key,sequence,previousSequence}';
  v_problem  text;
  v_ordered  boolean;
  v_inserted text[];
  v_new      boolean[];
  v_first    timestamptz[];
  v_gaps     text[];
  v_expected bigint[];
  v_last     bigint[];
  v_numbers  bigint[];
  v_refused  boolean;
BEGIN
  IF p_consumer IS NULL OR p_consumer = '' OR octet_length(p_consumer) > 255 THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('consumer %s must have 1 to 255 bytes: name who processes the messages',
                       coalesce('"' || left(p_consumer, 60) || '"', 'null'));
  END IF;
  IF jsonb_typeof(p_messages) IS DISTINCT FROM 'array' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', HINT = 'Nothing was recorded.',
      MESSAGE = format('messages %s is not a list: give a JSON array such as [{"messageId": "..."}]',
                       coalesce(left(p_messages::text, 60), 'null'));
  END IF;
  -- This exception block costs half a microsecond and no transaction id. The handler finds out why parsing failed.
  BEGIN
    SELECT format('%s is not a field of a received message: use %s', k.name, array_to_string(v_fields, ', '))
      INTO v_problem
      FROM jsonb_array_elements(p_messages) m, LATERAL jsonb_object_keys(m - v_fields) k(name)
     LIMIT 1;
    IF v_problem IS NULL THEN
      SELECT (array_agg(m.problem) FILTER (WHERE m.problem IS NOT NULL))[1], bool_or(m.sequence IS NOT NULL)
        INTO v_problem, v_ordered
        FROM inbox_messages(p_messages) m;
    END IF;
  EXCEPTION WHEN data_exception THEN
    v_problem := coalesce(unreadable_received(p_messages), SQLERRM);
  END;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was recorded.';
  END IF;

  -- Sorted, so that two batches with the same messages never deadlock.
  WITH inserted AS (
    INSERT INTO inbox (consumer, dedupe_key, processed_at)
    SELECT p_consumer, k.dedupe_key, clock_timestamp()
      FROM (SELECT DISTINCT m.dedupe_key COLLATE "C" AS dedupe_key FROM inbox_messages(p_messages) m) k
     ORDER BY k.dedupe_key
    ON CONFLICT DO NOTHING
    RETURNING dedupe_key)
  SELECT array_agg(i.dedupe_key) INTO v_inserted FROM inserted i;

  IF v_ordered THEN
    -- Locks the positions, sorted, and creates those that are missing. WHERE false: existing rows are not rewritten.
    INSERT INTO inbox_positions (consumer, namespace, tenant_id, key, sequence)
    SELECT p_consumer, s.namespace, s.tenant_id, s.key, 0
      FROM (SELECT DISTINCT m.namespace COLLATE "C" AS namespace, m.tenant_id COLLATE "C" AS tenant_id,
                   m.key COLLATE "C" AS key
              FROM inbox_messages(p_messages) m
              JOIN unnest(v_inserted) i(dedupe_key) ON i.dedupe_key = m.dedupe_key
             WHERE m.sequence IS NOT NULL) s
     ORDER BY s.namespace, s.tenant_id, s.key
    ON CONFLICT (consumer, namespace, tenant_id, key) DO UPDATE
      SET sequence = excluded.sequence
    WHERE false;
  END IF;

  -- With a new snapshot, which sees what was committed while this call waited. Within the batch, each message follows
  -- those before it.
  WITH received AS (
    SELECT m.*,
           i.dedupe_key IS NOT NULL
             AND row_number() OVER (PARTITION BY m.dedupe_key ORDER BY m.place) = 1 AS is_new
      FROM inbox_messages(p_messages) m
      LEFT JOIN unnest(v_inserted) i(dedupe_key) ON i.dedupe_key = m.dedupe_key),
  following AS (
    SELECT r.place, r.namespace, r.tenant_id, r.key, r.sequence, r.previous_sequence, p.sequence AS position,
           r.sequence <= coalesce(lag(r.sequence) OVER key_order, p.sequence)
             AND inbox_made_at(r.dedupe_key)
                 >= coalesce(lag(inbox_made_at(r.dedupe_key)) OVER key_order, p.made_at) + interval '30 days' AS begins
      FROM received r
     CROSS JOIN LATERAL (
            SELECT x.sequence, x.made_at
              FROM inbox_positions x
             WHERE x.consumer = p_consumer
               AND x.namespace = r.namespace
               AND x.tenant_id = r.tenant_id
               AND x.key = r.key
            OFFSET 0) p
     WHERE r.is_new
       AND r.sequence IS NOT NULL
    WINDOW key_order AS (PARTITION BY r.namespace, r.tenant_id, r.key ORDER BY r.place)),
  -- 0: the numbering of the position; 1 and up: numberings that start within the batch
  numbered AS (
    SELECT f.*,
           count(*) FILTER (WHERE f.begins)
                    OVER (PARTITION BY f.namespace, f.tenant_id, f.key ORDER BY f.place) AS numbering
      FROM following f),
  ordered AS (
    SELECT n.place, n.sequence, n.previous_sequence, n.numbering,
           greatest(
             CASE WHEN n.numbering = 0 THEN n.position ELSE 0 END,
             max(n.sequence) OVER (PARTITION BY n.namespace, n.tenant_id, n.key, n.numbering ORDER BY n.place
                                   ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS last_sequence
      FROM numbered n),
  compared AS (
    SELECT o.*, inbox_expected_sequence(o.sequence, o.previous_sequence, o.last_sequence) AS expected_sequence
      FROM ordered o)
  SELECT array_agg(r.is_new ORDER BY r.place),
         array_agg(CASE
           WHEN NOT r.is_new THEN (
             SELECT i.processed_at
               FROM inbox i
              WHERE i.consumer = p_consumer
                AND i.dedupe_key = r.dedupe_key)
         END ORDER BY r.place),
         array_agg(CASE
           WHEN c.sequence <= c.last_sequence THEN 'step_back'
           WHEN c.last_sequence < c.expected_sequence THEN 'missing'
         END ORDER BY r.place),
         array_agg(c.expected_sequence ORDER BY r.place),
         array_agg(c.last_sequence ORDER BY r.place),
         array_agg(c.numbering ORDER BY r.place)
    INTO v_new, v_first, v_gaps, v_expected, v_last, v_numbers
    FROM received r
    LEFT JOIN compared c ON c.place = r.place;
  IF EXISTS (
       SELECT FROM unnest(v_new, v_first) a(is_new, first_processed_at)
        WHERE NOT a.is_new
          AND a.first_processed_at IS NULL) THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = 'a processed message was forgotten while it was being compared: try again';
  END IF;

  v_refused := coalesce(p_refuse_gaps, false)
    AND EXISTS (SELECT FROM unnest(v_gaps) a(gap) WHERE a.gap IS NOT NULL);
  IF v_refused THEN
    DELETE FROM inbox x
     USING unnest(v_inserted) i(dedupe_key)
     WHERE x.consumer = p_consumer
       AND x.dedupe_key = i.dedupe_key;
  ELSIF v_ordered THEN
    UPDATE inbox_positions p
       SET sequence = s.sequence, made_at = s.made_at, used_at = clock_timestamp()
      FROM (SELECT DISTINCT ON (m.namespace, m.tenant_id, m.key)
                   m.namespace, m.tenant_id, m.key, m.sequence, n.numbering, inbox_made_at(m.dedupe_key) AS made_at
              FROM inbox_messages(p_messages) m
              JOIN unnest(v_numbers) WITH ORDINALITY n(numbering, place) ON n.place = m.place
             WHERE n.numbering IS NOT NULL
             ORDER BY m.namespace, m.tenant_id, m.key, n.numbering DESC, m.sequence DESC) s
     WHERE p.consumer = p_consumer
       AND p.namespace = s.namespace
       AND p.tenant_id = s.tenant_id
       AND p.key = s.key
       AND (p.sequence < s.sequence OR s.numbering > 0);
  END IF;

  RETURN QUERY
    SELECT a.is_new AND NOT v_refused, a.first_processed_at, a.gap, a.expected_sequence, a.last_sequence
      FROM unnest(v_new, v_first, v_gaps, v_expected, v_last)
           AS a(is_new, first_processed_at, gap, expected_sequence, last_sequence);
END $$;

-- Records one received message, with named arguments: SELECT is_new FROM inbox_begin('billing', message_id => …). It
-- returns the same columns as inbox_begin_many.
CREATE OR REPLACE FUNCTION inbox_begin(
  consumer               text,
  message_id             uuid DEFAULT NULL,
  dedupe_key             text DEFAULT NULL,
  namespace              text DEFAULT NULL,
  tenant_id              text DEFAULT NULL,
  key                    text DEFAULT NULL,
  sequence               bigint DEFAULT NULL,
  previous_sequence      bigint DEFAULT NULL,
  refuse_gaps            boolean DEFAULT false,
  OUT is_new             boolean,
  OUT first_processed_at timestamptz,
  OUT gap                text,
  OUT expected_sequence  bigint,
  OUT last_sequence      bigint)
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT b.is_new, b.first_processed_at, b.gap, b.expected_sequence, b.last_sequence
    FROM inbox_begin_many(
           consumer,
           jsonb_build_array(jsonb_build_object(
             'messageId', message_id, 'dedupeKey', dedupe_key, 'namespace', namespace, 'tenantId', tenant_id,
             'key', key, 'sequence', sequence, 'previousSequence', previous_sequence)),
           refuse_gaps) b
$$;
