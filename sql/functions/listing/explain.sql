-- Explain: tells an operator why a message is not delivered yet. The command line and the page use it. It makes a few
-- index look-ups, so it costs the same on a large outbox as on a small one.

-- Explains the state of a message: one row for each destination, with a stable reason, a sentence and a remedy. The
-- remedy is null if nothing needs to be done.
CREATE OR REPLACE FUNCTION explain(message_id uuid)
RETURNS TABLE (destination text, status text, reason text, sentence text, remedy text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
  v_id    uuid := explain.message_id;
  v_known boolean;
  v_hook  text;
  v_count int;
BEGIN
  RETURN QUERY
    -- not from message_status: its plan covers every partition, and planning would take longer than the query
    SELECT s.destination, s.status, e.reason, e.sentence, e.remedy
      FROM describe_messages(ARRAY[v_id]) s
     CROSS JOIN LATERAL explain_place(v_id, s.destination_id, s.status) e
     WHERE s.destination_id IS NOT NULL
     ORDER BY s.destination;
  v_known := FOUND;
  RETURN QUERY
    SELECT c.name, 'pending'::text, 'not_read'::text,
           format('The cursor %s has not read it yet%s.', c.name,
                  CASE
                    WHEN is_taken(cursor_hold(c.name, c.hash_from))
                    THEN '; ' || coalesce(c.reader_name, 'a reader') || ' is reading'
                    ELSE ', and no reader is running'
                  END),
           CASE
             WHEN NOT is_taken(cursor_hold(c.name, c.hash_from))
             THEN 'Start a relay or a subscription that reads ' || c.name || '.'
           END
      FROM messages m
      JOIN cursors c ON is_unread(m, c)
     WHERE m.id = v_id
       AND c.kept IS NULL
       AND EXISTS (
             SELECT FROM unnest(c.topics, c.namespaces, c.tenant_ids) r(topic, namespace, tenant_id)
              WHERE route_matches(r.topic, r.namespace, r.tenant_id, m.topic, m.namespace, m.tenant_id));
  IF v_known OR FOUND THEN RETURN; END IF;
  FOR v_hook IN SELECT hooks('explanations') LOOP
    RETURN QUERY EXECUTE format('SELECT * FROM %s($1)', v_hook) USING v_id;
    GET DIAGNOSTICS v_count = ROW_COUNT;
    IF v_count > 0 THEN RETURN; END IF;
  END LOOP;
  RETURN QUERY
    SELECT NULL::text, 'unrouted'::text, 'no_route'::text,
           'No route and no cursor wants it. It is kept until it is routed or discarded.'
             || coalesce(' ' || shown_schedule(u), ''),
           'Add a route for its topic, then run waybill unrouted route; or waybill unrouted discard.'::text
      FROM unrouted_messages u
     WHERE u.message_id = v_id;
  IF FOUND THEN RETURN; END IF;
  RETURN QUERY
    SELECT NULL::text, 'unrouted'::text, 'no_route'::text,
           format('The cursor %s has not read it, and does not want it any more. '
                  'A relay makes it unrouted within a minute, unless another cursor has read it.',
                  remainder_of(c.name)),
           NULL::text
      FROM messages m
      JOIN cursors c ON c.kept IS NOT NULL AND is_unread(m, c)
     WHERE m.id = v_id
       AND filters_match(c.topics, c.namespaces, c.tenant_ids, m.topic, m.namespace, m.tenant_id)
     LIMIT 1;
  IF FOUND THEN RETURN; END IF;
  IF EXISTS (SELECT FROM messages m WHERE m.id = v_id) THEN
    RETURN QUERY
      SELECT NULL::text, 'ended'::text, 'no_destination'::text,
             'No destination has it: cursors have read it or were reset past it, '
             'or it was unrouted and an operator discarded it.'::text,
             NULL::text;
  ELSE
    RETURN QUERY
      SELECT NULL::text, 'unknown'::text, 'unknown_message'::text,
             format('There is no message %s: it was never committed, or retention has removed it.', v_id), NULL::text;
  END IF;
END $$;

-- When an unrouted message is due once it is routed, in a sentence; null if it was not delayed.
CREATE OR REPLACE FUNCTION shown_schedule(p_message unrouted_messages) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN p_message.available_at > clock_timestamp() THEN
      format('It is scheduled for %s: if it is routed before, it waits until then.', shown_time(p_message.available_at))
    WHEN p_message.available_at IS NOT NULL THEN
      format('It was scheduled for %s: it is due as soon as it is routed.', shown_time(p_message.available_at))
  END
$$;

-- Explains the state of a message at one destination.
CREATE OR REPLACE FUNCTION explain_place(p_message_id uuid, p_destination_id int, p_status text)
RETURNS TABLE (reason text, sentence text, remedy text)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_now         timestamptz := clock_timestamp();
  v_destination destinations;
  v_delivery    deliveries;
  v_lane        lanes;
  v_lease       leases;
  v_attempt     attempts;
  v_dead        dead_letters;
  v_head        uuid;
BEGIN
  SELECT * INTO v_destination FROM destinations WHERE id = p_destination_id;
  SELECT *
    INTO v_attempt
    FROM attempts a
   WHERE a.message_id = p_message_id
     AND a.destination_id = p_destination_id
   ORDER BY a.claim_no DESC
   LIMIT 1;

  IF p_status = 'delivered' THEN
    RETURN QUERY
      SELECT 'delivered',
             format('It was delivered at %s%s%s%s.', shown_time(v_attempt.ended_at), ', at try ' || v_attempt.tries,
                    ', answered ' || v_attempt.remote_code, ', receipt ' || v_attempt.reference),
             NULL::text;
    RETURN;
  ELSIF p_status = 'discarded' THEN
    RETURN QUERY
      SELECT 'discarded',
             format(CASE v_attempt.error_code
                      WHEN 'expired' THEN 'It was older than the endpoint allows at %s, and was not sent.'
                      WHEN 'moved' THEN 'An operator moved it to another destination at %s.'
                      WHEN 'cancelled' THEN 'An operator cancelled its delivery at %s.'
                      ELSE 'It was discarded at %s, by an operator or by retention; the audit names who.'
                    END, shown_time(v_attempt.ended_at)),
             NULL::text;
    RETURN;
  ELSIF p_status = 'dead' THEN
    SELECT *
      INTO v_dead
      FROM dead_letters d
     WHERE d.message_id = p_message_id
       AND d.destination_id = p_destination_id;
    IF v_dead.reason = 'parked' THEN
      RETURN QUERY
        SELECT 'parked',
               format('It has been parked behind a dead letter of its key %s since %s, and returns with it.',
                      quote_literal(v_dead.key), shown_time(v_dead.dead_at)),
               format('waybill dead-letters retry --destination %s', v_destination.name);
    ELSIF v_dead.error_code = 'too_large_to_read' AND v_dead.bytes > readable_bytes() THEN
      RETURN QUERY
        SELECT 'dead',
               format('It has been dead since %s and was not read: its payload and headers have %s bytes as text, '
                      'and nothing larger than %s is read.',
                      shown_time(v_dead.dead_at), v_dead.bytes, readable_bytes()),
               format('Enqueue it again in smaller parts, then discard it: waybill dead-letters discard %s',
                      p_message_id);
    ELSE
      RETURN QUERY
        SELECT 'dead',
               format('It has been dead since %s: %s after %s.', shown_time(v_dead.dead_at),
                      CASE v_dead.reason WHEN 'rejected' THEN 'refused for good' ELSE 'its tries are used up' END
                        || coalesce(' (' || shown_failure(v_dead.error_code, v_dead.remote_code,
                                                          v_dead.error_message) || ')', ''),
                      CASE WHEN v_dead.tries = 1 THEN '1 try' ELSE v_dead.tries || ' tries' END),
               format('Fix the cause, then: waybill dead-letters retry %s; or discard it: '
                      'waybill dead-letters discard %s', p_message_id, p_message_id);
    END IF;
    RETURN;
  ELSIF p_status = 'processing' THEN
    SELECT *
      INTO v_lease
      FROM leases l
     WHERE l.destination_id = p_destination_id
       AND p_message_id = ANY (l.message_ids);
    IF v_lease.expires_at < v_now THEN
      RETURN QUERY
        SELECT 'zombie',
               format('%s claimed it at %s and has not reported since; its lease expired at %s.',
                      holder_name(v_lease.relay_id), shown_time(v_lease.claimed_at), shown_time(v_lease.expires_at)),
               'Any relay, or the next claim of a worker, requeues it: start a relay if none runs.';
    ELSE
      RETURN QUERY
        SELECT 'leased',
               format('%s has held it since %s, and its lease ends at %s unless it is extended.',
                      holder_name(v_lease.relay_id), shown_time(v_lease.claimed_at), shown_time(v_lease.expires_at)),
               NULL::text;
    END IF;
    RETURN;
  END IF;

  SELECT *
    INTO v_delivery
    FROM deliveries d
   WHERE d.message_id = p_message_id
     AND d.destination_id = p_destination_id;
  IF v_destination.paused_at IS NOT NULL THEN
    RETURN QUERY
      SELECT 'paused',
             format('The destination has been paused since %s%s%s.', shown_time(v_destination.paused_at),
                    ' by ' || v_destination.paused_by,
                    ', because of '
                      || nullif(concat_ws(': ', v_destination.paused_code, v_destination.paused_reason), '')),
             format('Fix the cause, then: waybill destinations resume %s', v_destination.name);
    RETURN;
  ELSIF NOT v_destination.configured THEN
    RETURN QUERY
      SELECT 'unconfigured',
             format('%s is in no configuration file any more.', v_destination.name),
             'Put it back, move its deliveries with move_deliveries, or discard them with discard_deliveries.';
    RETURN;
  END IF;

  IF v_delivery.key_id IS NOT NULL THEN
    SELECT *
      INTO v_lane
      FROM lanes l
     WHERE l.destination_id = p_destination_id
       AND l.key_id = v_delivery.key_id;
    IF v_lane.blocked_by IS NOT NULL THEN
      RETURN QUERY
        SELECT 'blocked',
               format('Its key is blocked by the dead letter %s.', v_lane.blocked_by),
               format('waybill dead-letters retry %s, or skip it: waybill dead-letters skip %s',
                      v_lane.blocked_by, v_lane.blocked_by);
      RETURN;
    END IF;
    SELECT d.message_id
      INTO v_head
      FROM deliveries d
     WHERE d.destination_id = p_destination_id
       AND d.key_id = v_delivery.key_id
     ORDER BY d.sequence
     LIMIT 1;
    IF v_lane.lease_id IS NOT NULL THEN
      SELECT x.id
        INTO v_head
        FROM leases l, unnest(l.message_ids, l.key_ids) x(id, key_id)
       WHERE l.id = v_lane.lease_id
         AND x.key_id = v_delivery.key_id
       LIMIT 1;
    END IF;
    IF v_head <> p_message_id THEN
      RETURN QUERY
        SELECT 'behind',
               format('Message %s of its key comes first, and has not ended.', v_head),
               format('waybill explain %s', v_head);
      RETURN;
    END IF;
  END IF;

  IF is_misdated(v_delivery.available_at, v_delivery.delay_ms, v_now) THEN
    RETURN QUERY
      SELECT 'misdated',
             format('The database''s clock ran ahead when it was queued, and made it due at %s.',
                    shown_time(v_delivery.available_at)),
             format('A relay corrects it within seconds; without a relay: SELECT %I.release_misdated()',
                    current_schema());
  ELSIF v_delivery.available_at > v_now AND v_delivery.tries > 0 THEN
    RETURN QUERY
      SELECT 'retrying',
             format('Try %s of %s is at %s%s.', v_delivery.tries + 1, v_destination.max_attempts,
                    shown_time(v_delivery.available_at),
                    ', after ' || shown_failure(v_attempt.error_code, v_attempt.remote_code, v_attempt.error_message)),
             format('To retry now: SELECT %I.retry_now(%L, ids => %L)', current_schema(), v_destination.name,
                    ARRAY[p_message_id]);
  ELSIF v_delivery.available_at > v_now THEN
    RETURN QUERY
      SELECT 'scheduled',
             format('It is scheduled for %s.', shown_time(v_delivery.available_at)),
             NULL::text;
  ELSIF v_destination.kind <> 'worker'
        AND NOT EXISTS (
              SELECT FROM relays r
               WHERE r.heartbeat_at > v_now - interval '30 seconds'
                 AND (v_destination.name = ANY (r.destinations)
                      OR (r.endpoints AND v_destination.kind = 'endpoint'))) THEN
    RETURN QUERY
      SELECT 'no_relay',
             format('It has been due since %s, and no living relay serves %s.',
                    shown_time(v_delivery.available_at), v_destination.name),
             'Start one: waybill start.';
  ELSIF NOT EXISTS (
          SELECT FROM relays r
           WHERE r.heartbeat_at > v_now - interval '30 seconds'
             AND (v_destination.name = ANY (r.destinations) OR (r.endpoints AND v_destination.kind = 'endpoint'))
             AND NOT r.breakers ? v_destination.name)
        AND v_destination.kind <> 'worker' THEN
    RETURN QUERY
      SELECT 'breaker_open',
             format('It has been due since %s; %s fails too often, and the circuit breakers of all relays are open.',
                    shown_time(v_delivery.available_at), v_destination.name),
             'Relays try it again after a pause; look at its error codes.';
  ELSIF NOT EXISTS (
          SELECT FROM relays r
           WHERE r.heartbeat_at > v_now - interval '30 seconds'
             AND (v_destination.name = ANY (r.destinations) OR (r.endpoints AND v_destination.kind = 'endpoint'))
             AND NOT r.breakers ? v_destination.name
             AND v_destination.name <> ALL (r.limited))
        AND v_destination.kind <> 'worker' THEN
    RETURN QUERY
      SELECT 'rate_limited',
             format('It has been due since %s; the rate limit of %s%s is used up, and it waits for the limit.',
                    shown_time(v_delivery.available_at), v_destination.name,
                    ', ' || v_destination.rate_per_second || ' a second,'),
             'It is sent when the limit allows. If the backlog grows, raise rate in the configuration, '
             'or send less there.';
  ELSE
    RETURN QUERY
      SELECT 'due',
             format('It has been due since %s and waits for the next claim.', shown_time(v_delivery.available_at)),
             NULL::text;
  END IF;
END $$;

-- A time in the form that operators read, in UTC.
CREATE OR REPLACE FUNCTION shown_time(p_at timestamptz) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT to_char(p_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS "UTC"')
$$;

-- A failure in one line: its code, the code of the destination and the beginning of the message.
CREATE OR REPLACE FUNCTION shown_failure(p_code text, p_remote_code text, p_message text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT coalesce(p_code, 'a failure')
         || coalesce(' ' || p_remote_code, '')
         || coalesce(': ' || left(regexp_replace(p_message, '\s+', ' ', 'g'), 200), '')
$$;

-- The holder of a lease: a relay by its name, a worker by its token.
CREATE OR REPLACE FUNCTION holder_name(p_relay_id uuid) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT coalesce((SELECT 'relay ' || r.name FROM relays r WHERE r.id = p_relay_id), 'worker ' || p_relay_id)
$$;
