-- Walks of a search: each skips through an index from one value to the next, so its cost depends on the number of
-- values, not on the number of messages.

-- The topics of the log that begin with this text, of the days of these two ids (null: of all days). It skips through
-- the index from one topic to the next, at most p_visited (null: all); if there are more, the last row is null. The
-- index has the order of the database's collation, which may put other topics between those with the same beginning,
-- because it compares case and punctuation last. So the walk ends at the first topic whose letters and digits differ.
CREATE OR REPLACE FUNCTION topics_with(p_beginning text, p_from uuid, p_to uuid, p_visited int) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
  v_letters text := letters_of(p_beginning);
  -- whole days: the index has no ids, so a bound within a day would read every entry of a topic
  v_from    uuid := coalesce(id_at(date_trunc('day', id_time(p_from), 'UTC')), '00000000-0000-0000-0000-000000000000');
  -- without an end, the empty days ahead are left out, except tomorrow, for a clock that ran ahead
  v_to      uuid := id_at(coalesce(date_trunc('day', id_time(p_to), 'UTC') + interval '1 day',
                                   date_trunc('day', statement_timestamp(), 'UTC') + interval '2 days'));
BEGIN
  RETURN QUERY
    WITH RECURSIVE visited AS (
      (SELECT m.topic
         FROM messages m
        WHERE m.topic >= p_beginning
          AND m.id >= v_from
          AND m.id < v_to
        ORDER BY m.topic
        LIMIT 1)
      UNION ALL
      SELECT (SELECT m.topic
                FROM messages m
               WHERE m.topic > v.topic
                 AND m.id >= v_from
                 AND m.id < v_to
               ORDER BY m.topic
               LIMIT 1)
        FROM visited v
       WHERE starts_with(letters_of(v.topic), v_letters))
    SELECT CASE WHEN x.number > p_visited THEN NULL ELSE x.topic END
      FROM (SELECT v.topic, row_number() OVER () AS number FROM visited v LIMIT p_visited + 1) x
     WHERE starts_with(x.topic, p_beginning)
        OR (x.number > p_visited AND starts_with(letters_of(x.topic), v_letters));
END $$;

-- The topics of dead letters that begin with this text. p_visited: as in topics_with.
CREATE OR REPLACE FUNCTION dead_topics_with(p_beginning text, p_visited int) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
  v_letters text := letters_of(p_beginning);
BEGIN
  RETURN QUERY
    WITH RECURSIVE visited AS (
      (SELECT d.topic
         FROM dead_letters d
        WHERE d.topic >= p_beginning
        ORDER BY d.topic
        LIMIT 1)
      UNION ALL
      SELECT (SELECT d.topic
                FROM dead_letters d
               WHERE d.topic > v.topic
               ORDER BY d.topic
               LIMIT 1)
        FROM visited v
       WHERE starts_with(letters_of(v.topic), v_letters))
    SELECT CASE WHEN x.number > p_visited THEN NULL ELSE x.topic END
      FROM (SELECT v.topic, row_number() OVER () AS number FROM visited v LIMIT p_visited + 1) x
     WHERE starts_with(x.topic, p_beginning)
        OR (x.number > p_visited AND starts_with(letters_of(x.topic), v_letters));
END $$;

-- The tenants that begin with this text, of messages since the day of this id; at most p_visited are looked at. It
-- skips through the index as topics_with does.
CREATE OR REPLACE FUNCTION tenants_with(p_beginning text, p_from uuid, p_visited int) RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
  v_letters text := letters_of(p_beginning);
  -- whole days up to tomorrow, as in topics_with
  v_from    uuid := id_at(date_trunc('day', id_time(p_from), 'UTC'));
  v_to      uuid := id_at(date_trunc('day', statement_timestamp(), 'UTC') + interval '2 days');
BEGIN
  RETURN QUERY
    WITH RECURSIVE visited AS (
      (SELECT m.tenant_id
         FROM messages m
        WHERE m.tenant_id >= p_beginning
          AND m.id >= v_from
          AND m.id < v_to
        ORDER BY m.tenant_id
        LIMIT 1)
      UNION ALL
      SELECT (SELECT m.tenant_id
                FROM messages m
               WHERE m.tenant_id > v.tenant_id
                 AND m.id >= v_from
                 AND m.id < v_to
               ORDER BY m.tenant_id
               LIMIT 1)
        FROM visited v
       WHERE starts_with(letters_of(v.tenant_id), v_letters))
    SELECT x.tenant_id
      FROM (SELECT v.tenant_id FROM visited v LIMIT p_visited) x
     WHERE starts_with(x.tenant_id, p_beginning);
END $$;

-- The letters and digits of a text in lower case, which linguistic collations compare before case and punctuation.
CREATE OR REPLACE FUNCTION letters_of(p_text text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN lower(regexp_replace(p_text, '[^[:alnum:]]', '', 'g'));

-- The error codes of failed attempts, of the days of these two ids. It skips through the index from one to the next.
CREATE OR REPLACE FUNCTION failure_codes(p_from uuid, p_to uuid) RETURNS SETOF text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
DECLARE
  -- whole days, so that one entry of a code is enough
  v_from uuid := id_at(date_trunc('day', id_time(p_from), 'UTC'));
  v_to   uuid := id_at(date_trunc('day', id_time(p_to), 'UTC') + interval '1 day');
BEGIN
  RETURN QUERY
    WITH RECURSIVE codes AS (
      (SELECT a.error_code
         FROM attempts a
        WHERE a.error_code IS NOT NULL
          AND a.message_id >= v_from
          AND a.message_id < v_to
        ORDER BY a.error_code
        LIMIT 1)
      UNION ALL
      SELECT (SELECT a.error_code
                FROM attempts a
               WHERE a.error_code > c.error_code
                 AND a.message_id >= v_from
                 AND a.message_id < v_to
               ORDER BY a.error_code
               LIMIT 1)
        FROM codes c
       WHERE c.error_code IS NOT NULL)
    SELECT c.error_code FROM codes c WHERE c.error_code IS NOT NULL;
END $$;

-- Looks a dedupe key up. The keys are unique for each namespace, tenant and topic, and have no index of their own: it
-- skips from one such group to the next, after the given one ('' before the first), and looks the key up in each. One
-- row for each group, with the id of the message that has the key there, else null; at most p_most groups. A null
-- argument does not filter.
CREATE OR REPLACE FUNCTION find_dedupe_key(
  p_dedupe_key text,
  p_namespace  text,
  p_tenant_id  text,
  p_after      text[],
  p_most       int)
RETURNS TABLE (message_id uuid, namespace text, tenant_id text, topic text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
  v_namespace text := coalesce(nullif(p_after[1], ''), p_namespace, '');
  v_tenant    text := CASE WHEN p_after[1] = '' THEN coalesce(p_tenant_id, '') ELSE p_after[2] END;
  v_topic     text := p_after[3];
  v_found     int := 0;
BEGIN
  WHILE v_found < p_most LOOP
    SELECT k.namespace, k.tenant_id, k.topic
      INTO v_namespace, v_tenant, v_topic
      FROM dedupe_keys k
     WHERE (k.namespace, k.tenant_id, k.topic) > (v_namespace, v_tenant, v_topic)
     ORDER BY k.namespace, k.tenant_id, k.topic
     LIMIT 1;
    EXIT WHEN NOT FOUND OR v_namespace <> p_namespace;
    IF v_tenant <> p_tenant_id THEN
      IF v_tenant > p_tenant_id THEN
        SELECT k.namespace INTO v_namespace
          FROM dedupe_keys k
         WHERE k.namespace > v_namespace
         ORDER BY k.namespace
         LIMIT 1;
        EXIT WHEN NOT FOUND OR v_namespace <> p_namespace;
      END IF;
      v_tenant := p_tenant_id;
      v_topic := '';
      CONTINUE;
    END IF;
    v_found := v_found + 1;
    RETURN QUERY
      SELECT (SELECT k.message_id
                FROM dedupe_keys k
               WHERE k.namespace = v_namespace
                 AND k.tenant_id = v_tenant
                 AND k.topic = v_topic
                 AND k.dedupe_key = p_dedupe_key),
             v_namespace, v_tenant, v_topic;
  END LOOP;
END $$;

-- Suggestions for a search box: topics and tenants of the last week, and destinations, that begin with this text, at
-- most p_most of each. It visits at most 200 of each. A session that is limited to a tenant gets the topics of the
-- tenant's last 1,000 messages, no destinations, and no other tenant.
CREATE OR REPLACE FUNCTION search_suggestions(p_text text, p_most int) RETURNS TABLE (kind text, value text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
DECLARE
  v_tenant text := session_tenant();
  v_from   uuid := id_at(statement_timestamp() - interval '7 days');
BEGIN
  IF v_tenant IS NOT NULL THEN
    RETURN QUERY
      SELECT DISTINCT 'topic', x.topic
        FROM (SELECT m.topic
                FROM messages m
               WHERE m.tenant_id = v_tenant
                 AND m.id >= v_from
                 AND id_slot(m.id) >= id_slot(v_from)
               ORDER BY id_slot(m.id) DESC
               LIMIT 1000) x
       WHERE starts_with(x.topic, p_text)
       ORDER BY x.topic
       LIMIT p_most;
    RETURN QUERY SELECT 'tenant', v_tenant WHERE starts_with(v_tenant, p_text);
    RETURN;
  END IF;
  RETURN QUERY
    SELECT 'topic', t.topic
      FROM topics_with(p_text, v_from, NULL, 200) t(topic)
     WHERE t.topic IS NOT NULL
     LIMIT p_most;
  RETURN QUERY
    SELECT 'tenant', t.tenant_id
      FROM tenants_with(p_text, v_from, 200) t(tenant_id)
     LIMIT p_most;
  RETURN QUERY
    SELECT 'destination', x.name
      FROM (SELECT d.name FROM destinations d WHERE d.name >= p_text ORDER BY d.name LIMIT 200) x
     WHERE starts_with(x.name, p_text)
     LIMIT p_most;
END $$;
