-- Fairness: which tenants a claim serves next. Messages without a tenant count as one tenant, with the name ''.
--
-- Tenants are served in the byte order of their names, and each claim continues after the last tenant served,
-- separately for messages without a key (in the queue) and messages with a key (in lanes). A claim finds tenants by
-- skipping through the index from one name to the next, whatever their backlogs. It skips a limited number of times and
-- serves the tenants that it has found; the next claim continues from there. Only if it finds none, it also serves the
-- tenants that have waited longest, and searches from a random place.

-- The tenant name under which a delivery waits. At a destination with fairness, a message without a tenant waits under
-- ''. Otherwise it has no name, which saves an index entry. A producer in REPEATABLE READ may see an old definition of
-- the destination, so its message always gets ''.
CREATE OR REPLACE FUNCTION fair_tenant(p_fairness text, p_tenant_id text)
RETURNS text
LANGUAGE sql STABLE
AS $$
  SELECT CASE
    WHEN p_tenant_id IS NULL
         AND (p_fairness = 'tenant' OR current_setting('transaction_isolation') <> 'read committed')
    THEN ''
    ELSE p_tenant_id
  END
$$;

-- Whether claims are shared between tenants already. Fairness begins when every transaction that may not have seen the
-- switch has ended; until then claims take the oldest messages first. Such a transaction got its id before it read the
-- destination, so its id is lower than fair_from, the id of the first claim that saw the switch. When all of them have
-- ended, deliveries and lanes without a tenant name get the name '', and none can follow.
CREATE OR REPLACE FUNCTION has_fairness(p_destination destinations)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_snapshot pg_snapshot := pg_current_snapshot();
  v_from     xid8;
BEGIN
  IF p_destination.is_fair THEN RETURN true; END IF;
  SELECT d.fair_from
    INTO v_from
    FROM destinations d
   WHERE d.id = p_destination.id
     AND d.fairness = 'tenant'
     AND NOT d.is_fair
     -- not if this transaction has switched it on: no other one has seen that yet
     AND d.xmin <> pg_current_xact_id()::xid
     FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN false; END IF;
  IF v_from IS NULL THEN
    UPDATE destinations SET fair_from = pg_current_xact_id() WHERE id = p_destination.id;
    RETURN false;
  END IF;
  -- an id in the future was recorded by another server, before this database was restored from a copy
  IF v_from > pg_snapshot_xmin(v_snapshot) AND v_from < pg_snapshot_xmax(v_snapshot) THEN RETURN false; END IF;

  UPDATE deliveries
     SET tenant_id = ''
   WHERE ctid = ANY (ARRAY (
           SELECT d.ctid
             FROM deliveries d
            WHERE d.destination_id = p_destination.id
              AND d.key_id IS NULL
              AND d.tenant_id IS NULL
              FOR UPDATE SKIP LOCKED));
  UPDATE lanes
     SET tenant_id = ''
   WHERE ctid = ANY (ARRAY (
           SELECT l.ctid
             FROM lanes l
            WHERE l.destination_id = p_destination.id
              AND l.tenant_id IS NULL
              FOR UPDATE SKIP LOCKED));
  -- the next claim tries again if another session has locked some of them
  UPDATE destinations t
     SET is_fair = true, fair_from = NULL
   WHERE t.id = p_destination.id
     AND NOT EXISTS (
           SELECT FROM deliveries d
            WHERE d.destination_id = p_destination.id
              AND d.key_id IS NULL
              AND d.tenant_id IS NULL)
     AND NOT EXISTS (
           SELECT FROM lanes l
            WHERE l.destination_id = p_destination.id
              AND l.tenant_id IS NULL);
  RETURN FOUND;
END $$;

-- At most p_max tenants with due messages, in lanes (p_lanes) or in the queue, in the order in which they are served:
-- those after p_after first, then from the beginning. p_tenant_ids: only these tenants. Empty if nothing is due.
CREATE OR REPLACE FUNCTION next_tenants(
  p_destination_id int,
  p_lanes          boolean,
  p_namespace      text,
  p_tenant_ids     text[],
  p_after          text,
  p_max            int)
RETURNS text[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_now   timestamptz := clock_timestamp();
  v_after text := coalesce(p_after, '') COLLATE "C";
  v_found text[];
  v_aged  text[];
  v_walk  record;
BEGIN
  IF p_tenant_ids IS NOT NULL THEN
    RETURN ARRAY (
      SELECT t.id
        FROM (SELECT i.id
                FROM (SELECT DISTINCT unnest(p_tenant_ids) COLLATE "C") i(id)
               ORDER BY i.id <= v_after, i.id) t
       WHERE has_due(p_destination_id, p_lanes, p_namespace, t.id, v_now)
       LIMIT p_max);
  END IF;
  -- chr(1) is the smallest character, so this finds the next name after v_after
  v_walk := walk_tenants(p_destination_id, p_lanes, p_namespace, v_after || chr(1), v_now, p_max);
  v_found := v_walk.tenants;
  IF v_walk.reached IS NULL AND cardinality(v_found) < p_max THEN
    v_walk := walk_tenants(p_destination_id, p_lanes, p_namespace, '', v_now, p_max);
    v_found := (v_found || ARRAY (
      SELECT t.id
        FROM unnest(v_walk.tenants) WITH ORDINALITY t(id, place)
       WHERE t.id COLLATE "C" <= v_after
       ORDER BY t.place))[:p_max];
  END IF;
  IF v_found <> '{}' OR v_walk.reached IS NULL THEN RETURN v_found; END IF;

  v_aged := ARRAY (
    SELECT x.tenant_id
      FROM ((SELECT d.tenant_id, d.available_at
               FROM deliveries d
              WHERE NOT p_lanes
                AND d.destination_id = p_destination_id
                AND d.key_id IS NULL
                AND d.available_at <= v_now
                AND NOT d.quarantined
                AND (p_namespace IS NULL OR d.namespace = p_namespace)
              ORDER BY d.available_at, d.message_id
              LIMIT 1000)
            UNION ALL
            (SELECT l.tenant_id, l.available_at
               FROM lanes l
              WHERE p_lanes
                AND l.destination_id = p_destination_id
                AND l.available_at IS NOT NULL
                AND l.blocked_by IS NULL
                AND l.available_at <= v_now
                AND (p_namespace IS NULL OR l.namespace = p_namespace)
              ORDER BY l.available_at, l.key_id
              LIMIT 1000)) x
     GROUP BY x.tenant_id
     ORDER BY min(x.available_at));
  IF v_aged = '{}' THEN RETURN v_aged; END IF;
  v_walk := walk_tenants(p_destination_id, p_lanes, p_namespace, coalesce(any_tenant(p_destination_id), ''), v_now,
                         p_max);
  -- the tenant with the oldest message comes first, so that its age is bounded
  v_found := v_aged[1:1] || array_remove(v_walk.tenants, v_aged[1]);
  RETURN (v_found || ARRAY (
    SELECT a.tenant
      FROM unnest(v_aged) WITH ORDINALITY a(tenant, place)
     WHERE a.tenant <> ALL (v_found)
     ORDER BY a.place))[:p_max];
END $$;

-- Whether the tenant has due messages, in lanes (p_lanes) or in the queue. The range of the tenant is written as in
-- claim_queue_fairly.
CREATE OR REPLACE FUNCTION has_due(
  p_destination_id int,
  p_lanes          boolean,
  p_namespace      text,
  p_tenant_id      text,
  p_now            timestamptz)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
  SELECT CASE
    WHEN p_lanes THEN (
      SELECT 1
        FROM lanes l
       WHERE l.destination_id = p_destination_id
         AND l.available_at IS NOT NULL
         AND l.blocked_by IS NULL
         AND l.tenant_id >= p_tenant_id
         AND (l.tenant_id, l.available_at) <= (p_tenant_id, p_now)
         AND (p_namespace IS NULL OR l.namespace = p_namespace)
       LIMIT 1)
    ELSE (
      SELECT 1
        FROM deliveries d
       WHERE d.destination_id = p_destination_id
         AND d.key_id IS NULL
         AND d.tenant_id >= p_tenant_id
         AND (d.tenant_id, d.available_at) <= (p_tenant_id, p_now)
         AND NOT d.quarantined
         AND (p_namespace IS NULL OR d.namespace = p_namespace)
       LIMIT 1)
    END IS NOT NULL
$$;

-- The first p_max tenants from p_from on that have due messages, in lanes (p_lanes) or in the queue. It stops after
-- skipping through 500 tenants; reached is then the last tenant that it has seen.
CREATE OR REPLACE FUNCTION walk_tenants(
  p_destination_id int,
  p_lanes          boolean,
  p_namespace      text,
  p_from           text,
  p_now            timestamptz,
  p_max            int,
  OUT tenants      text[],
  OUT reached      text)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
BEGIN
  IF p_lanes THEN
    WITH RECURSIVE skips AS (
      (SELECT l.tenant_id, l.available_at, 1 AS number
         FROM lanes l
        WHERE l.destination_id = p_destination_id
          AND l.available_at IS NOT NULL
          AND l.blocked_by IS NULL
          AND l.tenant_id >= p_from
        ORDER BY l.tenant_id, l.available_at, l.key_id
        LIMIT 1)
      UNION ALL
      SELECT n.*, s.number + 1
        FROM skips s
       CROSS JOIN LATERAL (
              SELECT l.tenant_id, l.available_at
                FROM lanes l
               WHERE l.destination_id = p_destination_id
                 AND l.available_at IS NOT NULL
                 AND l.blocked_by IS NULL
                 AND l.tenant_id > s.tenant_id
               ORDER BY l.tenant_id, l.available_at, l.key_id
               LIMIT 1) n
       WHERE s.number < 500)
    SELECT array_agg(x.tenant_id) FILTER (WHERE x.is_due), max(x.tenant_id) FILTER (WHERE x.number = 500)
      INTO tenants, reached
      FROM (SELECT s.tenant_id, s.number, d.is_due
              FROM skips s
             CROSS JOIN LATERAL (
                    SELECT s.available_at <= p_now
                           AND (p_namespace IS NULL OR has_due(p_destination_id, true, p_namespace, s.tenant_id, p_now))
                    OFFSET 0) d(is_due)
             WHERE d.is_due OR s.number = 500
             LIMIT p_max) x;
  ELSE
    WITH RECURSIVE skips AS (
      (SELECT d.tenant_id, d.available_at, d.quarantined, 1 AS number
         FROM deliveries d
        WHERE d.destination_id = p_destination_id
          AND d.key_id IS NULL
          AND d.tenant_id >= p_from
        ORDER BY d.tenant_id, d.available_at, d.message_id
        LIMIT 1)
      UNION ALL
      SELECT n.*, s.number + 1
        FROM skips s
       CROSS JOIN LATERAL (
              SELECT d.tenant_id, d.available_at, d.quarantined
                FROM deliveries d
               WHERE d.destination_id = p_destination_id
                 AND d.key_id IS NULL
                 AND d.tenant_id > s.tenant_id
               ORDER BY d.tenant_id, d.available_at, d.message_id
               LIMIT 1) n
       WHERE s.number < 500)
    SELECT array_agg(x.tenant_id) FILTER (WHERE x.is_due), max(x.tenant_id) FILTER (WHERE x.number = 500)
      INTO tenants, reached
      FROM (SELECT s.tenant_id, s.number, d.is_due
              FROM skips s
             CROSS JOIN LATERAL (
                    SELECT s.available_at <= p_now
                           AND ((p_namespace IS NULL AND NOT s.quarantined)
                                OR has_due(p_destination_id, false, p_namespace, s.tenant_id, p_now))
                    OFFSET 0) d(is_due)
             WHERE d.is_due OR s.number = 500
             LIMIT p_max) x;
  END IF;
  tenants := coalesce(tenants, '{}');
END $$;

-- The first tenant from p_from on with pending messages, with or without a key.
CREATE OR REPLACE FUNCTION next_tenant(p_destination_id int, p_from text)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
BEGIN
  RETURN least(
    (SELECT d.tenant_id
       FROM deliveries d
      WHERE d.destination_id = p_destination_id
        AND d.key_id IS NULL
        AND d.tenant_id >= p_from
      ORDER BY d.tenant_id, d.available_at, d.message_id
      LIMIT 1),
    (SELECT l.tenant_id
       FROM lanes l
      WHERE l.destination_id = p_destination_id
        AND l.available_at IS NOT NULL
        AND l.blocked_by IS NULL
        AND l.tenant_id >= p_from
      ORDER BY l.tenant_id, l.available_at, l.key_id
      LIMIT 1));
END $$;

-- A random tenant that has pending work. It is chosen letter by letter, each existing letter with the same probability.
-- So the cost is a few look-ups per letter, however many tenants and messages there are, and a tenant with many
-- messages is as likely as a tenant with one.
CREATE OR REPLACE FUNCTION any_tenant(p_destination_id int)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off
AS $$
DECLARE
  -- sorts after all names with the same prefix; in other encodings it may not, and then some tenants are more likely
  v_highest text := CASE WHEN getdatabaseencoding() = 'UTF8' THEN chr(1114111) ELSE chr(127) END;
  v_prefix  text := '';
  v_heads   text[];
  v_next    text;
  v_chosen  text;
BEGIN
  LOOP
    v_heads := '{}';
    v_next := next_tenant(p_destination_id, v_prefix);
    WHILE starts_with(v_next, v_prefix) AND cardinality(v_heads) < 256 LOOP
      v_heads := v_heads || v_next;
      v_next := next_tenant(p_destination_id, CASE
        WHEN v_next = v_prefix THEN v_prefix || chr(1)
        ELSE left(v_next, length(v_prefix) + 1) || v_highest
      END);
    END LOOP;
    v_chosen := v_heads[1 + floor(random() * cardinality(v_heads))::int];
    IF v_chosen IS NULL OR v_chosen = v_prefix THEN RETURN v_chosen; END IF;
    v_prefix := left(v_chosen, length(v_prefix) + 1);
    -- it is the only tenant with this prefix
    IF starts_with(next_tenant(p_destination_id, v_chosen || chr(1)), v_prefix) IS NOT TRUE THEN
      RETURN v_chosen;
    END IF;
  END LOOP;
END $$;

-- The tenant that this session served last at a destination, for a worker in SQL; part: queue or lanes. A session that
-- has served none begins with a random one. The mark '=' distinguishes an empty name from a setting that was rolled
-- back.
CREATE OR REPLACE FUNCTION last_served(p_destination_id int, p_part text)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_setting text := current_setting(served_setting(p_destination_id, p_part), true);
BEGIN
  RETURN CASE
    WHEN starts_with(v_setting, '=') THEN substr(v_setting, 2)
    ELSE coalesce(any_tenant(p_destination_id), '')
  END;
END $$;

-- The setting in which a session remembers the tenant that it served last.
CREATE OR REPLACE FUNCTION served_setting(p_destination_id int, p_part text)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT format('waybill.fairness_%s_%s', p_part, p_destination_id)
$$;

CREATE OR REPLACE FUNCTION remember_served(p_destination_id int, p_part text, p_tenant_id text)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
  SELECT set_config(served_setting(p_destination_id, p_part), '=' || p_tenant_id, false)
$$;

-- Of two tenants that a claim has served, the one that comes later in its order: after p_after first, then from the
-- beginning.
CREATE OR REPLACE FUNCTION later_served(p_after text, p_one text, p_other text)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_one IS NULL THEN p_other
    WHEN (p_other COLLATE "C" <= p_after COLLATE "C", p_other COLLATE "C")
         > (p_one COLLATE "C" <= p_after COLLATE "C", p_one COLLATE "C") THEN p_other
    ELSE p_one
  END
$$;
