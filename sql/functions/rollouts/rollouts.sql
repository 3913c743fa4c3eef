-- Rollouts: move sending from another system to Waybill step by step. In shadow, Waybill renders what it would send,
-- and sends nothing. Then it sends a share of the keys, and the other system sends the rest.
--
-- Each message is sent by exactly one of the two systems. Both enqueue and the other system take a shared lock in their
-- transaction before they read the rollout. A change takes the lock exclusively, so it waits for transactions that have
-- decided, and none of them sees half of a change. A transaction in REPEATABLE READ decides alike throughout. The lock
-- is a lock of the empty table rollout_decisions, for all rollouts: a row lock would make every producer write.

-- The bucket of a key, 0 to 9999: the same in every version and on every machine. A share of 10 % has the buckets below
-- 1000, so keys that are sent at 10 % are also sent at 50 %.
CREATE OR REPLACE FUNCTION rollout_bucket(p_key text) RETURNS int
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
  SELECT (('x' || left(md5(p_key), 8))::bit(32)::bigint % 10000)::int
$$;

-- The share of a rollout that Waybill sends now, in hundredths of a percent, and the destination if it is a shadow. It
-- cannot change until the end of the transaction. Volatile, so that it reads the row after it has the lock.
CREATE OR REPLACE FUNCTION rollout_state(p_rollout text) RETURNS TABLE (share int, shadow_destination_id int)
LANGUAGE plpgsql VOLATILE STRICT ROWS 1
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
  LOCK TABLE rollout_decisions IN ROW SHARE MODE;
  RETURN QUERY
    SELECT CASE WHEN r.shadow THEN 10000 ELSE (r.percent * 100)::int END,
           CASE WHEN r.shadow THEN r.shadow_destination_id END
      FROM rollouts r
     WHERE r.name = p_rollout;
END $$;

-- Which system sends the messages of a key: 'new' is Waybill, 'old' is the calling system. Call it in the transaction
-- that enqueues. For a message without a key, pass its id.
CREATE OR REPLACE FUNCTION rollout_decision(rollout text, key text) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_state record;
BEGIN
  IF key IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = 'key is null: give the key of the message, or its id if it has none';
  END IF;
  SELECT * INTO v_state FROM rollout_state(coalesce(rollout, ''));
  IF NOT FOUND THEN
    PERFORM refuse_unknown('rollout', rollout, ARRAY (
      SELECT r.name FROM rollouts r ORDER BY r.name LIMIT 50));
  END IF;
  RETURN CASE
    WHEN v_state.shadow_destination_id IS NULL AND rollout_bucket(key) < v_state.share THEN 'new'
    ELSE 'old'
  END;
END $$;

-- Changes a rollout to a percentage from 0 to 100, or to shadow. It waits up to a quarter of a second for transactions
-- that have decided; new decisions wait meanwhile. If that is not enough, it raises lock_not_available (55P03): try
-- again.
CREATE OR REPLACE FUNCTION set_rollout(
  rollout text,
  percent numeric DEFAULT 0,
  shadow  boolean DEFAULT false,
  actor   text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '250ms'
AS $$
DECLARE
  v_before rollouts;
BEGIN
  IF percent IS NULL OR percent NOT BETWEEN 0 AND 100 OR percent <> round(percent, 2) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('percent is %s: give a number from 0 to 100, with two decimals at most',
                       coalesce(left(percent::text, 60), 'null'));
  END IF;
  IF shadow IS NULL OR (shadow AND percent <> 0) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('shadow is %s and percent %s: a shadow sends nothing; give one of them',
                       coalesce(shadow::text, 'null'), percent);
  END IF;
  -- the data must be read with a snapshot that is newer than the lock
  PERFORM assert_read_committed('set_rollout');
  BEGIN
    LOCK TABLE rollout_decisions IN EXCLUSIVE MODE;
    SELECT * INTO v_before FROM rollouts r WHERE r.name = rollout FOR UPDATE;
  EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = '55P03',
      MESSAGE = format('the rollout "%s" is not changed: a transaction that has decided is still open', rollout),
      HINT = format('Try again. Its session: SELECT pid, state, query FROM pg_stat_activity '
                    'JOIN pg_locks USING (pid) WHERE relation = %L::regclass.',
                    format('%I.rollout_decisions', current_schema()));
  END;
  IF v_before.name IS NULL THEN
    PERFORM refuse_unknown('rollout', rollout, ARRAY (
      SELECT r.name FROM rollouts r ORDER BY r.name LIMIT 50));
  END IF;
  IF (v_before.percent, v_before.shadow) = (percent, shadow) THEN RETURN; END IF;
  -- without a route, messages are not divided by this rollout, and rollout_decision would say something else
  IF NOT EXISTS (SELECT FROM routes r WHERE r.split_by = v_before.name) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('no route has the rollout "%s" any more: '
                       'give a route of the configuration this rollout and start a relay first',
                       v_before.name);
  END IF;
  UPDATE rollouts r
     SET percent = set_rollout.percent,
         shadow = set_rollout.shadow,
         changed_at = clock_timestamp(),
         changed_by = coalesce(actor, session_user)
   WHERE r.name = rollout;
  PERFORM record_action(actor, 'rollout', jsonb_build_object(
    'rollout', rollout,
    'percent', percent,
    'shadow', shadow,
    'percentBefore', v_before.percent,
    'shadowBefore', v_before.shadow), 1);
END $$;

-- Creates the rollouts that routes name, and refuses changes after which both systems or neither would send. A new
-- rollout starts at 0, or at 100 if one of its routes has sent everything so far. A route can leave its rollout only at
-- 100, and can be removed only at 0, unless another route replaces it. A route that has sent everything cannot join a
-- rollout below 100. Rows are locked before they are read, and a rollout without a route cannot be set, so no change
-- comes in between. A rollout belongs to one owner. p_routes: all routes that the owner declares. p_living: those of
-- its running relays and of waybill apply. A hook of reconcile_definitions.
CREATE OR REPLACE FUNCTION routes_of_rollouts(p_owner text, p_routes routes[], p_living routes[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_lost  record;
  v_taken record;
BEGIN
  IF NOT EXISTS (SELECT FROM unnest(p_routes) w WHERE w.split_by IS NOT NULL)
     AND NOT EXISTS (SELECT FROM routes r WHERE r.owner = p_owner AND r.split_by IS NOT NULL) THEN
    RETURN;
  END IF;
  PERFORM FROM rollouts o ORDER BY o.name FOR NO KEY UPDATE;
  SELECT r.owner, r.split_by AS rollout
    INTO v_taken
    FROM routes r
    JOIN unnest(p_routes) w ON w.split_by = r.split_by
   WHERE r.owner <> p_owner
   LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('the rollout "%s" is defined by %s and by %s: give it another name in one of them',
                       v_taken.rollout, shown_owner(v_taken.owner), shown_owner(p_owner));
  END IF;
  WITH wanted AS (
    SELECT w.split_by, w.topic, w.destination_id, s.id AS shadow_id,
           EXISTS (
             SELECT FROM routes r
               LEFT JOIN rollouts o ON o.name = r.split_by
              WHERE (r.destination_id, r.topic, r.namespace, r.tenant_id) IS NOT DISTINCT FROM
                    (w.destination_id, w.topic, w.namespace, w.tenant_id)
                AND r.split_by IS DISTINCT FROM w.split_by
                AND coalesce(o.percent, 100) = 100) AS sent_everything
      FROM unnest(p_routes) w
      JOIN destinations s ON s.name = w.split_by || '.shadow'),
  made AS (
    INSERT INTO rollouts (name, destination_id, shadow_destination_id, percent)
    SELECT w.split_by, min(w.destination_id), min(w.shadow_id),
           CASE WHEN bool_or(w.sent_everything) THEN 100 ELSE 0 END
      FROM wanted w
     GROUP BY w.split_by
    ON CONFLICT (name) DO UPDATE
      SET destination_id = excluded.destination_id,
          shadow_destination_id = excluded.shadow_destination_id
      WHERE (rollouts.destination_id, rollouts.shadow_destination_id) IS DISTINCT FROM
            (excluded.destination_id, excluded.shadow_destination_id))
  -- sees only rollouts that existed before this statement; new ones are created at 100 in this case
  SELECT w.topic, o.name, o.percent
    INTO v_taken
    FROM wanted w
    JOIN rollouts o ON o.name = w.split_by
   WHERE w.sent_everything
     AND o.percent < 100
   LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('the route "%s" has sent everything so far, and the rollout "%s" stands at %s %%: '
                       'give the route a rollout of its own, or bring this one to 100 first '
                       '(waybill rollout set %s --percent 100)',
                       v_taken.topic, v_taken.name, v_taken.percent, v_taken.name);
  END IF;
  -- added_at: when the route was added with this rollout; infinity if it is new
  WITH wanted AS (
    SELECT w.destination_id, w.topic, w.namespace, w.tenant_id, w.split_by,
           coalesce(r.added_at, 'infinity') AS added_at
      FROM unnest(p_living) w
      LEFT JOIN routes r ON r.owner = p_owner
                        AND route_key(r) = route_key(w)
                        AND r.split_by IS NOT DISTINCT FROM w.split_by)
  SELECT o.name, o.percent, r.topic, w.topic IS NULL AND o.percent > 0 AS unsent
    INTO v_lost
    FROM rollouts o
    JOIN routes r ON r.split_by = o.name AND r.owner = p_owner
    LEFT JOIN wanted w ON (w.destination_id, w.topic, w.namespace, w.tenant_id) IS NOT DISTINCT FROM
                          (r.destination_id, r.topic, r.namespace, r.tenant_id)
   WHERE w.split_by IS DISTINCT FROM o.name
     AND CASE
           WHEN w.topic IS NOT NULL THEN o.percent < 100
           WHEN o.percent = 0 THEN
             NOT EXISTS (SELECT FROM wanted x WHERE x.split_by = o.name)
             AND EXISTS (
                   SELECT FROM wanted x
                    WHERE x.added_at > r.added_at
                      AND x.destination_id = r.destination_id)
           -- unless another route replaces it
           ELSE NOT EXISTS (
             SELECT FROM wanted x
              WHERE x.added_at > r.added_at
                AND (x.split_by = o.name
                     OR (o.percent = 100 AND (x.destination_id = r.destination_id OR x.topic = r.topic))))
         END
   ORDER BY o.name, r.topic
   LIMIT 1;
  IF v_lost.unsent THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('the route "%s" is gone and its rollout "%s" stands at %s %%, which neither system would send: '
                       'bring it to 0 first (waybill rollout set %s --percent 0), or leave the route in the file',
                       v_lost.topic, v_lost.name, v_lost.percent, v_lost.name);
  END IF;
  IF v_lost.name IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('the rollout "%s" is gone from its route "%s" and stands at %s %%: bring it to 100 first '
                       '(waybill rollout set %s --percent 100), or leave it in the file',
                       v_lost.name, v_lost.topic, v_lost.percent, v_lost.name);
  END IF;
END $$;

-- Records what Waybill would have sent: [{reference, messageId, body, refused}].
CREATE OR REPLACE FUNCTION record_shadow(p_rollout text, p_rendered jsonb) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  INSERT INTO shadow_comparisons AS c (rollout, reference, message_id, rendered, refused, rendered_at)
  SELECT DISTINCT ON (r.reference COLLATE "C")
         p_rollout, r.reference, r."messageId", r.body, r.refused, clock_timestamp()
    FROM jsonb_to_recordset(p_rendered) AS r(reference text, "messageId" uuid, body jsonb, refused text)
   ORDER BY r.reference COLLATE "C"
  ON CONFLICT (rollout, reference) DO UPDATE
    SET message_id = excluded.message_id,
        rendered = excluded.rendered,
        refused = excluded.refused,
        rendered_at = excluded.rendered_at
$$;

-- Records what the other system has sent. reference: the dedupe key of the message, or its id if it has none. body: at
-- most as large as the payload and headers of a message together, as text (message_limits).
CREATE OR REPLACE FUNCTION report_sent(rollout text, reference text, body jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_bytes int := octet_length(body::text);
  v_limit int := (SELECT m.payload_bytes + m.header_bytes FROM message_limits m);
BEGIN
  IF reference IS NULL OR octet_length(reference) NOT BETWEEN 1 AND 1024 THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('reference is %s: give the dedupe key or the id of the message, at most 1024 bytes',
                       coalesce('"' || left(report_sent.reference, 60) || '"', 'null'));
  END IF;
  IF body IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'body is null: give the JSON that was sent';
  END IF;
  IF v_bytes > v_limit THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('body has %s bytes, the limit is %s: report the JSON that was sent for one message, '
                       'or let the owner of the schema raise payload_bytes in %I.message_limits',
                       v_bytes, v_limit, current_schema());
  END IF;
  IF NOT EXISTS (SELECT FROM rollouts r WHERE r.name = report_sent.rollout) THEN
    PERFORM refuse_unknown('rollout', report_sent.rollout, ARRAY (
      SELECT r.name FROM rollouts r ORDER BY r.name LIMIT 50));
  END IF;
  INSERT INTO shadow_comparisons AS c (rollout, reference, sent, sent_at)
  VALUES (report_sent.rollout, report_sent.reference, body, clock_timestamp())
  ON CONFLICT ON CONSTRAINT shadow_comparisons_pkey DO UPDATE
    SET sent = excluded.sent,
        sent_at = excluded.sent_at;
END $$;

-- Removes paths that may differ from a body, such as timestamp or data.sent_at. A path that does not fit, such as a
-- name in a list, is ignored, because the bodies of one report can have different shapes.
CREATE OR REPLACE FUNCTION without_paths(p_value jsonb, p_paths text[]) RETURNS jsonb
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
AS $$
DECLARE
  v_text text;
  v_path text[];
  v_kind text;
BEGIN
  IF jsonb_typeof(p_value) IS NULL OR jsonb_typeof(p_value) NOT IN ('object', 'array') THEN RETURN p_value; END IF;
  FOREACH v_text IN ARRAY p_paths LOOP
    v_path := string_to_array(v_text, '.');
    CONTINUE WHEN coalesce(cardinality(v_path), 0) = 0;
    v_kind := jsonb_typeof(p_value #> trim_array(v_path, 1));
    IF v_kind = 'object' OR (v_kind = 'array' AND v_path[cardinality(v_path)] ~ '^-?[0-9]{1,9}$') THEN
      p_value := p_value #- v_path;
    END IF;
  END LOOP;
  RETURN p_value;
END $$;

-- Compares what Waybill rendered with what the other system sent. matched: both, and equal. different: both, and not
-- equal. missing: only the other system sent it. extra: only Waybill would have sent it. waiting: only one side so far,
-- and younger than grace. ignore: paths that may differ.
CREATE OR REPLACE FUNCTION compare_shadow(
  rollout text,
  since   timestamptz DEFAULT NULL,
  ignore  text[] DEFAULT '{}',
  grace   interval DEFAULT '1 minute')
RETURNS TABLE (
  verdict text, reference text, message_id uuid, first_at timestamptz, rendered jsonb, refused text, sent jsonb)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT CASE
           WHEN c.sent_at IS NOT NULL AND c.rendered_at IS NOT NULL THEN
             CASE
               WHEN c.refused IS NULL AND without_paths(c.rendered, ignore) = without_paths(c.sent, ignore)
               THEN 'matched'
               ELSE 'different'
             END
           WHEN c.first_at > clock_timestamp() - grace THEN 'waiting'
           WHEN c.rendered_at IS NULL THEN 'missing'
           WHEN c.refused IS NOT NULL THEN 'matched'
           ELSE 'extra'
         END,
         c.reference, c.message_id, c.first_at, c.rendered, c.refused, c.sent
    FROM shadow_comparisons c
   WHERE c.rollout = compare_shadow.rollout
     AND (since IS NULL OR c.first_at >= since)
$$;

-- Counts the results of compare_shadow.
CREATE OR REPLACE FUNCTION rollout_report(
  rollout text,
  since   timestamptz DEFAULT NULL,
  ignore  text[] DEFAULT '{}',
  grace   interval DEFAULT '1 minute')
RETURNS TABLE (verdict text, count bigint)
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT v.verdict, count(c.verdict)
    FROM unnest(ARRAY['matched', 'different', 'missing', 'extra', 'waiting']) WITH ORDINALITY v(verdict, position)
    LEFT JOIN compare_shadow(rollout_report.rollout, since, ignore, grace) c ON c.verdict = v.verdict
   GROUP BY v.verdict, v.position
   ORDER BY v.position
$$;

-- Deletes comparisons that are older than p_older_than, one batch; returns how many.
CREATE OR REPLACE FUNCTION prune_shadow_comparisons(p_older_than interval DEFAULT '30 days', p_batch int DEFAULT 1000)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off
AS $$
DECLARE
  v_count int;
BEGIN
  PERFORM checked_number('p_batch', p_batch, 1, 1000000);
  PERFORM checked_interval('p_older_than', p_older_than, '1 day', '100 years');
  DELETE FROM shadow_comparisons
   WHERE ctid = ANY (ARRAY (
           SELECT c.ctid
             FROM shadow_comparisons c
            WHERE c.first_at < now() - p_older_than
            ORDER BY c.first_at
            LIMIT p_batch
              FOR UPDATE SKIP LOCKED));
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;
