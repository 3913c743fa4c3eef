-- What an operator may do, each recorded in operator_actions with who did it. Replays are new work: the
-- earlier ending stays in the attempts, claim numbers go on, counted tries begin anew.

-- Cancels waiting deliveries: one message at one destination, or at all of them. What a relay holds at
-- this moment is not cancelled; the count tells.
CREATE OR REPLACE FUNCTION cancel(message_id uuid, destination text DEFAULT NULL, actor text DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_destination_id smallint := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
  v_count   int;
  v_targets smallint[];
  v_streams bigint[];
BEGIN
  WITH cancelled AS (
    DELETE FROM deliveries d WHERE d.message_id = cancel.message_id
       AND (v_destination_id IS NULL OR d.destination_id = v_destination_id)
    RETURNING d.*),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT c.message_id, c.destination_id, c.claim_no + 1, c.tries, 'discarded', clock_timestamp(), 'cancelled' FROM cancelled c)
  SELECT count(*), array_agg(c.destination_id), array_agg(c.stream_id) INTO v_count, v_targets, v_streams FROM cancelled c;
  IF v_count > 0 THEN
    -- whatever stood behind it
    PERFORM recheck_lanes(v_targets, v_streams);
    PERFORM ring(v_targets);
    PERFORM record_action(actor, 'cancel', jsonb_build_object('messageId', cancel.message_id, 'destination', destination), v_count);
  END IF;
  RETURN v_count;
END $$;

-- The dead letters that match, oldest first: the one filter that listing, retry and discard share.
CREATE OR REPLACE FUNCTION find_dead_letters(
  destination text DEFAULT NULL, ids uuid[] DEFAULT NULL, error_code text DEFAULT NULL, topic text DEFAULT NULL,
  tenant_id text DEFAULT NULL, dead_before timestamptz DEFAULT NULL, max_count int DEFAULT 1000,
  only_those text DEFAULT NULL)
RETURNS SETOF dead_letters LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
#variable_conflict use_column
DECLARE
  v_destination_id smallint := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  RETURN QUERY SELECT d.* FROM dead_letters d
   WHERE (v_destination_id IS NULL OR d.destination_id = v_destination_id)
     AND (find_dead_letters.ids IS NULL OR d.message_id = ANY (find_dead_letters.ids))
     AND (find_dead_letters.error_code IS NULL OR d.error_code = find_dead_letters.error_code)
     AND (find_dead_letters.topic IS NULL OR d.topic = find_dead_letters.topic)
     AND (find_dead_letters.tenant_id IS NULL OR d.tenant_id = find_dead_letters.tenant_id)
     AND (find_dead_letters.dead_before IS NULL OR d.dead_at < find_dead_letters.dead_before)
     AND CASE only_those
           -- one whose message is missing cannot be sent again, only discarded; and one that is parked only with its head
           WHEN 'sendable' THEN d.payload IS NOT NULL AND NOT (d.reason = 'parked' AND EXISTS (
             SELECT FROM lanes l WHERE l.destination_id = d.destination_id AND l.stream_id = d.stream_id AND l.blocked_by IS NOT NULL))
           WHEN 'blocking' THEN EXISTS (SELECT FROM lanes l WHERE l.blocked_by = d.message_id AND l.destination_id = d.destination_id)
           -- retention opens no lane: that is for a person to do
           WHEN 'harmless' THEN d.reason <> 'parked' AND NOT EXISTS (
             SELECT FROM lanes l WHERE l.blocked_by = d.message_id AND l.destination_id = d.destination_id)
           ELSE true END
   ORDER BY d.dead_at, d.message_id LIMIT max_count;
END $$;

-- The turn of whoever retries, skips or discards dead letters: it ends with the transaction. Somebody may have left one
-- open: it is waited for no longer than p_most, or lock_timeout where that is shorter, and then named.
CREATE OR REPLACE FUNCTION await_dead_letters(p_most interval DEFAULT '10 seconds') RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_key     bigint := hashtextextended('waybill dead letters ' || current_schema(), 0);
  v_timeout text := current_setting('lock_timeout');
  v_holder  int;
BEGIN
  IF pg_try_advisory_xact_lock(v_key) THEN RETURN; END IF;
  IF v_timeout::interval = '0' OR v_timeout::interval > p_most THEN
    PERFORM set_config('lock_timeout', (extract(epoch FROM p_most) * 1000)::int::text, true);
  END IF;
  BEGIN
    PERFORM pg_advisory_xact_lock(v_key);
  EXCEPTION WHEN lock_not_available THEN
    SELECT l.pid INTO v_holder FROM pg_locks l
     WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND (l.classid::bigint << 32) | l.objid::bigint = v_key
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database());
    RAISE EXCEPTION USING ERRCODE = '55P03',
      MESSAGE = format('dead letters are being changed by %s in a transaction that has not ended: nothing was changed here, try again when it has',
                       coalesce('session ' || v_holder, 'another session')),
      HINT = coalesce('To end it: SELECT pg_terminate_backend(' || v_holder || ').', 'It has ended meanwhile.');
  END;
  PERFORM set_config('lock_timeout', v_timeout, true);
END $$;

-- Each call takes at most max_count, so that a caller with many goes in short transactions until it gets 0. Calls take
-- turns: of two that choose the same letters the second would get none of them, and think that there are no more.
CREATE OR REPLACE FUNCTION retry_dead_letters(
  destination text DEFAULT NULL, ids uuid[] DEFAULT NULL, error_code text DEFAULT NULL, topic text DEFAULT NULL,
  tenant_id text DEFAULT NULL, dead_before timestamptz DEFAULT NULL, max_count int DEFAULT 1000, actor text DEFAULT NULL)
RETURNS int LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_count   int;
  v_targets smallint[];
  v_ids     uuid[];
  v_streams bigint[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  PERFORM await_dead_letters();
  WITH chosen AS MATERIALIZED (
    SELECT f.message_id, f.destination_id
      FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, 'sendable') f),
  raised AS (
    DELETE FROM dead_letters d USING chosen c
     WHERE d.message_id = c.message_id AND d.destination_id = c.destination_id RETURNING d.*),
  waiting AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, claim_no, tries, bytes, namespace, tenant_id, stream_id, sequence)
    SELECT r.message_id, r.destination_id, clock_timestamp(), r.claim_no, 0,
           octet_length(r.payload::text) + coalesce(octet_length(r.headers::text), 0), r.namespace,
           turn_of(t.fairness, r.tenant_id), r.stream_id, r.sequence
      FROM raised r JOIN destinations t ON t.id = r.destination_id RETURNING message_id, destination_id, stream_id)
  SELECT count(*), array_agg(w.destination_id), array_agg(w.message_id), array_agg(w.stream_id)
    INTO v_count, v_targets, v_ids, v_streams FROM waiting w;
  IF v_count > 0 THEN
    PERFORM recheck_lanes(v_targets, v_streams);
    v_count := v_count + (unblock_lanes(v_targets, v_ids, false)).unparked;
    PERFORM record_action(actor, 'retry_dead_letters', jsonb_build_object('destination', destination, 'ids', ids,
      'errorCode', error_code, 'topic', topic, 'tenantId', tenant_id, 'deadBefore', dead_before), v_count);
    PERFORM ring(v_targets);
  END IF;
  RETURN v_count;
END $$;

CREATE OR REPLACE FUNCTION discard_dead_letters(
  destination text DEFAULT NULL, ids uuid[] DEFAULT NULL, error_code text DEFAULT NULL, topic text DEFAULT NULL,
  tenant_id text DEFAULT NULL, dead_before timestamptz DEFAULT NULL, max_count int DEFAULT 1000, actor text DEFAULT NULL,
  only_those text DEFAULT NULL)
RETURNS int LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_count   int;
  v_targets smallint[];
  v_ids     uuid[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  PERFORM await_dead_letters();
  WITH chosen AS MATERIALIZED (
    SELECT f.message_id, f.destination_id FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, only_those) f),
  -- a head takes with it what is parked behind it and matches too: the rest will be sent
  followers AS MATERIALIZED (
    SELECT p.message_id, p.destination_id FROM chosen c
      JOIN lanes l ON l.blocked_by = c.message_id AND l.destination_id = c.destination_id
      JOIN dead_letters p ON p.destination_id = l.destination_id AND p.stream_id = l.stream_id AND p.reason = 'parked'
     WHERE (discard_dead_letters.ids IS NULL OR p.message_id = ANY (discard_dead_letters.ids))
       AND (discard_dead_letters.error_code IS NULL OR p.error_code = discard_dead_letters.error_code)
       AND (discard_dead_letters.topic IS NULL OR p.topic = discard_dead_letters.topic)
       AND (discard_dead_letters.tenant_id IS NULL OR p.tenant_id = discard_dead_letters.tenant_id)
       AND (discard_dead_letters.dead_before IS NULL OR p.dead_at < discard_dead_letters.dead_before)),
  removed AS (
    DELETE FROM dead_letters d USING (SELECT * FROM chosen UNION SELECT * FROM followers) c
     WHERE d.message_id = c.message_id AND d.destination_id = c.destination_id RETURNING d.*),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT r.message_id, r.destination_id, r.claim_no + 1, r.tries, 'discarded', clock_timestamp(), r.error_code FROM removed r)
  SELECT count(*), array_agg(r.destination_id), array_agg(r.message_id) INTO v_count, v_targets, v_ids FROM removed r;
  IF v_count > 0 THEN
    IF (unblock_lanes(v_targets, v_ids, true)).unblocked > 0 THEN PERFORM ring(v_targets); END IF;
    PERFORM record_action(actor, 'discard_dead_letters', jsonb_build_object('destination', destination, 'ids', ids,
      'errorCode', error_code, 'topic', topic, 'tenantId', tenant_id, 'deadBefore', dead_before), v_count);
  END IF;
  RETURN v_count;
END $$;

-- Opens the lanes that matching dead letters block: what stands behind them goes on, and they stay dead. Returns
-- how many lanes were opened.
CREATE OR REPLACE FUNCTION skip_dead_letters(
  destination text DEFAULT NULL, ids uuid[] DEFAULT NULL, error_code text DEFAULT NULL, topic text DEFAULT NULL,
  tenant_id text DEFAULT NULL, dead_before timestamptz DEFAULT NULL, max_count int DEFAULT 1000, actor text DEFAULT NULL)
RETURNS int LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_targets smallint[];
  v_ids     uuid[];
  v_count   int := 0;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  PERFORM await_dead_letters();
  SELECT array_agg(f.destination_id), array_agg(f.message_id) INTO v_targets, v_ids
    FROM find_dead_letters(destination, ids, error_code, topic, tenant_id, dead_before, max_count, 'blocking') f;
  IF v_ids IS NOT NULL THEN v_count := (unblock_lanes(v_targets, v_ids, true)).unblocked; END IF;
  IF v_count > 0 THEN
    PERFORM record_action(actor, 'skip_dead_letters', jsonb_build_object('destination', destination, 'ids', ids,
      'errorCode', error_code, 'topic', topic, 'tenantId', tenant_id, 'deadBefore', dead_before), v_count);
    PERFORM ring(v_targets);
  END IF;
  RETURN v_count;
END $$;

-- What waits for its retry becomes due now, at most max_count in one call; with ids, those messages, also if their
-- first try is yet to come.
CREATE OR REPLACE FUNCTION retry_now(
  destination text DEFAULT NULL, actor text DEFAULT NULL, max_count int DEFAULT 10000, ids uuid[] DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_destination_id smallint := CASE WHEN destination IS NOT NULL THEN (find_destination(destination)).id END;
  v_count   int;
  v_targets smallint[];
  v_streams bigint[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  WITH waiting AS (
    SELECT d.message_id, d.destination_id FROM deliveries d
     WHERE d.available_at > clock_timestamp()
       AND CASE WHEN ids IS NULL THEN d.tries > 0 ELSE d.message_id = ANY (ids) END
       AND (v_destination_id IS NULL OR d.destination_id = v_destination_id) LIMIT max_count FOR UPDATE SKIP LOCKED),
  due AS (
    UPDATE deliveries d SET available_at = clock_timestamp() FROM waiting w
     WHERE d.message_id = w.message_id AND d.destination_id = w.destination_id RETURNING d.destination_id, d.stream_id)
  SELECT count(*), array_agg(d.destination_id), array_agg(d.stream_id) INTO v_count, v_targets, v_streams FROM due d;
  IF v_count > 0 THEN
    PERFORM recheck_lanes(v_targets, v_streams);
    PERFORM record_action(actor, 'retry_now', jsonb_build_object('destination', destination, 'ids', ids), v_count);
    PERFORM ring(v_targets);
  END IF;
  RETURN v_count;
END $$;

-- Messages that no route wanted when they were enqueued, and one wants now: they become deliveries. It is for
-- an operator to say so, because they may be old. At most max_count in one call; those that still have no
-- route stay, and are not looked at again by the same caller if it passes on the last id that it was given.
CREATE OR REPLACE FUNCTION route_unrouted(
  after uuid DEFAULT NULL, max_count int DEFAULT 1000, actor text DEFAULT NULL, OUT routed int, OUT seen int, OUT last uuid)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  v_ids     uuid[];
  v_targets smallint[];
  v_streams bigint[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  v_ids := ARRAY (
    SELECT u.message_id FROM unrouted_messages u WHERE after IS NULL OR u.message_id > after
     ORDER BY u.message_id LIMIT max_count FOR UPDATE SKIP LOCKED);
  seen := cardinality(v_ids);
  last := coalesce(v_ids[seen], after);
  WITH wanted AS MATERIALIZED (
    SELECT DISTINCT m.id, r.destination_id, m.namespace, m.stream_id, m.sequence,
           turn_of(t.fairness, m.tenant_id) AS tenant_id,
           octet_length(m.payload::text) + coalesce(octet_length(m.headers::text), 0) AS bytes
      FROM unnest(v_ids) i(id)
      CROSS JOIN LATERAL (
        -- FOR SHARE: retention sees the lock and leaves the partition alone
        SELECT * FROM messages x WHERE x.id = i.id AND x.id BETWEEN v_ids[1] AND v_ids[seen] OFFSET 0 FOR SHARE) m
      -- in two halves, for the index: the routes of other tenants are not looked at, also before statistics say so;
      -- not those of a rollout: nobody was asked who sends these
      JOIN LATERAL (
        SELECT x.destination_id FROM routes x
         WHERE x.rollout IS NULL AND x.tenant_id IS NULL AND route_matches(x.topic, x.namespace, NULL, m.topic, m.namespace, m.tenant_id)
        UNION ALL
        SELECT x.destination_id FROM routes x
         WHERE x.rollout IS NULL AND x.tenant_id = m.tenant_id AND route_matches(x.topic, x.namespace, NULL, m.topic, m.namespace, m.tenant_id)) r ON true
      JOIN destinations t ON t.id = r.destination_id),
  delivered AS (
    INSERT INTO deliveries (message_id, destination_id, available_at, bytes, namespace, tenant_id, stream_id, sequence)
    SELECT w.id, w.destination_id, clock_timestamp(), w.bytes, w.namespace, w.tenant_id, w.stream_id, w.sequence FROM wanted w
    RETURNING destination_id, stream_id),
  gone AS (
    DELETE FROM unrouted_messages u USING (SELECT DISTINCT id FROM wanted) w WHERE u.message_id = w.id RETURNING 1)
  SELECT (SELECT count(*) FROM gone), (SELECT array_agg(destination_id) FROM delivered), (SELECT array_agg(stream_id) FROM delivered)
    INTO routed, v_targets, v_streams;
  IF routed > 0 THEN
    PERFORM recheck_lanes(v_targets, v_streams);
    PERFORM record_action(actor, 'route_unrouted', '{}', routed);
    PERFORM ring(v_targets);
  END IF;
END $$;

-- Some waiting deliveries of a destination, locked: those without a key, then whole keys, each from its head.
CREATE OR REPLACE FUNCTION choose_deliveries(p_destination_id smallint, p_max_count int) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET enable_seqscan = off SET enable_sort = off AS $$
DECLARE
  v_ids uuid[];
BEGIN
  v_ids := ARRAY (
    SELECT d.message_id FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NULL
     ORDER BY d.available_at, d.message_id LIMIT p_max_count FOR UPDATE SKIP LOCKED);
  RETURN v_ids || ARRAY (
    SELECT d.message_id FROM deliveries d WHERE d.destination_id = p_destination_id AND d.stream_id IS NOT NULL
     ORDER BY d.stream_id, d.sequence LIMIT p_max_count - cardinality(v_ids) FOR UPDATE SKIP LOCKED);
END $$;

-- Waiting deliveries of a destination that left the configuration: moved to another, or discarded. One move at a
-- time. What the new destination has, or had to its end, it does not get again: neither what was delivered there
-- nor what was cancelled or discarded there.
CREATE OR REPLACE FUNCTION move_deliveries(destination text, to_destination text, max_count int DEFAULT 1000, actor text DEFAULT NULL)
RETURNS int LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_from  smallint := (find_destination(destination)).id;
  v_to    smallint := (find_destination(to_destination)).id;
  v_moved deliveries[];
  v_count int;
  v_endpoint endpoints;
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  IF v_from = v_to THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('to_destination is %s, and so is destination: give another one', to_destination);
  END IF;
  -- an endpoint is a customer's: it gets nothing that is somebody else's
  SELECT * INTO v_endpoint FROM endpoints e WHERE e.destination_id = v_to;
  IF v_endpoint.removed_at IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('to_destination is %s, an endpoint that was removed: give another one', to_destination);
  END IF;
  -- two that bring the same message to one destination would not see each other's
  PERFORM pg_advisory_xact_lock(hashtextextended('waybill move ' || current_schema(), 0));
  -- The old destination's record ends with "discarded"; where the new one has the message already, that is all.
  WITH chosen AS (
    SELECT unnest(choose_deliveries(v_from, max_count)) AS message_id),
  moved AS (
    DELETE FROM deliveries d USING chosen c WHERE d.message_id = c.message_id AND d.destination_id = v_from RETURNING d),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT (m.d).message_id, v_from, (m.d).claim_no + 1, (m.d).tries, 'discarded', clock_timestamp(), 'moved' FROM moved m)
  SELECT array_agg(m.d), count(*) INTO v_moved, v_count FROM moved m;
  IF v_count = 0 THEN RETURN 0; END IF;
  -- of what is in hand: another look would not see the same
  IF v_endpoint.tenant_id IS NOT NULL AND EXISTS (SELECT FROM unnest(v_moved) m WHERE m.tenant_id IS DISTINCT FROM v_endpoint.tenant_id) THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format(
      'to_destination is %s, an endpoint of the tenant %s, and messages of others wait at %s: give another one',
      to_destination, v_endpoint.tenant_id, destination);
  END IF;

  -- A claim under way at the new destination is waited for; only a later statement sees the lease it made.
  PERFORM FROM deliveries d JOIN unnest(v_moved) m ON d.message_id = m.message_id WHERE d.destination_id = v_to FOR UPDATE OF d;
  -- Claim numbers go on from whatever happened to the message at the new destination before.
  INSERT INTO deliveries (message_id, destination_id, available_at, claim_no, bytes, namespace, tenant_id, stream_id, sequence)
  SELECT m.message_id, v_to, m.available_at, coalesce(p.claim_no, 0), m.bytes, m.namespace,
         turn_of((SELECT t.fairness FROM destinations t WHERE t.id = v_to), nullif(m.tenant_id, '')), m.stream_id, m.sequence
    FROM unnest(v_moved) m
    LEFT JOIN LATERAL (
      SELECT a.claim_no, a.state = 'dispatched' OR (a.state = 'discarded' AND a.error_code IS DISTINCT FROM 'moved') AS ended
        FROM attempts a WHERE a.message_id = m.message_id AND a.destination_id = v_to ORDER BY a.claim_no DESC LIMIT 1) p ON true
   WHERE p.ended IS NOT TRUE
     AND NOT EXISTS (SELECT FROM deliveries d WHERE d.message_id = m.message_id AND d.destination_id = v_to)
     AND NOT EXISTS (SELECT FROM dead_letters d WHERE d.message_id = m.message_id AND d.destination_id = v_to)
     -- a lease still names those of its messages whose claim has ended
     AND NOT EXISTS (SELECT FROM leases l WHERE l.destination_id = v_to AND m.message_id = ANY (l.message_ids)
                        AND l.claim_nos[array_position(l.message_ids, m.message_id)] > coalesce(p.claim_no, 0));
  PERFORM recheck_lanes(array_agg(t.id), array_agg(m.stream_id)) FROM unnest(v_moved) m CROSS JOIN unnest(ARRAY[v_from, v_to]) t(id);
  PERFORM record_action(actor, 'move_deliveries', jsonb_build_object('destination', destination, 'to', to_destination), v_count);
  PERFORM ring(ARRAY[v_to]);
  RETURN v_count;
END $$;

CREATE OR REPLACE FUNCTION discard_deliveries(destination text, max_count int DEFAULT 1000, actor text DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_destination_id smallint := (find_destination(destination)).id;
  v_count   int;
  v_streams bigint[];
BEGIN
  PERFORM checked_number('max_count', max_count, 1, 1000000);
  WITH chosen AS (
    SELECT unnest(choose_deliveries(v_destination_id, max_count)) AS message_id),
  removed AS (
    DELETE FROM deliveries d USING chosen c WHERE d.message_id = c.message_id AND d.destination_id = v_destination_id RETURNING d.*),
  ended AS (
    INSERT INTO attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code)
    SELECT r.message_id, r.destination_id, r.claim_no + 1, r.tries, 'discarded', clock_timestamp(), 'cancelled' FROM removed r)
  SELECT count(*), array_agg(r.stream_id) INTO v_count, v_streams FROM removed r;
  IF v_count > 0 THEN
    -- whatever stands behind them
    PERFORM recheck_lanes(array_fill(v_destination_id, ARRAY[v_count]), v_streams);
    PERFORM ring(ARRAY[v_destination_id]);
    PERFORM record_action(actor, 'discard_deliveries', jsonb_build_object('destination', destination), v_count);
  END IF;
  RETURN v_count;
END $$;

-- Pauses a destination, or lets it go on. reason: why, for whoever looks at it later.
CREATE OR REPLACE FUNCTION set_paused(destination text, paused boolean, actor text DEFAULT NULL, reason text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_destination destinations := find_destination(destination);
BEGIN
  IF paused IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'paused is null: give true or false';
  END IF;
  UPDATE destinations d
     SET paused_at = CASE WHEN paused THEN clock_timestamp() END,
         paused_by = CASE WHEN paused THEN coalesce(actor, session_user) END,
         paused_reason = CASE WHEN paused THEN left(reason, 2000) END,
         paused_code = NULL,
         resumed_at = CASE WHEN paused THEN d.resumed_at ELSE clock_timestamp() END
   WHERE d.id = v_destination.id AND (d.paused_at IS NOT NULL) <> paused;
  IF FOUND THEN
    PERFORM record_action(actor, CASE WHEN paused THEN 'pause' ELSE 'resume' END,
      jsonb_build_object('destination', destination, 'reason', left(reason, 2000)), 1);
    IF NOT paused THEN PERFORM ring(ARRAY[v_destination.id]); END IF;
  END IF;
END $$;

-- Pauses a destination because of its answer, once; whoever resumes it after p_since knows of that answer's cause
-- already, and is not contradicted by an answer that comes late. Returns whether it did.
CREATE OR REPLACE FUNCTION pause_after(
  p_destination_id smallint, p_since timestamptz, p_relay_id uuid, p_code text, p_remote_code text, p_message text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_actor text := coalesce('relay ' || (SELECT r.name FROM relays r WHERE r.id = p_relay_id), 'worker ' || p_relay_id);
  v_name  text;
BEGIN
  UPDATE destinations d
     SET paused_at = clock_timestamp(), paused_by = v_actor, paused_code = left(p_code, 100),
         paused_reason = left(nullif(concat_ws(': ', left(p_remote_code, 100), p_message), ''), 2000)
   WHERE d.id = p_destination_id AND d.paused_at IS NULL AND (d.resumed_at IS NULL OR d.resumed_at < p_since)
  RETURNING d.name INTO v_name;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM record_action(v_actor, 'pause', jsonb_build_object('destination', v_name, 'code', left(p_code, 100),
    'remoteCode', left(p_remote_code, 100), 'reason', left(p_message, 2000)), 1);
  RETURN true;
END $$;
