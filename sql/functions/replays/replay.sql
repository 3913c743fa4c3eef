-- Replay: sends messages of the log to a destination again, with their ids and sequences. A replay is new work: claim
-- numbers go on, tries start again at 0, and earlier attempts stay.
--
-- A replay is a row in replays. Each step replays one bounded batch and records its progress in the same transaction.
-- So a replay that is killed continues where it stopped, and replays no message twice. Any number of callers can run
-- steps of one replay: steps are serialized, and the rate holds for all callers together.
--
-- It replays only messages that the destination has had, or that its routes want now. A message that has not ended
-- there (it is pending, or a relay holds it) is skipped and counted; a dead letter is requeued. Steps go in the order
-- of the ids. For messages of a key that is the order of their sequences, unless the clock stepped back.

-- Checks the arguments of a replay and converts them to a normal form: equal requests have equal filters.
CREATE OR REPLACE FUNCTION replay_asked(
  destination text,
  ids         uuid[],
  topic       text,
  namespace   text,
  tenant_id   text,
  key         text,
  since       timestamptz,
  until       timestamptz)
RETURNS replays
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_destination destinations := find_destination(destination);
  v_endpoint    endpoints;
  v_replay      replays;
  v_problem     text;
BEGIN
  SELECT * INTO v_endpoint FROM endpoints e WHERE e.destination_id = v_destination.id;
  -- an endpoint belongs to a customer: it must not get messages of another tenant
  v_problem := CASE
    WHEN v_endpoint.removed_at IS NOT NULL THEN
      format('destination is %s, an endpoint that was removed: give another one', destination)
    WHEN v_endpoint.tenant_id <> tenant_id OR (v_endpoint.tenant_id IS NOT NULL AND tenant_id IS NULL) THEN
      format('tenant_id is %s, and %s is an endpoint of the tenant %s: give that tenant',
             coalesce(tenant_id, 'null'), destination, v_endpoint.tenant_id)
    WHEN NOT v_destination.configured THEN
      format('destination is %s, which is in no configuration file any more: put it back, or give another one',
             destination)
    WHEN EXISTS (SELECT FROM cursors c WHERE c.destination_id = v_destination.id) THEN
      format('destination is %s, which reads the log with a cursor: reset it with reset_cursor (waybill cursors reset)',
             destination)
    WHEN since >= until THEN
      format('since is %s, and until is %s: give an earlier since', since, until)
    WHEN cardinality(ids) = 0 THEN
      'ids is empty: give at least one id, or another filter'
    WHEN cardinality(ids) > 10000 THEN
      format('ids has %s entries: give at most 10000, or another filter', cardinality(ids))
  END;
  IF v_problem IS NOT NULL THEN RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem; END IF;

  v_replay.destination_id := v_destination.id;
  v_replay.filter := jsonb_strip_nulls(jsonb_build_object(
    'ids', (SELECT jsonb_agg(DISTINCT i) FROM unnest(ids) i),
    'topic', topic,
    'namespace', namespace,
    'tenantId', tenant_id,
    'key', key,
    'since', since,
    'until', until));
  IF key IS NOT NULL THEN
    v_replay.key_ids := ARRAY (
      SELECT s.id
        FROM keys s
       WHERE s.key = replay_asked.key
         AND (replay_asked.namespace IS NULL OR s.namespace = replay_asked.namespace)
         AND (replay_asked.tenant_id IS NULL OR s.tenant_id = replay_asked.tenant_id)
       LIMIT 1001);
    IF cardinality(v_replay.key_ids) > 1000 THEN
      RAISE EXCEPTION USING ERRCODE = '22023',
        MESSAGE = format('key is %s, which more than 1000 tenants have: give tenant_id too', key);
    END IF;
  END IF;
  v_replay.position := coalesce(id_at(since), '00000000-0000-0000-0000-000000000000');
  -- later messages are delivered anyway
  v_replay.end_id := least(id_at(until), new_id());
  RETURN v_replay;
END $$;

-- Whether more than p_limit messages of a topic, or of a tenant, are in the slot of an id.
CREATE OR REPLACE FUNCTION is_dense_slot(p_id uuid, p_topic text, p_tenant_id text, p_limit int) RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
DECLARE
  v_slot bigint := id_slot(p_id);
  v_from uuid := (left(p_id::text, 8) || '-0000-0000-0000-000000000000')::uuid;
  v_to   uuid := (left(p_id::text, 8) || '-ffff-ffff-ffff-ffffffffffff')::uuid;
BEGIN
  RETURN CASE
    WHEN p_topic IS NOT NULL THEN
      EXISTS (SELECT FROM messages m
               WHERE m.topic = p_topic
                 AND id_slot(m.id) = v_slot
                 AND m.id BETWEEN v_from AND v_to
              OFFSET p_limit)
    ELSE
      EXISTS (SELECT FROM messages m
               WHERE m.tenant_id = p_tenant_id
                 AND id_slot(m.id) = v_slot
                 AND m.id BETWEEN v_from AND v_to
              OFFSET p_limit)
  END;
END $$;

-- The next messages of a replay, in the order of their ids, from the best index: by key, topic, tenant, or all. These
-- indexes have slots in place of ids, so the rest of a slot is read and sorted. In a slot with more than p_limit
-- messages, each step would read all of them again. There, the messages of all topics and tenants are read by their
-- ids, and find_history passes over the others.
CREATE OR REPLACE FUNCTION walk_history(p_replay replays, p_limit int)
RETURNS TABLE (id uuid, topic text, namespace text, tenant_id text)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_after  uuid := p_replay.position;
  v_end    uuid := p_replay.end_id;
  v_topic  text := p_replay.filter ->> 'topic';
  v_tenant text := p_replay.filter ->> 'tenantId';
BEGIN
  IF v_topic = '*' OR v_topic LIKE '%.*' THEN v_topic := NULL; END IF;
  IF p_replay.filter ? 'ids' THEN
    RETURN QUERY
      SELECT m.id, m.topic, m.namespace, m.tenant_id
        FROM jsonb_array_elements_text(p_replay.filter -> 'ids') i(id)
       CROSS JOIN LATERAL (
              SELECT x.*
                FROM messages x
               WHERE x.id = i.id::uuid
                 AND x.id > v_after
                 AND x.id < v_end
              OFFSET 0) m
       ORDER BY m.id
       LIMIT p_limit;
  ELSIF p_replay.key_ids IS NOT NULL THEN
    RETURN QUERY
      SELECT m.id, m.topic, m.namespace, m.tenant_id
        FROM unnest(p_replay.key_ids) s(id)
       CROSS JOIN LATERAL (
              SELECT x.*
                FROM messages x
               WHERE x.key_id = s.id
                 AND id_slot(x.id) BETWEEN id_slot(v_after) AND id_slot(v_end)
                 AND x.id > v_after
                 AND x.id < v_end
               ORDER BY id_slot(x.id), x.id
               LIMIT p_limit) m
       ORDER BY m.id
       LIMIT p_limit;
  ELSIF coalesce(v_topic, v_tenant) IS NULL OR is_dense_slot(v_after, v_topic, v_tenant, p_limit) THEN
    RETURN QUERY
      SELECT m.id, m.topic, m.namespace, m.tenant_id
        FROM messages m
       WHERE m.id > v_after
         AND m.id < v_end
       ORDER BY m.id
       LIMIT p_limit;
  ELSIF v_topic IS NOT NULL THEN
    RETURN QUERY
      SELECT m.id, m.topic, m.namespace, m.tenant_id
        FROM messages m
       WHERE m.topic = v_topic
         AND id_slot(m.id) BETWEEN id_slot(v_after) AND id_slot(v_end)
         AND m.id > v_after
         AND m.id < v_end
       ORDER BY id_slot(m.id), m.id
       LIMIT p_limit;
  ELSE
    RETURN QUERY
      SELECT m.id, m.topic, m.namespace, m.tenant_id
        FROM messages m
       WHERE m.tenant_id = v_tenant
         AND id_slot(m.id) BETWEEN id_slot(v_after) AND id_slot(v_end)
         AND m.id > v_after
         AND m.id < v_end
       ORDER BY id_slot(m.id), m.id
       LIMIT p_limit;
  END IF;
END $$;

-- Finds the next messages of a replay: at most p_max_count, reading at most p_max_walked. last: the last message read,
-- null if none is left. is_end: there are no more messages after it.
CREATE OR REPLACE FUNCTION find_history(
  p_replay     replays,
  p_max_walked int,
  p_max_count  int,
  OUT ids      uuid[],
  OUT first    uuid,
  OUT last     uuid,
  OUT is_end   boolean)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_topic     text := coalesce(p_replay.filter ->> 'topic', '*');
  v_namespace text := p_replay.filter ->> 'namespace';
  v_tenant    text := p_replay.filter ->> 'tenantId';
  v_walked    bigint;
  -- which payloads the destination wants
  v_wanted    text := (SELECT t.filter FROM destinations t WHERE t.id = p_replay.destination_id);
BEGIN
  WITH walked AS MATERIALIZED (
    SELECT w.* FROM walk_history(p_replay, p_max_walked) w),
  -- in the order of the walk, so that it can stop at the last message needed; sub-queries with LIMIT make it one
  -- look-up per message
  found AS MATERIALIZED (
    SELECT w.id
      FROM walked w
     WHERE route_matches(v_topic, v_namespace, v_tenant, w.topic, w.namespace, w.tenant_id)
       AND ((SELECT 1
               FROM routes r
              WHERE r.destination_id = p_replay.destination_id
                AND route_matches(r.topic, r.namespace, r.tenant_id, w.topic, w.namespace, w.tenant_id)
                AND (v_wanted IS NULL
                     OR (SELECT is_wanted(m.payload, v_wanted)
                           FROM messages m
                          WHERE m.id = w.id
                          LIMIT 1))
              LIMIT 1) IS NOT NULL
            OR (SELECT 1
                  FROM attempts a
                 WHERE a.message_id = w.id
                   AND a.destination_id = p_replay.destination_id
                 LIMIT 1) IS NOT NULL
            OR (SELECT 1
                  FROM dead_letters d
                 WHERE d.message_id = w.id
                   AND d.destination_id = p_replay.destination_id
                 LIMIT 1) IS NOT NULL)
     LIMIT p_max_count)
  SELECT ARRAY (SELECT f.id FROM found f ORDER BY f.id),
         (SELECT w.id FROM walked w ORDER BY w.id LIMIT 1),
         (SELECT w.id FROM walked w ORDER BY w.id DESC LIMIT 1),
         (SELECT count(*) FROM walked)
    INTO ids, first, last, v_walked;
  is_end := v_walked < p_max_walked;
  IF cardinality(ids) = p_max_count AND ids[p_max_count] < last THEN
    last := ids[p_max_count];
    is_end := false;
  END IF;
END $$;

-- Shows what a replay would do, and changes nothing. messages: how many; is_exact: whether that was counted to the end,
-- or estimated from the first 100,000. sample: the first five messages with their status. kept_since: since when
-- all messages are kept, if the request includes older ones. expired: how many of the given ids retention has removed.
CREATE OR REPLACE FUNCTION plan_replay(
  destination    text,
  ids            uuid[] DEFAULT NULL,
  topic          text DEFAULT NULL,
  namespace      text DEFAULT NULL,
  tenant_id      text DEFAULT NULL,
  key            text DEFAULT NULL,
  since          timestamptz DEFAULT NULL,
  until          timestamptz DEFAULT NULL,
  OUT messages   bigint,
  OUT is_exact   boolean,
  OUT sample     jsonb,
  OUT kept_since timestamptz,
  OUT expired    int,
  OUT unfinished bigint)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
SET jit = off SET timezone = 'UTC'
AS $$
DECLARE
  v_most   int := 100000;
  v_replay replays := replay_asked(destination, ids, topic, namespace, tenant_id, key, since, until);
  v_found  record;
  v_newest uuid;
BEGIN
  SELECT f.* INTO v_found FROM find_history(v_replay, v_most, v_most) f;
  messages := cardinality(v_found.ids);
  is_exact := v_found.is_end;
  IF NOT is_exact THEN
    -- assumes that messages are spread evenly over time
    SELECT m.id
      INTO v_newest
      FROM messages m
     WHERE m.id < v_replay.end_id
     ORDER BY m.id DESC
     LIMIT 1;
    messages := messages * greatest(1,
      extract(epoch FROM id_time(v_newest) - id_time(v_found.first))
      / greatest(extract(epoch FROM id_time(v_found.last) - id_time(v_found.first)), 0.001));
  END IF;
  sample := coalesce((
    SELECT jsonb_agg(jsonb_build_object(
             'messageId', m.id,
             'topic', m.topic,
             'tenantId', m.tenant_id,
             'key', m.key,
             'sequence', m.sequence::text,
             'createdAt', m.created_at,
             'status', coalesce(s.status, 'new')) ORDER BY m.id)
      -- not message_status: joined to a few ids, it would still be computed for all messages
      FROM messages m
      LEFT JOIN describe_messages(v_found.ids[1:5]) s
        ON s.message_id = m.id AND s.destination = plan_replay.destination
     WHERE m.id = ANY (v_found.ids[1:5])), '[]');

  -- of a thinned day only a few messages are left
  SELECT greatest(min(b.day), max(b.day) FILTER (WHERE is_thinned('messages', b.day)) + 1)::timestamp AT TIME ZONE 'UTC'
    INTO kept_since
    FROM partition_bounds('messages') b
   WHERE NOT b.detaching;
  -- attempts are kept longer than messages: older attempts belong to messages that were removed
  IF NOT coalesce(since < kept_since,
                  EXISTS (SELECT FROM attempts a WHERE a.message_id < id_at(kept_since))) THEN
    kept_since := NULL;
  END IF;
  expired := (
    SELECT count(*)
      FROM unnest(plan_replay.ids) i(id)
     WHERE NOT EXISTS (SELECT FROM messages m WHERE m.id = i.id)
       AND EXISTS (SELECT FROM attempts a WHERE a.message_id = i.id));
  unfinished := (
    SELECT r.id
      FROM replays r
     WHERE r.destination_id = v_replay.destination_id
       AND r.filter = v_replay.filter
       AND r.state = 'unfinished');
END $$;

-- Starts a replay, or continues the unfinished one with the same filter, so calling it again after a crash is safe.
-- replay_step does the work.
CREATE OR REPLACE FUNCTION start_replay(
  destination   text,
  ids           uuid[] DEFAULT NULL,
  topic         text DEFAULT NULL,
  namespace     text DEFAULT NULL,
  tenant_id     text DEFAULT NULL,
  key           text DEFAULT NULL,
  since         timestamptz DEFAULT NULL,
  until         timestamptz DEFAULT NULL,
  per_second    int DEFAULT 100,
  actor         text DEFAULT NULL,
  OUT replay_id bigint,
  OUT resumed   boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_asked replays := replay_asked(destination, ids, topic, namespace, tenant_id, key, since, until);
BEGIN
  PERFORM checked_number('per_second', per_second, 1, 1000000);
  IF ids IS NULL THEN PERFORM limit_tenant('replay', 10, '1 hour');
  ELSE PERFORM limit_tenant('resend', 600, '1 minute');
  END IF;
  INSERT INTO replays AS r (destination_id, filter, key_ids, per_second, position, end_id, actor)
  VALUES (v_asked.destination_id, v_asked.filter, v_asked.key_ids, start_replay.per_second, v_asked.position,
          v_asked.end_id, coalesce(start_replay.actor, session_user))
  ON CONFLICT (destination_id, md5(filter::text)) WHERE state = 'unfinished' DO UPDATE
     SET per_second = excluded.per_second
  RETURNING r.id, r.xmax <> 0 INTO replay_id, resumed;
  PERFORM record_action(
    start_replay.actor, CASE WHEN resumed THEN 'resume_replay' ELSE 'start_replay' END,
    jsonb_build_object('replay', replay_id, 'destination', destination, 'perSecond', start_replay.per_second)
    || v_asked.filter, 0);
END $$;

-- The replay with this id, locked; raises P0002 if there is none.
CREATE OR REPLACE FUNCTION find_replay(p_replay_id bigint) RETURNS replays
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_replay replays;
BEGIN
  SELECT * INTO v_replay FROM replays WHERE id = p_replay_id FOR UPDATE;
  IF NOT FOUND THEN
    PERFORM refuse_unknown('replay', p_replay_id::text,
                           ARRAY (SELECT id::text FROM replays ORDER BY id DESC LIMIT 20));
  END IF;
  RETURN v_replay;
END $$;

-- Records that an operator continues an unfinished replay, and can change its rate.
CREATE OR REPLACE FUNCTION resume_replay(replay_id bigint, per_second int DEFAULT NULL, actor text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_replay replays := find_replay(replay_id);
BEGIN
  IF per_second IS NOT NULL THEN PERFORM checked_number('per_second', per_second, 1, 1000000); END IF;
  IF v_replay.state <> 'unfinished' THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('replay_id is %s, and that replay is %s: start a new one', replay_id, v_replay.state);
  END IF;
  UPDATE replays r
     SET per_second = coalesce(resume_replay.per_second, r.per_second)
   WHERE r.id = replay_id;
  PERFORM record_action(actor, 'resume_replay', jsonb_build_object('replay', replay_id, 'perSecond', per_second),
                        v_replay.replayed);
END $$;

-- Cancels an unfinished replay; messages that it has replayed stay. False if it had ended before.
CREATE OR REPLACE FUNCTION cancel_replay(replay_id bigint, actor text DEFAULT NULL) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_replay replays := find_replay(replay_id);
BEGIN
  IF v_replay.state <> 'unfinished' THEN RETURN false; END IF;
  UPDATE replays r
     SET state = 'cancelled', ended_at = clock_timestamp()
   WHERE r.id = replay_id;
  PERFORM record_action(actor, 'cancel_replay', jsonb_build_object('replay', replay_id), v_replay.replayed);
  RETURN true;
END $$;

-- Runs one step of a replay: at most max_count messages, and at most a quarter of the rate per second. Returns what it
-- did and the milliseconds until the next step is due; an earlier call does nothing. Call it until state is no longer
-- unfinished.
CREATE OR REPLACE FUNCTION replay_step(
  replay_id      bigint,
  max_count      int DEFAULT 1000,
  OUT replayed   int,
  OUT waiting    int,
  OUT processing int,
  OUT wait_ms    int,
  OUT state      text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_replay replays;
  v_found  record;
  v_count  int;
  v_now    timestamptz;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 10000);
  PERFORM assert_read_committed('replay_step');
  v_replay := find_replay(replay_id);
  v_now := clock_timestamp();
  replayed := 0;
  waiting := 0;
  processing := 0;
  state := v_replay.state;
  wait_ms := ceil(greatest(extract(epoch FROM v_replay.next_at - v_now) * 1000, 0));
  -- a clock that was set back must not delay the replay by more than a second
  IF state <> 'unfinished' OR wait_ms BETWEEN 1 AND 1000 THEN RETURN; END IF;

  v_count := least(max_count, greatest(v_replay.per_second / 4, 1));
  SELECT f.* INTO v_found FROM find_history(v_replay, greatest(20 * v_count, 5000), v_count) f;
  IF v_found.ids <> '{}' THEN
    SELECT b.*
      INTO replayed, waiting, processing
      FROM bring_back(v_replay.destination_id, v_found.ids) b;
  END IF;
  IF v_found.is_end THEN state := 'done'; END IF;
  wait_ms := CASE WHEN v_found.is_end THEN 0 ELSE ceil(replayed * 1000.0 / v_replay.per_second) END;
  UPDATE replays r
     SET position = coalesce(v_found.last, r.position),
         replayed = r.replayed + replay_step.replayed,
         waiting = r.waiting + replay_step.waiting,
         processing = r.processing + replay_step.processing,
         moved_at = v_now,
         next_at = v_now + wait_ms * interval '1 ms',
         state = replay_step.state,
         ended_at = CASE WHEN v_found.is_end THEN clock_timestamp() END
   WHERE r.id = replay_id
  RETURNING * INTO v_replay;
  IF v_found.is_end THEN
    PERFORM record_action(
              v_replay.actor, 'replay',
              jsonb_build_object('replay', replay_id, 'destination', d.name, 'waiting', v_replay.waiting,
                                 'processing', v_replay.processing) || v_replay.filter,
              v_replay.replayed)
       FROM destinations d
      WHERE d.id = v_replay.destination_id;
  END IF;
END $$;

-- Creates deliveries for messages that have ended at the destination, are dead there, or were never there; counts those
-- that have not ended. A lock serializes it, over all destinations and with move_deliveries: two sessions that add the
-- same message to one destination would not see each other.
CREATE OR REPLACE FUNCTION bring_back(
  p_destination_id int,
  p_ids            uuid[],
  OUT replayed     int,
  OUT waiting      int,
  OUT processing   int)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
DECLARE
  v_lowest  uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i LIMIT 1);
  v_highest uuid := (SELECT i FROM unnest(p_ids) i ORDER BY i DESC LIMIT 1);
  v_now     timestamptz := clock_timestamp();
  v_raised  uuid[];
  v_brought uuid[];
  v_keys    bigint[];
  v_hook    text;
BEGIN
  PERFORM take_lock('move');
  -- FOR SHARE: retention sees the lock and keeps the partitions. FOR UPDATE waits for route_unrouted.
  PERFORM
     FROM messages m
    WHERE m.id = ANY (p_ids)
      AND m.id BETWEEN v_lowest AND v_highest
      FOR SHARE;
  PERFORM
     FROM unrouted_messages u
    WHERE u.message_id = ANY (p_ids)
    ORDER BY u.message_id
      FOR UPDATE;

  -- one statement and thus one snapshot: each message is seen in exactly one place, whatever relays do meanwhile
  WITH held AS MATERIALIZED (
    SELECT u.message_id, max(u.claim_no) AS claim_no
      FROM leases l, unnest(l.message_ids, l.claim_nos) u(message_id, claim_no)
     WHERE l.destination_id = p_destination_id
       AND u.message_id = ANY (p_ids)
     GROUP BY u.message_id),
  place AS MATERIALIZED (
    SELECT i.id, coalesce(a.claim_no, 0) AS claim_no,
           CASE
             WHEN (SELECT 1
                     FROM deliveries d
                    WHERE d.message_id = i.id
                      AND d.destination_id = p_destination_id) IS NOT NULL THEN 'waiting'
             WHEN h.claim_no > coalesce(a.claim_no, 0) THEN 'processing'
             WHEN l.message_id IS NULL THEN 'ended'
             -- it returns with the dead letter that blocks its key
             WHEN l.reason = 'parked'
                  AND (SELECT 1
                         FROM lanes n
                        WHERE n.destination_id = p_destination_id
                          AND n.key_id = l.key_id
                          AND n.blocked_by IS NOT NULL) IS NOT NULL THEN 'waiting'
             ELSE 'dead'
           END AS place
      FROM unnest(p_ids) i(id)
      LEFT JOIN held h ON h.message_id = i.id
      LEFT JOIN dead_letters l ON l.message_id = i.id AND l.destination_id = p_destination_id
      LEFT JOIN LATERAL (
             SELECT x.claim_no
               FROM attempts x
              WHERE x.message_id = i.id
                AND x.message_id BETWEEN v_lowest AND v_highest
                AND x.destination_id = p_destination_id
              ORDER BY x.claim_no DESC
              LIMIT 1) a
        ON true),
  raised AS (
    DELETE FROM dead_letters d
     USING place p
     WHERE p.place = 'dead'
       AND d.message_id = p.id
       AND d.destination_id = p_destination_id
    RETURNING d.message_id, d.claim_no),
  brought AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, delay_ms, claim_no, tries, bytes, namespace,
                            tenant_id, key_id, sequence)
    -- an unrouted message keeps the time that its producer gave; one with a delay is due after it
    SELECT m.id, p_destination_id,
           CASE WHEN u.delay_ms = -1 THEN u.available_at ELSE greatest(u.available_at, v_now) END,
           CASE WHEN u.delay_ms = -1 OR u.available_at > v_now THEN u.delay_ms END,
           b.claim_no, 0, m.bytes, m.namespace,
           fair_tenant((SELECT d.fairness FROM destinations d WHERE d.id = p_destination_id),
                       m.tenant_id),
           m.key_id, m.sequence
      FROM (SELECT p.id, p.claim_no FROM place p WHERE p.place = 'ended'
            UNION ALL
            SELECT r.message_id, r.claim_no FROM raised r) b
     CROSS JOIN LATERAL (
            SELECT x.*
              FROM messages x
             WHERE x.id = b.id
               AND x.id BETWEEN v_lowest AND v_highest
            OFFSET 0) m
      LEFT JOIN unrouted_messages u ON u.message_id = b.id
    RETURNING message_id, key_id)
  SELECT (SELECT array_agg(b.message_id) FROM brought b),
         (SELECT array_agg(b.key_id) FROM brought b),
         (SELECT array_agg(r.message_id) FROM raised r),
         (SELECT count(*) FROM brought),
         (SELECT count(*) FROM place p WHERE p.place = 'waiting'),
         (SELECT count(*) FROM place p WHERE p.place = 'processing')
    INTO v_brought, v_keys, v_raised, replayed, waiting, processing;
  IF replayed = 0 THEN RETURN; END IF;
  DELETE FROM unrouted_messages u WHERE u.message_id = ANY (v_brought);
  FOR v_hook IN SELECT hooks('replayed') LOOP
    EXECUTE format('SELECT %s($1, $2)', v_hook) USING p_destination_id, v_brought;
  END LOOP;
  PERFORM recheck_lanes(array_fill(p_destination_id, ARRAY[replayed]), v_keys);
  IF v_raised IS NOT NULL THEN
    PERFORM unblock_lanes(array_fill(p_destination_id, ARRAY[cardinality(v_raised)]), v_raised, false);
  END IF;
  PERFORM notify_relays(ARRAY[p_destination_id]);
END $$;
