-- Unrouted messages: no route and no cursor wanted them when they were enqueued. They are kept, with their day of the
-- log, until an operator routes or discards them. A producer can ask to have them refused instead.

-- The first of p_messages (as in enqueue_many) that no route and no cursor wants, or no row. position counts from 0.
CREATE OR REPLACE FUNCTION first_unrouted(p_messages jsonb)
RETURNS TABLE ("position" int, topic text, namespace text, tenant text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT k.position, k.topic, k.namespace, k.tenant
    FROM (SELECT (min(m.number) - 1)::int AS position,
                 m.message ->> 'topic' AS topic,
                 coalesce(m.message ->> 'namespace', 'default') AS namespace,
                 m.message ->> 'tenantId' AS tenant
            FROM jsonb_array_elements(p_messages) WITH ORDINALITY AS m(message, number)
           GROUP BY 2, 3, 4) k
   WHERE NOT EXISTS (SELECT FROM targets_of(k.topic, k.namespace, k.tenant))
     AND NOT has_cursor(k.topic, k.namespace, k.tenant)
   ORDER BY k.position
   LIMIT 1
$$;

-- Refuses unrouted messages before enqueue_many writes anything.
CREATE OR REPLACE FUNCTION refuse_unrouted(p_messages jsonb, p_unrouted text) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_first record;
BEGIN
  IF p_unrouted <> 'refuse' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      HINT = 'Nothing was enqueued.',
      MESSAGE = format('unrouted is "%s": give keep or refuse, as an argument or in the setting waybill.unrouted',
                       left(p_unrouted, 60));
  END IF;
  SELECT u.* INTO v_first FROM first_unrouted(p_messages) u;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      COLUMN = 'topic',
      MESSAGE = format('no route matches the topic "%s" (namespace %s, %s), and no cursor reads it',
                       v_first.topic, v_first.namespace, coalesce('tenant ' || v_first.tenant, 'no tenant')),
      HINT = 'Nothing was enqueued. Add a route for it to the configuration and start a relay with that; '
             || 'or leave unrouted at keep, and the message waits for a route.';
  END IF;
END $$;

-- Groups unrouted messages by topic, namespace and tenant, the largest group first: how many, from when, and whether a
-- route wants them now. only_split: only split routes want them; route_unrouted does not use those, because the
-- other system may have sent the messages. late: how many would arrive after later messages of their key, which a
-- destination of such a route has or had already. It counts the oldest max_count messages; is_exact is false if there
-- may be more.
CREATE OR REPLACE FUNCTION unrouted_groups(
  topic          text DEFAULT NULL,
  namespace      text DEFAULT NULL,
  tenant_id      text DEFAULT NULL,
  created_before timestamptz DEFAULT NULL,
  max_count      int DEFAULT 100000)
RETURNS TABLE (
  group_topic text, group_namespace text, group_tenant_id text, count int, oldest_at timestamptz, newest_at timestamptz,
  example uuid, has_route boolean, only_split boolean, late int, is_exact boolean)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
#variable_conflict use_column
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  RETURN QUERY
    WITH seen AS MATERIALIZED (
      SELECT u.message_id, u.key_id, u.sequence, m.topic, m.namespace, m.tenant_id
        FROM unrouted_messages u
       CROSS JOIN LATERAL (SELECT * FROM messages x WHERE x.id = u.message_id OFFSET 0) m
       WHERE (created_before IS NULL OR u.message_id < id_at(created_before))
         AND (unrouted_groups.topic IS NULL OR m.topic = unrouted_groups.topic)
         AND (unrouted_groups.namespace IS NULL OR m.namespace = unrouted_groups.namespace)
         AND (unrouted_groups.tenant_id IS NULL OR m.tenant_id = unrouted_groups.tenant_id)
       ORDER BY u.message_id
       LIMIT max_count),
    kinds AS (
      SELECT s.topic, s.namespace, s.tenant_id,
             count(*)::int AS count,
             id_time(min(s.message_id::text)::uuid) AS oldest_at,
             id_time(max(s.message_id::text)::uuid) AS newest_at,
             max(s.message_id::text)::uuid AS example
        FROM seen s
       GROUP BY s.topic, s.namespace, s.tenant_id),
    wanted AS MATERIALIZED (
      SELECT k.*, w.has_route, w.only_split, w.destination_ids
        FROM kinds k
       CROSS JOIN LATERAL (
              SELECT coalesce(bool_or(r.split_by IS NULL), false) AS has_route,
                     coalesce(bool_and(r.split_by IS NOT NULL), false) AS only_split,
                     array_agg(r.destination_id) FILTER (WHERE r.split_by IS NULL) AS destination_ids
                -- two halves, each an index scan, as in targets_of
                FROM (SELECT x.* FROM routes x WHERE x.tenant_id IS NULL
                      UNION ALL
                      SELECT x.* FROM routes x WHERE x.tenant_id = k.tenant_id) r
               WHERE route_matches(r.topic, r.namespace, NULL, k.topic, k.namespace, k.tenant_id)) w),
    overtaken AS (
      SELECT s.topic, s.namespace, s.tenant_id, count(*)::int AS count
        FROM seen s
        JOIN wanted w ON w.topic = s.topic
                     AND w.namespace = s.namespace
                     AND w.tenant_id IS NOT DISTINCT FROM s.tenant_id
       WHERE s.key_id IS NOT NULL
         AND EXISTS (
               SELECT FROM lanes l
                WHERE l.destination_id = ANY (w.destination_ids)
                  AND l.key_id = s.key_id
                  AND (l.last_sequence > s.sequence OR l.lease_id IS NOT NULL))
       GROUP BY s.topic, s.namespace, s.tenant_id)
    SELECT w.topic, w.namespace, w.tenant_id, w.count, w.oldest_at, w.newest_at, w.example, w.has_route, w.only_split,
           coalesce(o.count, 0), (SELECT count(*) FROM seen) < max_count
      FROM wanted w
      LEFT JOIN overtaken o ON o.topic = w.topic
                           AND o.namespace = w.namespace
                           AND o.tenant_id IS NOT DISTINCT FROM w.tenant_id
     ORDER BY w.count DESC, w.topic, w.namespace, w.tenant_id;
END $$;

-- Discards unrouted messages: they are never sent, and no longer stay in the log. One call reads max_count of
-- them. Pass last as after in the next call, until seen is less than max_count.
CREATE OR REPLACE FUNCTION discard_unrouted(
  topic          text DEFAULT NULL,
  namespace      text DEFAULT NULL,
  tenant_id      text DEFAULT NULL,
  created_before timestamptz DEFAULT NULL,
  after          uuid DEFAULT NULL,
  max_count      int DEFAULT 1000,
  actor          text DEFAULT NULL,
  OUT discarded  int,
  OUT seen       int,
  OUT last       uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
#variable_conflict use_column
DECLARE
  v_ids uuid[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  v_ids := ARRAY (
    SELECT u.message_id
      FROM unrouted_messages u
     WHERE (after IS NULL OR u.message_id > after)
       AND (created_before IS NULL OR u.message_id < id_at(created_before))
     ORDER BY u.message_id
     LIMIT max_count
       FOR UPDATE SKIP LOCKED);
  seen := cardinality(v_ids);
  last := coalesce(v_ids[seen], after);
  WITH gone AS (
    DELETE FROM unrouted_messages u
     WHERE u.message_id = ANY (v_ids)
       AND ((discard_unrouted.topic IS NULL
             AND discard_unrouted.namespace IS NULL
             AND discard_unrouted.tenant_id IS NULL)
            OR EXISTS (
                 SELECT FROM messages m
                  WHERE m.id = u.message_id
                    AND (discard_unrouted.topic IS NULL OR m.topic = discard_unrouted.topic)
                    AND (discard_unrouted.namespace IS NULL OR m.namespace = discard_unrouted.namespace)
                    AND (discard_unrouted.tenant_id IS NULL OR m.tenant_id = discard_unrouted.tenant_id)))
    RETURNING 1)
  SELECT count(*)
    INTO discarded
    FROM gone;
  IF discarded > 0 THEN
    PERFORM record_action(actor, 'discard_unrouted', jsonb_build_object(
      'topic', topic,
      'namespace', namespace,
      'tenantId', tenant_id,
      'createdBefore', created_before), discarded);
  END IF;
END $$;

-- Routes unrouted messages that a route wants by now: they become deliveries. This needs an operator, because the
-- messages may be old. One call looks at max_count messages; those that still have no route stay. Pass last as after in
-- the next call, so that it does not look at them again.
CREATE OR REPLACE FUNCTION route_unrouted(
  after      uuid DEFAULT NULL,
  max_count  int DEFAULT 1000,
  actor      text DEFAULT NULL,
  OUT routed int,
  OUT seen   int,
  OUT last   uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_batch record;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  SELECT * INTO v_batch FROM lock_unrouted(after, NULL, max_count);
  seen := v_batch.seen;
  last := v_batch.last;
  routed := CASE WHEN seen > 0 THEN deliver_unrouted(v_batch.ids, NULL) ELSE 0 END;
  IF routed > 0 THEN
    PERFORM record_action(actor, 'route_unrouted', '{}', routed);
  END IF;
END $$;
