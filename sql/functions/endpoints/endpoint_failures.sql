-- Failing endpoints. The database keeps the time of the first failure since the last success, by its own clock. An
-- endpoint without a success for warnAfterMs is reported to the application by a message (waybill.endpoint.failing).
-- After disableAfterMs it is disabled, with another message (waybill.endpoint.disabled). Both are written in the
-- transaction that records the failure, so neither is written twice. recover_endpoint resends what has failed.
--
-- A success costs one look-up in a small index, and writes only if the endpoint failed before.

-- Whether an outcome is a failure of the endpoint. Waybill's own failures (a relay that stopped, a message that cannot
-- be read, a guard that refused it) do not count.
CREATE OR REPLACE FUNCTION is_endpoint_failure(p_outcome outcome, p_error_code text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
  SELECT p_outcome IN ('retry', 'reject', 'pause')
         AND coalesce(p_error_code, '')
             NOT IN ('stopped', 'message_missing', 'too_large_to_read', 'guard_refused', 'guard_failed')
$$;

-- Whether the destination is an endpoint that has failed since its last success.
CREATE OR REPLACE FUNCTION is_failing_endpoint(p_destination_id int) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (SELECT FROM endpoint_failures f WHERE f.destination_id = p_destination_id)
$$;

-- Forgets the failures of these endpoints, because a delivery has succeeded. Rows are locked in the order of the
-- endpoints, so that two calls cannot deadlock. p_failed: endpoints that have failed too; their failures begin again.
CREATE OR REPLACE FUNCTION end_endpoint_failures(p_destination_ids int[], p_failed int[] DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM
     FROM endpoint_failures f
    WHERE f.destination_id = ANY (p_destination_ids)
    ORDER BY f.destination_id
      FOR UPDATE;
  DELETE FROM endpoint_failures f
   WHERE f.destination_id = ANY (p_destination_ids)
     AND f.destination_id <> ALL (coalesce(p_failed, '{}'));
  UPDATE endpoint_failures f
     SET failing_since = statement_timestamp(), warned_at = NULL
   WHERE f.destination_id = ANY (p_destination_ids)
     AND f.destination_id = ANY (p_failed);
END $$;

-- Records successes and failures of endpoints, and warns or disables where a limit is reached. The lists have an
-- element for each claim; destinations that are not endpoints are ignored. p_is_paused: an answer has just paused the
-- destination (410). It takes a few statements for any number of endpoints. Returns the endpoints that it has disabled.
CREATE OR REPLACE FUNCTION note_endpoint_answers(
  p_destination_ids int[],
  p_relay_id        uuid,
  p_is_paused       boolean,
  p_outcomes        outcome[],
  p_error_codes     text[],
  p_remote_codes    text[],
  p_error_messages  text[])
RETURNS int[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_now      timestamptz := clock_timestamp();
  v_answered int[];
  v_failed   int[];
  v_errors   jsonb;
  v_state    record;
  v_disabled int[] := '{}';
BEGIN
  SELECT array_agg(x.destination_id) FILTER (WHERE x.has_delivered),
         array_agg(x.destination_id) FILTER (WHERE x.error IS NOT NULL),
         jsonb_object_agg(x.destination_id, x.error) FILTER (WHERE x.error IS NOT NULL)
    INTO v_answered, v_failed, v_errors
    FROM (SELECT a.destination_id, bool_or(a.outcome = 'delivered') AS has_delivered,
                 (array_agg(jsonb_build_object('code', left(a.error_code, 100),
                                               'remoteCode', left(a.remote_code, 100),
                                               'message', short_text(a.error_message, 2000)) ORDER BY a.place)
                    FILTER (WHERE is_endpoint_failure(a.outcome, a.error_code)))[1] AS error
            FROM unnest(p_destination_ids, p_outcomes, p_error_codes, p_remote_codes, p_error_messages)
                 WITH ORDINALITY a(destination_id, outcome, error_code, remote_code, error_message, place)
           WHERE EXISTS (
                   SELECT FROM endpoints e
                    WHERE e.destination_id = a.destination_id
                      AND e.removed_at IS NULL)
           GROUP BY a.destination_id) x;
  -- Not v_now: dead letters that this statement has made must not be older, or recover_endpoint would miss them. Before
  -- any row is locked: a session that has locked a row never waits for one that another has inserted, so that two calls
  -- cannot deadlock.
  INSERT INTO endpoint_failures (destination_id, failing_since)
  SELECT d, statement_timestamp() FROM unnest(v_failed) d ORDER BY d
  ON CONFLICT DO NOTHING;
  IF v_answered IS NOT NULL THEN PERFORM end_endpoint_failures(v_answered, v_failed); END IF;
  IF v_failed IS NULL THEN RETURN v_disabled; END IF;
  -- The limits count from the first failure, or from when the endpoint was last enabled. Most endpoints reach neither.
  FOR v_state IN
    SELECT x.*
      FROM (SELECT f.destination_id, f.failing_since, greatest(f.failing_since, d.resumed_at) AS counted_since,
                   d.paused_at IS NOT NULL AS is_paused, s.warn_after_ms * interval '1 ms' AS warn_after,
                   s.disable_after_ms * interval '1 ms' AS disable_after
              FROM endpoint_failures f
              JOIN destinations d ON d.id = f.destination_id
             CROSS JOIN endpoint_settings s
             WHERE f.destination_id = ANY (v_failed)) x
     WHERE p_is_paused
        OR x.counted_since > v_now
        OR (NOT x.is_paused AND v_now - x.counted_since >= least(x.warn_after, x.disable_after))
     ORDER BY x.destination_id
  LOOP
    -- If a message cannot be written, the next failure tries again: recording this one must not fail.
    BEGIN
      IF tell_of_failures(v_state.destination_id, p_relay_id, p_is_paused, v_state.failing_since,
                          v_state.counted_since, v_state.warn_after, v_state.disable_after,
                          v_errors -> v_state.destination_id::text)
      THEN
        v_disabled := v_disabled || v_state.destination_id;
      END IF;
    EXCEPTION WHEN OTHERS THEN
      RAISE WARNING 'the application was not told that an endpoint fails: %', SQLERRM;
    END;
  END LOOP;
  RETURN v_disabled;
END $$;

-- Disables an endpoint whose failures have reached the limit, or warns the application. p_is_paused: an answer has
-- paused it already, so only the message is missing. Returns whether this call disabled it.
CREATE OR REPLACE FUNCTION tell_of_failures(
  p_destination_id int,
  p_relay_id       uuid,
  p_is_paused      boolean,
  p_failing_since  timestamptz,
  p_counted_since  timestamptz,
  p_warn_after     interval,
  p_disable_after  interval,
  p_error          jsonb)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  IF p_is_paused THEN
    PERFORM tell_of_endpoint('waybill.endpoint.disabled', p_destination_id, jsonb_build_object(
      'failingSince', p_failing_since, 'disabledAt', v_now, 'error', p_error));
  ELSIF p_counted_since > v_now THEN
    -- a time in the future was written before the clock was set back
    UPDATE endpoint_failures f SET failing_since = v_now, warned_at = NULL WHERE f.destination_id = p_destination_id;
  ELSIF v_now - p_counted_since >= p_disable_after THEN
    RETURN disable_failing_endpoint(p_destination_id, p_relay_id, p_failing_since, p_error);
  ELSE
    -- if another session holds the row, the next failure warns
    UPDATE endpoint_failures f
       SET warned_at = v_now
     WHERE f.ctid = (
             SELECT x.ctid
               FROM endpoint_failures x
              WHERE x.destination_id = p_destination_id
                AND x.failing_since = p_failing_since
                AND (x.warned_at IS NULL OR x.warned_at < p_counted_since)
                FOR UPDATE SKIP LOCKED);
    IF FOUND THEN
      PERFORM tell_of_endpoint('waybill.endpoint.failing', p_destination_id, jsonb_build_object(
        'failingSince', p_failing_since, 'disablesAt', p_counted_since + p_disable_after, 'error', p_error));
    END IF;
  END IF;
  RETURN false;
END $$;

-- Disables an endpoint that has had no success for the limit. Returns whether this call did. It waits for no lock: if
-- another session holds the destination, the next failure disables it.
CREATE OR REPLACE FUNCTION disable_failing_endpoint(
  p_destination_id int, p_relay_id uuid, p_failing_since timestamptz, p_error jsonb)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC'
AS $$
BEGIN
  PERFORM
     FROM destinations d
    WHERE d.id = p_destination_id
      AND d.paused_at IS NULL
      FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND
     OR NOT pause_after(p_destination_id, clock_timestamp(), p_relay_id, 'endpoint_failing', p_error ->> 'remoteCode',
                        format('it has only failed since %s, at last with %s', to_json(p_failing_since) #>> '{}',
                               concat_ws(': ', p_error ->> 'code', p_error ->> 'message')))
  THEN
    RETURN false;
  END IF;
  PERFORM tell_of_endpoint('waybill.endpoint.disabled', p_destination_id, jsonb_build_object(
    'failingSince', p_failing_since, 'disabledAt', clock_timestamp(), 'error', p_error));
  RETURN true;
END $$;

-- Enqueues a message about an endpoint for the application. It has no tenant, so that customers' endpoints with the
-- topic * do not get it; the payload names the tenant.
CREATE OR REPLACE FUNCTION tell_of_endpoint(p_topic text, p_destination_id int, p_more jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM enqueue(p_topic, jsonb_build_object('endpoint', d.name, 'tenantId', e.tenant_id) || p_more,
                  aggregate_type => 'endpoint', aggregate_id => d.name, unrouted => 'keep')
     FROM endpoints e
     JOIN destinations d ON d.id = e.destination_id
    WHERE e.destination_id = p_destination_id;
END $$;

-- Recovers an endpoint: enables it, requeues its dead letters since the first failure, or since a given time, and makes
-- deliveries that wait for a retry due now. resent: how many. more: max_count was reached, and some may be left; call
-- it again with the same since.
CREATE OR REPLACE FUNCTION recover_endpoint(
  name      text,
  since     timestamptz DEFAULT NULL,
  tenant_id text DEFAULT NULL,
  actor     text DEFAULT NULL,
  max_count int DEFAULT 100000,
  OUT first_failure timestamptz,
  OUT resent        int,
  OUT more          boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_variable
DECLARE
  v_batch CONSTANT int := 1000;
  v_id             int := (find_endpoint(name, tenant_id)).destination_id;
  v_ids            uuid[];
  -- the last dead letter that was read
  v_dead_at        timestamptz;
  v_last           uuid := '00000000-0000-0000-0000-000000000000';
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  first_failure := coalesce(
    since,
    (SELECT f.failing_since
       FROM endpoint_failures f
      WHERE f.destination_id = v_id));
  IF first_failure IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('since is null, and the endpoint "%s" has not failed since its last success: give since',
                       left(name, 63));
  END IF;
  resent := 0;
  v_dead_at := first_failure;
  LOOP
    SELECT array_agg(d.message_id), max(d.dead_at), (array_agg(d.message_id ORDER BY d.dead_at, d.message_id))[count(*)]
      INTO v_ids, v_dead_at, v_last
      FROM (SELECT l.message_id, l.dead_at
              FROM dead_letters l
             WHERE l.destination_id = v_id
               AND (l.dead_at, l.message_id) > (v_dead_at, v_last)
             ORDER BY l.dead_at, l.message_id
             LIMIT least(v_batch, max_count - resent)) d;
    EXIT WHEN v_ids IS NULL;
    -- those that cannot be sent, because their message is gone, stay
    resent := resent + retry_dead_letters(name, v_ids, actor => actor, max_count => v_batch);
    EXIT WHEN resent >= max_count;
  END LOOP;
  IF resent < max_count THEN resent := resent + retry_now(name, actor, max_count - resent); END IF;
  more := resent >= max_count;
  PERFORM set_paused(name, false, actor);
END $$;
