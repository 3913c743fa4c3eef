-- Groups of dead letters by cause, over all destinations. Usually one action solves all letters of a group.

-- Groups the dead letters that match, largest group first. Without a destination, topic and tenant, it skips through an
-- index from one cause to the next (at most 500), and counts each up to counted_at_most. The rest is divided among the
-- larger groups, in proportion to the planner's estimates: such counts are not exact, and never below counted_at_most.
-- With one of these filters, it groups the newest 10,000 letters that match: if there are more, no count is exact.
-- destinations: how many destinations the counted letters have; worst: the one with the most of them. The sample is the
-- newest letter.
CREATE OR REPLACE FUNCTION dead_letter_groups(
  destination     text DEFAULT NULL,
  topic           text DEFAULT NULL,
  tenant_id       text DEFAULT NULL,
  counted_at_most int DEFAULT 1000)
RETURNS TABLE (
  cause text, error_code text, remote_code text, count bigint, is_exact boolean, destinations bigint, worst text,
  oldest_at timestamptz, newest_at timestamptz, sample_id uuid, sample_error text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
  v_destination_id int := (SELECT t.id FROM destinations t WHERE t.name = destination);
BEGIN
  PERFORM checked_number('counted_at_most', counted_at_most, 1, 10000);
  IF coalesce(destination, topic, tenant_id) IS NULL THEN
    RETURN QUERY SELECT g.* FROM all_letter_groups(counted_at_most) g;
    RETURN;
  END IF;
  RETURN QUERY
    WITH letters AS MATERIALIZED (
      SELECT cause_of(d.error_code, d.remote_code) AS cause, d.destination_id, d.error_code, d.remote_code, d.dead_at,
             d.message_id, d.error_message
        FROM dead_letters d
       WHERE (destination IS NULL OR d.destination_id = v_destination_id)
         AND (dead_letter_groups.topic IS NULL OR d.topic = dead_letter_groups.topic)
         AND (dead_letter_groups.tenant_id IS NULL OR d.tenant_id = dead_letter_groups.tenant_id)
       ORDER BY d.dead_at DESC, d.message_id DESC
       LIMIT 10000),
    places AS (
      SELECT l.cause, l.destination_id, count(*) AS count, min(l.dead_at) AS oldest
        FROM letters l
       GROUP BY l.cause, l.destination_id),
    groups AS (
      SELECT p.cause, sum(p.count)::bigint AS count, count(*) AS destinations, min(p.oldest) AS oldest,
             (array_agg(p.destination_id ORDER BY p.count DESC, p.destination_id))[1] AS worst_id
        FROM places p
       GROUP BY p.cause)
    SELECT g.cause, s.error_code, s.remote_code, g.count, (SELECT count(*) < 10000 FROM letters), g.destinations,
           t.name, g.oldest, s.dead_at, s.message_id, s.error_message
      FROM groups g
      JOIN (SELECT DISTINCT ON (l.cause) l.*
              FROM letters l
             ORDER BY l.cause, l.dead_at DESC, l.message_id DESC) s ON s.cause = g.cause
      JOIN destinations t ON t.id = g.worst_id
     ORDER BY g.count DESC, g.cause;
END $$;

-- The groups of all dead letters.
CREATE OR REPLACE FUNCTION all_letter_groups(p_counted_at_most int)
RETURNS TABLE (
  cause text, error_code text, remote_code text, count bigint, is_exact boolean, destinations bigint, worst text,
  oldest_at timestamptz, newest_at timestamptz, sample_id uuid, sample_error text)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
  v_all bigint;
BEGIN
  SELECT count(*) INTO v_all FROM (SELECT FROM dead_letters LIMIT 10000) x;
  IF v_all = 10000 THEN v_all := greatest(v_all, estimated_rows('SELECT FROM dead_letters')); END IF;
  RETURN QUERY
    WITH RECURSIVE causes AS (
      SELECT (SELECT cause_of(x.error_code, x.remote_code)
                FROM dead_letters x
               ORDER BY cause_of(x.error_code, x.remote_code)
               LIMIT 1) AS cause
      UNION ALL
      SELECT (SELECT cause_of(x.error_code, x.remote_code)
                FROM dead_letters x
               WHERE cause_of(x.error_code, x.remote_code) > c.cause
               ORDER BY cause_of(x.error_code, x.remote_code)
               LIMIT 1)
        FROM causes c
       WHERE c.cause IS NOT NULL),
    groups AS MATERIALIZED (
      SELECT c.cause, s.error_code, s.remote_code, n.count, n.count < p_counted_at_most AS is_exact, n.destinations,
             n.worst_id, o.dead_at AS oldest, s.dead_at AS newest, s.message_id, s.error_message
        FROM (SELECT x.cause FROM causes x WHERE x.cause IS NOT NULL LIMIT 500) c
       CROSS JOIN LATERAL (
              SELECT x.error_code, x.remote_code, x.dead_at, x.message_id, x.error_message
                FROM dead_letters x
               WHERE cause_of(x.error_code, x.remote_code) = c.cause
               ORDER BY x.dead_at DESC, x.message_id DESC
               LIMIT 1) s
       CROSS JOIN LATERAL (
              SELECT x.dead_at
                FROM dead_letters x
               WHERE cause_of(x.error_code, x.remote_code) = c.cause
               ORDER BY x.dead_at, x.message_id
               LIMIT 1) o
       CROSS JOIN LATERAL (
              SELECT sum(p.count)::bigint AS count, count(*) AS destinations,
                     (array_agg(p.destination_id ORDER BY p.count DESC, p.destination_id))[1] AS worst_id
                FROM (SELECT y.destination_id, count(*) AS count
                        FROM (SELECT x.destination_id
                                FROM dead_letters x
                               WHERE cause_of(x.error_code, x.remote_code) = c.cause
                               ORDER BY x.dead_at DESC, x.message_id DESC
                               LIMIT p_counted_at_most) y
                       GROUP BY y.destination_id) p) n),
    weights AS MATERIALIZED (
      SELECT g.cause,
             greatest(1, estimated_rows(format(
               'SELECT FROM dead_letters WHERE cause_of(error_code, remote_code) = %L', g.cause))) AS weight
        FROM groups g
       WHERE NOT g.is_exact)
    SELECT g.cause, g.error_code, g.remote_code,
           CASE
             WHEN g.is_exact THEN g.count
             ELSE greatest(g.count, round((v_all - r.counted) * w.weight / r.weight)::bigint)
           END AS count,
           g.is_exact, g.destinations, t.name, g.oldest, g.newest, g.message_id, g.error_message
      FROM groups g
      JOIN destinations t ON t.id = g.worst_id
      LEFT JOIN weights w ON w.cause = g.cause
     CROSS JOIN (
            SELECT coalesce(sum(e.count) FILTER (WHERE e.is_exact), 0) AS counted, sum(x.weight) AS weight
              FROM groups e
              LEFT JOIN weights x ON x.cause = e.cause) r
     ORDER BY 4 DESC, g.cause;
END $$;
