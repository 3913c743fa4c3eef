-- Search: chooses where a list of messages with filters starts to read, and applies the filters to what it reads.

-- Filters message ids, one look-up per id. The plan is cached. A null argument does not filter. p_destination: the
-- message is or was at this destination. p_topic: a topic, or the beginning of topics ('order.*'). p_ended: an attempt
-- ended in this state. p_error_code: an attempt failed with this code, or with this code of the other side.
-- p_failed_from, p_failed_to: an attempt failed in this time. p_status: 'pending' or 'retrying' (at that destination,
-- or at any), or 'unrouted'.
CREATE OR REPLACE FUNCTION match_messages(
  p_ids            uuid[],
  p_topic          text,
  p_namespace      text,
  p_tenant_id      text,
  p_key            text,
  p_aggregate_type text,
  p_aggregate_id   text,
  p_destination    text,
  p_ended          attempt_state,
  p_error_code     text,
  p_status         text,
  p_failed_from    timestamptz,
  p_failed_to      timestamptz)
RETURNS SETOF uuid
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  v_first    uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i LIMIT 1);
  v_last     uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i DESC LIMIT 1);
  v_at       int := (SELECT t.id FROM destinations t WHERE t.name = p_destination);
  v_ids      uuid[] := p_ids;
  v_is_timed boolean := coalesce(p_failed_from, p_failed_to) IS NOT NULL;
BEGIN
  IF p_destination IS NOT NULL AND v_at IS NULL THEN RETURN; END IF;
  -- one statement per condition: tables that no condition needs are not read
  IF p_status IN ('pending', 'retrying') THEN
    v_ids := ARRAY (
      SELECT i.id
        FROM unnest(v_ids) i(id)
       WHERE EXISTS (
               SELECT FROM deliveries d
                WHERE d.message_id = i.id
                  AND (v_at IS NULL OR d.destination_id = v_at)
                  AND (p_status = 'pending' OR d.tries > 0)
               OFFSET 0));
  ELSIF p_status = 'unrouted' THEN
    v_ids := ARRAY (
      SELECT i.id
        FROM unnest(v_ids) i(id)
       WHERE EXISTS (SELECT FROM unrouted_messages u WHERE u.message_id = i.id OFFSET 0));
  END IF;
  IF coalesce(p_topic, p_namespace, p_tenant_id, p_key, p_aggregate_type, p_aggregate_id) IS NOT NULL THEN
    v_ids := ARRAY (
      SELECT i.id
        FROM unnest(v_ids) i(id)
        JOIN LATERAL (
               SELECT m.topic, m.namespace, m.tenant_id, m.key, m.aggregate_type, m.aggregate_id
                 FROM messages m
                WHERE m.id = i.id
                  AND m.id BETWEEN v_first AND v_last
               OFFSET 0) m ON true
       WHERE (p_topic IS NULL OR m.topic = p_topic
              OR (p_topic LIKE '%.*' AND starts_with(m.topic, left(p_topic, -1))))
         AND (p_namespace IS NULL OR m.namespace = p_namespace)
         AND (p_tenant_id IS NULL OR m.tenant_id = p_tenant_id)
         AND (p_key IS NULL OR m.key = p_key)
         AND (p_aggregate_type IS NULL OR m.aggregate_type = p_aggregate_type)
         AND (p_aggregate_id IS NULL OR m.aggregate_id = p_aggregate_id));
  END IF;
  IF p_ended IS NOT NULL OR p_error_code IS NOT NULL OR v_is_timed THEN
    v_ids := ARRAY (
      SELECT i.id
        FROM unnest(v_ids) i(id)
        JOIN LATERAL (
               SELECT bool_or(a.state = p_ended) AS ended,
                      bool_or(a.error_code IS NOT NULL
                              AND (p_error_code IS NULL OR p_error_code IN (a.error_code, a.remote_code))
                              AND (NOT v_is_timed OR a.state <> 'discarded')
                              AND (p_failed_from IS NULL OR a.ended_at >= p_failed_from)
                              AND (p_failed_to IS NULL OR a.ended_at < p_failed_to)) AS failed
                 FROM attempts a
                WHERE a.message_id = i.id
                  AND a.message_id BETWEEN v_first AND v_last
                  AND (v_at IS NULL OR a.destination_id = v_at)
               OFFSET 0) a ON true
       WHERE (p_ended IS NULL OR a.ended)
         AND ((p_error_code IS NULL AND NOT v_is_timed) OR a.failed));
  ELSIF v_at IS NOT NULL AND p_status IS NULL THEN
    v_ids := ARRAY (
      SELECT i.id
        FROM unnest(v_ids) i(id)
       WHERE EXISTS (
               SELECT FROM attempts a
                WHERE a.message_id = i.id
                  AND a.message_id BETWEEN v_first AND v_last
                  AND a.destination_id = v_at
               OFFSET 0)
          OR EXISTS (
               SELECT FROM deliveries d
                WHERE d.message_id = i.id
                  AND d.destination_id = v_at
               OFFSET 0)
          OR EXISTS (
               SELECT FROM dead_letters d
                WHERE d.message_id = i.id
                  AND d.destination_id = v_at
               OFFSET 0)
          OR i.id IN (SELECT unnest(l.message_ids) FROM leases l WHERE l.destination_id = v_at));
  END IF;
  RETURN QUERY SELECT unnest(v_ids);
END $$;

-- Filters message ids by their payloads, in the given order. It reads payloads until they have p_bytes bytes, and at
-- least one; checked says how many ids that were. Errors of the jsonpath are suppressed. A large payload ends the batch
-- early; the caller continues behind it. A dead letter whose message is gone has its own copy.
CREATE OR REPLACE FUNCTION match_payloads(p_ids uuid[], p_path jsonpath, p_bytes bigint)
RETURNS TABLE (checked int, ids uuid[])
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  v_first uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i LIMIT 1);
  v_last  uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i DESC LIMIT 1);
BEGIN
  -- sizes are added up before any payload is fetched: large ones are stored outside of their rows
  RETURN QUERY
    SELECT count(*)::int,
           coalesce(array_agg(s.id) FILTER (WHERE jsonb_path_exists(s.payload, p_path, '{}', true)), '{}')
      FROM (SELECT i.id, coalesce(m.payload, c.payload) AS payload,
                   sum(coalesce(m.bytes, c.bytes, 0)) OVER (
                     ORDER BY i.n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS bytes_before
              FROM unnest(p_ids) WITH ORDINALITY i(id, n)
              LEFT JOIN LATERAL (
                     SELECT x.bytes, x.payload
                       FROM messages x
                      WHERE x.id = i.id
                        AND x.id BETWEEN v_first AND v_last
                     OFFSET 0) m ON true
              LEFT JOIN LATERAL (
                     SELECT d.bytes, d.payload
                       FROM dead_letters d
                      WHERE m.bytes IS NULL
                        AND d.message_id = i.id
                        AND d.payload IS NOT NULL
                      LIMIT 1) c ON true) s
     WHERE coalesce(s.bytes_before, 0) < p_bytes;
END $$;

-- Search sizes: how many entries a search has to read if it starts from each of these ranges (message-starts.ts).
-- Ranges are counted up to 1,000. If all have more, they are counted up to 5,000; if all have more than that, the
-- planner estimates them. So a search starts from a small index, and finding it costs the same beside a million
-- entries. Counting can read rows from all over the disk. So a range that has only 'all' or 'dead' beside it is not
-- counted. With a time range, which is found in the rows only, counts end at 1,000.
--
-- A range is one of the log by topic, topics with a common beginning, tenant, key or aggregate, or 'pending',
-- 'retrying', 'unrouted', 'code', 'any code', 'dead of …', 'dead' or 'all'. p_filter has the filters by their names
-- in the API, and the error codes to read as codes.
CREATE OR REPLACE FUNCTION search_sizes(p_ranges text[], p_filter jsonb)
RETURNS TABLE (range text, entries bigint)
-- volatile only because of estimated_rows
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  -- found once, because finding one reads every day of the log
  v_filter jsonb := p_filter || jsonb_build_object('topics', search_topics(p_ranges, p_filter));
  v_most   int;
  v_counts bigint[];
BEGIN
  FOREACH v_most IN ARRAY CASE
    WHEN cardinality(array_remove(array_remove(p_ranges, 'all'), 'dead')) < 2 THEN ARRAY[0]
    WHEN coalesce(p_filter ->> 'from', p_filter ->> 'to') IS NOT NULL THEN ARRAY[1000]
    ELSE ARRAY[1000, 5000]
  END LOOP
    v_counts := ARRAY (
      SELECT search_size(r.range, v_filter, v_most)
        FROM unnest(p_ranges) WITH ORDINALITY r(range, n)
       ORDER BY r.n);
    EXIT WHEN v_most > ANY (v_counts);
  END LOOP;
  RETURN QUERY
    SELECT r.range,
           CASE
             WHEN r.count < v_most OR v_most > ANY (v_counts) THEN r.count
             ELSE greatest(r.count, search_estimate(r.range, v_filter))
           END
      FROM unnest(p_ranges, v_counts) r(range, count);
END $$;

-- The destinations that a search reads: the one with this name, or, if p_name is null, all that have pending deliveries
-- ('waiting') or dead letters ('dead'). Those without any are not visited.
CREATE OR REPLACE FUNCTION searched_destinations(p_what text, p_name text) RETURNS SETOF int
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 10
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_name IS NOT NULL THEN
    RETURN QUERY SELECT t.id FROM destinations t WHERE t.name = p_name;
  ELSIF p_what = 'dead' THEN
    RETURN QUERY SELECT dead_destinations();
  ELSE
    RETURN QUERY SELECT waiting_destinations();
  END IF;
END $$;

-- The topics with the beginning of the filter, for the ranges that read them: at most 300, and null as the last one if
-- there are more. Finding and counting 300 topics takes some 60 ms in a log with 60 partitions.
CREATE OR REPLACE FUNCTION search_topics(p_ranges text[], p_filter jsonb) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_beginning text := left(p_filter ->> 'topic', -1);
BEGIN
  RETURN CASE
    WHEN 'topics' = ANY (p_ranges) THEN
      ARRAY (
        SELECT topics_with(v_beginning, id_at((p_filter ->> 'from')::timestamptz),
                           id_at((p_filter ->> 'to')::timestamptz), 300))
    WHEN 'dead of topics' = ANY (p_ranges) THEN ARRAY (SELECT dead_topics_with(v_beginning, 300))
    ELSE '{}'
  END;
END $$;

-- The number of entries of one range, counted up to p_most. A statement for each: a plan with all of them would open
-- every partition several times.
CREATE OR REPLACE FUNCTION search_size(p_range text, p_filter jsonb, p_most int) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
  v_topic       text := p_filter ->> 'topic';
  v_tenant      text := p_filter ->> 'tenantId';
  v_key         text := p_filter ->> 'key';
  v_namespace   text := p_filter ->> 'namespace';
  v_aggregate   text := p_filter ->> 'aggregateId';
  v_codes       text[] := ARRAY (SELECT jsonb_array_elements_text(p_filter -> 'codes'));
  v_destination text := p_filter ->> 'destination';
  v_from        timestamptz := p_filter ->> 'from';
  v_to          timestamptz := p_filter ->> 'to';
  v_failed_from timestamptz := coalesce(p_filter ->> 'failedFrom', '-infinity');
  v_failed_to   timestamptz := coalesce(p_filter ->> 'failedTo', 'infinity');
  -- a condition on the slot reads the rows themselves, which an index-only scan does not
  v_is_timed    boolean := coalesce(v_from, v_to) IS NOT NULL;
  v_first       bigint := coalesce(id_slot(id_at(v_from)), 0);
  v_last        bigint := coalesce(id_slot(id_at(v_to)), 4294967295);
  v_topics      text[] := ARRAY (SELECT jsonb_array_elements_text(p_filter -> 'topics'));
  v_count       bigint;
BEGIN
  IF p_range = 'topic' AND v_is_timed THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM messages m
             WHERE m.topic = v_topic
               AND id_slot(m.id) BETWEEN v_first AND v_last
             LIMIT p_most) x;
  ELSIF p_range = 'topic' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM messages m WHERE m.topic = v_topic LIMIT p_most) x;
  ELSIF p_range IN ('topics', 'dead of topics') AND array_position(v_topics, NULL) IS NOT NULL THEN
    -- a step would visit every one of them
    v_count := p_most;
  ELSIF p_range = 'topics' AND v_is_timed THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM unnest(v_topics) t(topic)
             CROSS JOIN LATERAL (
                    SELECT FROM messages m
                     WHERE m.topic = t.topic
                       AND id_slot(m.id) BETWEEN v_first AND v_last
                     LIMIT p_most) m
             LIMIT p_most) x;
  ELSIF p_range = 'topics' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM unnest(v_topics) t(topic)
             CROSS JOIN LATERAL (SELECT FROM messages m WHERE m.topic = t.topic LIMIT p_most) m
             LIMIT p_most) x;
  ELSIF p_range IN ('all', 'dead') THEN
    -- read only if every other range is large
    v_count := p_most;
  ELSIF p_range = 'tenant' AND v_is_timed THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM messages m
             WHERE m.tenant_id = v_tenant
               AND id_slot(m.id) BETWEEN v_first AND v_last
             LIMIT p_most) x;
  ELSIF p_range = 'tenant' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM messages m WHERE m.tenant_id = v_tenant LIMIT p_most) x;
  ELSIF p_range = 'aggregate' AND v_is_timed THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM messages m
             WHERE m.aggregate_id = v_aggregate
               AND id_slot(m.id) BETWEEN v_first AND v_last
             LIMIT p_most) x;
  ELSIF p_range = 'aggregate' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM messages m WHERE m.aggregate_id = v_aggregate LIMIT p_most) x;
  ELSIF p_range = 'key' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM keys s
             CROSS JOIN LATERAL (
                    SELECT FROM messages m
                     WHERE m.key_id = s.id
                       AND id_slot(m.id) BETWEEN v_first AND v_last
                     LIMIT p_most) m
             WHERE s.key = v_key
               AND s.namespace = coalesce(v_namespace, s.namespace)
               AND s.tenant_id = coalesce(v_tenant, s.tenant_id)
             LIMIT p_most) x;
  ELSIF p_range = 'code' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM attempts a WHERE a.error_code = ANY (v_codes) LIMIT p_most) x;
  ELSIF p_range = 'any code' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM attempts a WHERE a.error_code IS NOT NULL LIMIT p_most) x;
  ELSIF p_range = 'unrouted' THEN
    SELECT count(*) INTO v_count FROM (SELECT FROM unrouted_messages LIMIT p_most) x;
  ELSIF p_range = 'dead of topic' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM dead_letters d WHERE d.topic = v_topic LIMIT p_most) x;
  ELSIF p_range = 'dead of topics' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM unnest(v_topics) t(topic)
             CROSS JOIN LATERAL (SELECT FROM dead_letters d WHERE d.topic = t.topic LIMIT p_most) d
             LIMIT p_most) x;
  ELSIF p_range = 'dead of time' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM dead_letters d
             WHERE d.dead_at >= v_failed_from
               AND d.dead_at < v_failed_to
             LIMIT p_most) x;
  ELSIF p_range = 'dead of cause' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM dead_letters d
             WHERE cause_of(d.error_code, d.remote_code) = p_filter ->> 'cause'
             LIMIT p_most) x;
  ELSIF p_range = 'dead of tenant' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT FROM dead_letters d WHERE d.tenant_id = v_tenant LIMIT p_most) x;
  ELSIF p_range = 'dead of destination' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM dead_letters d
             WHERE d.destination_id = (SELECT t.id FROM destinations t WHERE t.name = v_destination)
             LIMIT p_most) x;
  ELSIF p_range = 'dead of code' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM searched_destinations('dead', v_destination) t(id)
             CROSS JOIN LATERAL (
                    SELECT FROM dead_letters d
                     WHERE d.destination_id = t.id
                       AND d.error_code = ANY (v_codes)
                     LIMIT p_most) d
             LIMIT p_most) x;
  ELSIF p_range = 'retrying' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM searched_destinations('waiting', v_destination) t(id)
             CROSS JOIN LATERAL (
                    SELECT FROM deliveries d
                     WHERE d.destination_id = t.id
                       AND d.tries > 0
                     LIMIT p_most) d
             LIMIT p_most) x;
  ELSIF p_range = 'pending' AND v_key IS NOT NULL THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM keys s
             CROSS JOIN searched_destinations('waiting', v_destination) t(id)
             CROSS JOIN LATERAL (
                    SELECT FROM deliveries d
                     WHERE d.destination_id = t.id
                       AND d.key_id = s.id
                     LIMIT p_most) d
             WHERE s.key = v_key
               AND s.namespace = coalesce(v_namespace, s.namespace)
               AND s.tenant_id = coalesce(v_tenant, s.tenant_id)
             LIMIT p_most) x;
  ELSIF p_range = 'pending' THEN
    SELECT count(*) INTO v_count
      FROM (SELECT
              FROM searched_destinations('waiting', v_destination) t(id)
             CROSS JOIN LATERAL (
                    SELECT FROM deliveries d
                     WHERE d.destination_id = t.id
                       AND d.key_id IS NOT NULL
                     LIMIT p_most) d
             LIMIT p_most) x;
    IF v_tenant IS NULL THEN
      SELECT v_count + count(*) INTO v_count
        FROM (SELECT
                FROM searched_destinations('waiting', v_destination) t(id)
               CROSS JOIN LATERAL (
                      SELECT FROM deliveries d
                       WHERE d.destination_id = t.id
                         AND d.key_id IS NULL
                       LIMIT p_most) d
               LIMIT p_most) x;
    ELSE
      SELECT v_count + count(*) INTO v_count
        FROM (SELECT
                FROM searched_destinations('waiting', v_destination) t(id)
               CROSS JOIN LATERAL (
                      SELECT FROM deliveries d
                       WHERE d.destination_id = t.id
                         AND d.key_id IS NULL
                         AND d.tenant_id = v_tenant
                       LIMIT p_most) d
               LIMIT p_most) x;
    END IF;
  ELSE
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('p_range is "%s", which is no range of a search', p_range);
  END IF;
  RETURN least(v_count, p_most);
END $$;

-- The number of entries of one range, as the planner estimates it. A step of 'topics' reads some entries of each topic,
-- so from a hundred topics on it is better to read all messages, or all dead letters.
CREATE OR REPLACE FUNCTION search_estimate(p_range text, p_filter jsonb) RETURNS bigint
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN p_range IN ('all', 'dead') THEN 9e17::bigint
    -- null: the walk was ended, whatever it found
    WHEN p_range IN ('topics', 'dead of topics')
         AND (jsonb_array_length(p_filter -> 'topics') > 100 OR p_filter -> 'topics' @> '[null]') THEN 9e18::bigint
    ELSE estimated_rows(CASE p_range
      WHEN 'topic' THEN format('SELECT FROM messages WHERE topic = %L', p_filter ->> 'topic')
      WHEN 'tenant' THEN format('SELECT FROM messages WHERE tenant_id = %L', p_filter ->> 'tenantId')
      WHEN 'aggregate' THEN format('SELECT FROM messages WHERE aggregate_id = %L', p_filter ->> 'aggregateId')
      WHEN 'key' THEN format('SELECT FROM messages WHERE key = %L', p_filter ->> 'key')
      WHEN 'code' THEN
        format('SELECT FROM attempts WHERE error_code = ANY (%L)',
               ARRAY (SELECT jsonb_array_elements_text(p_filter -> 'codes')))
      WHEN 'topics' THEN format('SELECT FROM messages WHERE starts_with(topic, %L)', left(p_filter ->> 'topic', -1))
      WHEN 'any code' THEN 'SELECT FROM attempts WHERE error_code IS NOT NULL'
      WHEN 'unrouted' THEN 'SELECT FROM unrouted_messages'
      WHEN 'dead of topics' THEN
        format('SELECT FROM dead_letters WHERE starts_with(topic, %L)', left(p_filter ->> 'topic', -1))
      WHEN 'dead of time' THEN
        format('SELECT FROM dead_letters WHERE dead_at >= %L AND dead_at < %L',
               coalesce(p_filter ->> 'failedFrom', '-infinity'), coalesce(p_filter ->> 'failedTo', 'infinity'))
      WHEN 'dead of topic' THEN format('SELECT FROM dead_letters WHERE topic = %L', p_filter ->> 'topic')
      WHEN 'dead of cause' THEN
        format('SELECT FROM dead_letters WHERE cause_of(error_code, remote_code) = %L', p_filter ->> 'cause')
      WHEN 'dead of tenant' THEN format('SELECT FROM dead_letters WHERE tenant_id = %L', p_filter ->> 'tenantId')
      WHEN 'dead of code' THEN
        format('SELECT FROM dead_letters WHERE error_code = ANY (%L)',
               ARRAY (SELECT jsonb_array_elements_text(p_filter -> 'codes')))
      WHEN 'dead of destination' THEN
        format('SELECT FROM dead_letters WHERE destination_id = %L',
               (SELECT t.id FROM destinations t WHERE t.name = p_filter ->> 'destination'))
      -- 'pending' or 'retrying': search_size refuses all other names
      ELSE format('SELECT FROM deliveries WHERE %s AND %s',
                  coalesce('destination_id = '
                             || (SELECT t.id FROM destinations t WHERE t.name = p_filter ->> 'destination'),
                           'true'),
                  CASE WHEN p_range = 'retrying' THEN 'tries > 0' ELSE 'true' END)
    END)
  END
$$;
