-- Turns: where tenants take them, whose is next. What has no tenant waits as the tenant ''.
--
-- Turns go round in the order of the tenants' names, bytewise, behind whoever had the last one. Tenants are found by
-- leaping from one to the next in the index, whatever lies between; a claim leaps a bounded number of times and serves
-- whom it has found, so the next one goes on from there. Only if it has found nobody it asks who has waited longest,
-- and looks from some other place too.

-- The name under which a message waits. A producer in REPEATABLE READ may see a definition of long ago: what has no
-- tenant can take a turn then, wherever it goes.
CREATE OR REPLACE FUNCTION turn_of(p_fairness text, p_tenant_id text) RETURNS text LANGUAGE sql STABLE AS $$
  SELECT CASE WHEN p_tenant_id IS NULL AND (p_fairness = 'tenant' OR current_setting('transaction_isolation') <> 'read committed')
              THEN '' ELSE p_tenant_id END
$$;

-- A destination begins with turns, while transactions are open that know nothing of it: what they bring has no turn.
-- Everybody has a transaction number before they look whether tenants take turns, so they can be told by their numbers,
-- and each of them gets a ticket with its number, negative, for the destination. It takes three steps: the transaction
-- that changes the destination leaves a ticket for itself; the first claim after its commit replaces that by one of its
-- own, for a later number; and when that has committed too, a snapshot shows all who are older and still open.
CREATE OR REPLACE FUNCTION owe_turns(p_destination_id smallint) RETURNS void LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  INSERT INTO lane_tickets (destination_id, id, stream_id, recheck) OVERRIDING SYSTEM VALUE
  VALUES (p_destination_id, -pg_current_xact_id()::text::bigint, 1, true) ON CONFLICT DO NOTHING
$$;

-- Gives turns to what was brought by transactions that knew nothing of them, whenever one of these has ended: that is
-- one look at everything that waits, at most once for each of them.
CREATE OR REPLACE FUNCTION give_turns(p_destination_id smallint) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_ended bigint[];
  v_step  bigint;
BEGIN
  IF (SELECT 1 FROM lane_tickets t WHERE t.destination_id = p_destination_id AND t.id < 0 LIMIT 1) IS NULL THEN RETURN; END IF;
  SELECT array_agg(x.id), min(x.stream_id) FILTER (WHERE x.recheck) INTO v_ended, v_step
    FROM (SELECT t.id, t.stream_id, t.recheck FROM lane_tickets t
           WHERE t.destination_id = p_destination_id AND t.id < 0
             -- one that is to come was noted by another server, from which this was restored
             AND (pg_visible_in_snapshot((-t.id)::text::xid8, pg_current_snapshot())
                  OR (-t.id)::text::xid8 >= pg_snapshot_xmax(pg_current_snapshot()))
             -- a snapshot leaves out its own transaction, as if it had ended
             AND t.id IS DISTINCT FROM -pg_current_xact_id_if_assigned()::text::bigint FOR UPDATE SKIP LOCKED) x;
  IF v_ended IS NULL THEN RETURN; END IF;
  IF v_step = 1 THEN
    INSERT INTO lane_tickets (destination_id, id, stream_id, recheck) OVERRIDING SYSTEM VALUE
    VALUES (p_destination_id, -pg_current_xact_id()::text::bigint, 2, true);
    DELETE FROM lane_tickets t WHERE t.destination_id = p_destination_id AND t.id = ANY (v_ended) AND t.recheck;
    RETURN;
  END IF;
  -- before the look: who ends in between is looked at once more
  IF v_step = 2 THEN
    INSERT INTO lane_tickets (destination_id, id, stream_id) OVERRIDING SYSTEM VALUE
    SELECT p_destination_id, -x::text::bigint, 0 FROM pg_snapshot_xip(pg_current_snapshot()) x ON CONFLICT DO NOTHING;
  END IF;
  UPDATE deliveries SET tenant_id = '' WHERE ctid = ANY (ARRAY (
    SELECT d.ctid FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id IS NULL
       FOR UPDATE SKIP LOCKED));
  UPDATE lanes SET tenant_id = '' WHERE ctid = ANY (ARRAY (
    SELECT l.ctid FROM lanes l WHERE l.destination_id = p_destination_id AND l.tenant_id IS NULL FOR UPDATE SKIP LOCKED));
  -- what somebody had locked is looked at again by the next claim
  DELETE FROM lane_tickets t WHERE t.destination_id = p_destination_id AND t.id = ANY (v_ended)
     AND NOT EXISTS (SELECT FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id IS NULL)
     AND NOT EXISTS (SELECT FROM lanes l WHERE l.destination_id = p_destination_id AND l.tenant_id IS NULL);
END $$;

-- The first p_max tenants from p_from on that have due work, in the queue or in lanes, in one namespace or in any; after
-- 500 leaps it ends, and reached is the last tenant that it has seen.
CREATE OR REPLACE FUNCTION walk_tenants(
  p_destination_id smallint, p_namespace text, p_from text, p_now timestamptz, p_max int, OUT tenants text[], OUT reached text)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
  WITH RECURSIVE queue AS (
    (SELECT d.tenant_id, d.available_at, 1 AS leaps FROM deliveries d
      WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id >= p_from
      ORDER BY d.tenant_id, d.available_at, d.message_id LIMIT 1)
    UNION ALL
    SELECT n.*, q.leaps + 1 FROM queue q CROSS JOIN LATERAL (
      SELECT d.tenant_id, d.available_at FROM deliveries d
       WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id > q.tenant_id
       ORDER BY d.tenant_id, d.available_at, d.message_id LIMIT 1) n WHERE q.leaps < 500),
  lane AS (
    (SELECT l.tenant_id, l.available_at, 1 AS leaps FROM lanes l
      WHERE l.destination_id = p_destination_id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL AND l.tenant_id >= p_from
      ORDER BY l.tenant_id, l.available_at, l.stream_id LIMIT 1)
    UNION ALL
    SELECT n.*, q.leaps + 1 FROM lane q CROSS JOIN LATERAL (
      SELECT l.tenant_id, l.available_at FROM lanes l
       WHERE l.destination_id = p_destination_id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL AND l.tenant_id > q.tenant_id
       ORDER BY l.tenant_id, l.available_at, l.stream_id LIMIT 1) n WHERE q.leaps < 500),
  seen AS (
    (SELECT x.* FROM (
       SELECT q.tenant_id, q.leaps, q.available_at <= p_now AND (p_namespace IS NULL OR (
                SELECT 1 FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id = q.tenant_id
                   AND d.available_at <= p_now AND d.namespace = p_namespace LIMIT 1) IS NOT NULL) AS is_due FROM queue q) x
      WHERE x.is_due OR x.leaps = 500 LIMIT p_max)
    UNION ALL
    (SELECT x.* FROM (
       SELECT q.tenant_id, q.leaps, q.available_at <= p_now AND (p_namespace IS NULL OR (
                SELECT 1 FROM lanes l WHERE l.destination_id = p_destination_id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL
                   AND l.tenant_id = q.tenant_id AND l.available_at <= p_now AND l.namespace = p_namespace LIMIT 1) IS NOT NULL) AS is_due FROM lane q) x
      WHERE x.is_due OR x.leaps = 500 LIMIT p_max))
  SELECT ARRAY (SELECT DISTINCT s.tenant_id COLLATE "C" FROM seen s WHERE s.is_due ORDER BY 1), min(s.tenant_id COLLATE "C") FILTER (WHERE s.leaps = 500)
    INTO tenants, reached FROM seen s;
  -- what one of the two has seen beyond the other's end is left for the next
  tenants := (ARRAY (SELECT t COLLATE "C" FROM unnest(tenants) t WHERE reached IS NULL OR t COLLATE "C" <= reached ORDER BY 1))[:p_max];
END $$;

-- Tenants with due work, in one namespace or in any, at most p_max of them, beginning behind p_after and then from the
-- first. Empty if nothing is due; null if there are none of that kind, but perhaps something that has no turn yet.
CREATE OR REPLACE FUNCTION due_tenants_in(p_destination_id smallint, p_namespace text, p_tenant_ids text[], p_after text, p_max int)
RETURNS text[] LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now   timestamptz := clock_timestamp();
  v_after text := coalesce(p_after, '') COLLATE "C";
  v_found text[];
  v_aged  text[];
  v_walk  record;
BEGIN
  IF p_tenant_ids IS NOT NULL THEN
    RETURN ARRAY (
      SELECT t.id FROM (SELECT i.id FROM (SELECT DISTINCT unnest(p_tenant_ids) COLLATE "C") i(id) ORDER BY i.id <= v_after, i.id) t
       WHERE (SELECT 1 FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id = t.id
                 AND d.available_at <= v_now AND (p_namespace IS NULL OR d.namespace = p_namespace) LIMIT 1) IS NOT NULL
          OR (SELECT 1 FROM lanes l WHERE l.destination_id = p_destination_id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL
                 AND l.tenant_id = t.id AND l.available_at <= v_now AND (p_namespace IS NULL OR l.namespace = p_namespace) LIMIT 1) IS NOT NULL
       LIMIT p_max);
  END IF;
  -- chr(1): no text lies between a tenant and this
  v_walk := walk_tenants(p_destination_id, p_namespace, v_after || chr(1), v_now, p_max);
  v_found := v_walk.tenants;
  IF v_walk.reached IS NULL AND cardinality(v_found) < p_max THEN
    v_walk := walk_tenants(p_destination_id, p_namespace, '', v_now, p_max);
    v_found := (v_found || ARRAY (SELECT t COLLATE "C" FROM unnest(v_walk.tenants) t WHERE t COLLATE "C" <= v_after ORDER BY 1))[:p_max];
  END IF;
  IF v_found <> '{}' OR v_walk.reached IS NULL THEN RETURN nullif(v_found, '{}'); END IF;

  v_aged := ARRAY (
    SELECT x.tenant_id FROM (
      (SELECT d.tenant_id, d.available_at FROM deliveries d
        WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.available_at <= v_now
          AND (p_namespace IS NULL OR d.namespace = p_namespace) ORDER BY d.available_at, d.message_id LIMIT 1000)
      UNION ALL
      (SELECT l.tenant_id, l.available_at FROM lanes l
        WHERE l.destination_id = p_destination_id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL AND l.available_at <= v_now
          AND (p_namespace IS NULL OR l.namespace = p_namespace) ORDER BY l.available_at, l.stream_id LIMIT 1000)) x
     GROUP BY x.tenant_id ORDER BY min(x.available_at));
  IF v_aged = '{}' THEN RETURN v_aged; END IF;
  v_aged := array_remove(v_aged, NULL);
  v_walk := walk_tenants(p_destination_id, p_namespace, coalesce(any_tenant(p_destination_id), ''), v_now, p_max);
  v_found := v_walk.tenants || ARRAY (SELECT t FROM unnest(v_aged) WITH ORDINALITY a(t, place) WHERE t <> ALL (v_walk.tenants) ORDER BY a.place);
  RETURN nullif(v_found[:p_max], '{}');
END $$;

CREATE OR REPLACE FUNCTION due_tenants(p_destination_id smallint, p_tenant_ids text[], p_after text, p_max int) RETURNS text[]
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$ SELECT due_tenants_in(p_destination_id, NULL, p_tenant_ids, p_after, p_max) $$;

-- The first of these tenants whose oldest due message had a dead holder, in the queue or in its oldest lane.
CREATE OR REPLACE FUNCTION suspect_turn(p_destination_id smallint, p_namespace text, p_tenant_ids text[], OUT place int, OUT in_lanes boolean)
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  SELECT t.place, NOT coalesce(q.alone, false) INTO place, in_lanes
    FROM unnest(p_tenant_ids) WITH ORDINALITY t(id, place)
    LEFT JOIN LATERAL (
      SELECT d.alone FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id = t.id
         AND d.available_at <= v_now AND (p_namespace IS NULL OR d.namespace = p_namespace)
       ORDER BY d.available_at, d.message_id LIMIT 1) q ON true
    LEFT JOIN LATERAL (
      SELECT (SELECT d.alone FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id = l.stream_id
               ORDER BY d.sequence LIMIT 1) AS alone
        FROM lanes l WHERE l.destination_id = p_destination_id AND l.tenant_id = t.id AND l.available_at <= v_now
         AND l.available_at IS NOT NULL AND l.blocked_by IS NULL AND (p_namespace IS NULL OR l.namespace = p_namespace)
       ORDER BY l.available_at, l.stream_id LIMIT 1) k ON true
   WHERE q.alone OR k.alone ORDER BY t.place LIMIT 1;
END $$;

-- Of these tenants, in their order, those that have nothing due in the queue, or nothing in lanes.
CREATE OR REPLACE FUNCTION tenants_without(p_destination_id smallint, p_namespace text, p_tenant_ids text[], p_lanes boolean) RETURNS text[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  RETURN ARRAY (
    SELECT t.id FROM unnest(p_tenant_ids) WITH ORDINALITY t(id, place)
     WHERE CASE WHEN p_lanes THEN
             (SELECT 1 FROM lanes l WHERE l.destination_id = p_destination_id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL
                 AND l.tenant_id = t.id AND l.available_at <= v_now AND (p_namespace IS NULL OR l.namespace = p_namespace) LIMIT 1)
           ELSE
             (SELECT 1 FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id = t.id
                 AND d.available_at <= v_now AND (p_namespace IS NULL OR d.namespace = p_namespace) LIMIT 1)
           END IS NULL
     ORDER BY t.place);
END $$;

-- The first tenant from p_from on for which something waits, due or not.
CREATE OR REPLACE FUNCTION next_tenant(p_destination_id smallint, p_from text) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $$
BEGIN
  RETURN least(
    (SELECT d.tenant_id FROM deliveries d
      WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL AND d.tenant_id >= p_from
      ORDER BY d.tenant_id, d.available_at, d.message_id LIMIT 1),
    (SELECT l.tenant_id FROM lanes l
      WHERE l.destination_id = p_destination_id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL AND l.tenant_id >= p_from
      ORDER BY l.tenant_id, l.available_at, l.stream_id LIMIT 1));
END $$;

-- Any tenant for which something waits, by chance: letter by letter, each that occurs at its place as likely as the
-- others. So it costs some look-ups for each letter, however many tenants and messages there are, and who has many is
-- no likelier than who has one.
CREATE OR REPLACE FUNCTION any_tenant(p_destination_id smallint) RETURNS text
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  -- behind everything that begins alike; where it is not, some tenants are likelier than others
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
      v_next := next_tenant(p_destination_id, CASE WHEN v_next = v_prefix THEN v_prefix || chr(1)
                                                   ELSE left(v_next, length(v_prefix) + 1) || v_highest END);
    END LOOP;
    v_chosen := v_heads[1 + floor(random() * cardinality(v_heads))::int];
    IF v_chosen IS NULL OR v_chosen = v_prefix THEN RETURN v_chosen; END IF;
    v_prefix := left(v_chosen, length(v_prefix) + 1);
    -- the only one
    IF starts_with(next_tenant(p_destination_id, v_chosen || chr(1)), v_prefix) IS NOT TRUE THEN RETURN v_chosen; END IF;
  END LOOP;
END $$;
