-- One reader at a time holds the lease of a cursor; every change of holder raises the fence, and only who knows
-- the current fence can move the cursor.

-- The lease, if it is free: one row with the fence and where to read on, or none. One that ends later than its
-- duration allows comes from a clock that was set back, and is free. Whoever held it last and neither moved the
-- cursor nor gave it back has died over the messages that come next: that is counted. Nobody gets it while its
-- destination is paused.
CREATE OR REPLACE FUNCTION take_cursor(p_name text, p_reader_id uuid, p_reader_name text, p_lease_ms int)
RETURNS TABLE (fence bigint, seen text, target text, "position" uuid, deaths int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_problem text;
BEGIN
  PERFORM refuse_standby();
  v_problem := cursor_problem(find_cursor(p_name));
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = format('cursor "%s" cannot be read: %s', p_name, v_problem),
      HINT = 'A restored dump or a promoted copy? Then run once: waybill cursors repair';
  END IF;
  RETURN QUERY
    UPDATE cursors c
       SET fence = c.fence + 1, reader_id = p_reader_id, reader_name = p_reader_name, lease = p_lease_ms * interval '1 ms',
           leased_until = clock_timestamp() + p_lease_ms * interval '1 ms',
           deaths = c.deaths + CASE WHEN c.reader_id IS NULL THEN 0 ELSE 1 END
     WHERE c.name = p_name
       AND (c.leased_until <= clock_timestamp() OR c.leased_until > clock_timestamp() + c.lease + interval '1 second')
       AND NOT EXISTS (SELECT FROM destinations d WHERE d.id = c.destination_id AND d.paused_at IS NOT NULL)
    RETURNING c.fence, c.seen::text, c.target::text, c.position, c.deaths;
END $$;

-- Holds on to the lease; no longer held means that somebody else has it. paused: the reader should give it up.
CREATE OR REPLACE FUNCTION extend_cursor(p_name text, p_fence bigint, OUT held boolean, OUT paused boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  WITH extended AS (
    UPDATE cursors SET leased_until = clock_timestamp() + lease WHERE name = p_name AND fence = p_fence RETURNING destination_id)
  SELECT EXISTS (SELECT FROM extended),
         EXISTS (SELECT FROM destinations d JOIN extended e ON d.id = e.destination_id WHERE d.paused_at IS NOT NULL)
$$;

CREATE OR REPLACE FUNCTION release_cursor(p_name text, p_fence bigint) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  WITH released AS (
    UPDATE cursors SET leased_until = '-infinity', reader_id = NULL, reader_name = NULL
     WHERE name = p_name AND fence = p_fence RETURNING 1)
  SELECT EXISTS (SELECT FROM released)
$$;

-- Moves the cursor: within its window (target and position given), or past it (both null, and seen is what was
-- the target). Extends the lease. p_safe says that what the last readers died over lies behind. False means that
-- the lease was lost: then nothing moves. It does not wait for the disk: after a crash of the server the cursor
-- may stand a moment further back, and messages come twice, which a reader must bear anyway.
CREATE OR REPLACE FUNCTION move_cursor(
  p_name text, p_fence bigint, p_seen pg_snapshot, p_target pg_snapshot, p_position uuid, p_safe boolean DEFAULT true)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  UPDATE cursors c
     SET seen = p_seen, target = p_target, position = p_position, leased_until = clock_timestamp() + c.lease,
         deaths = CASE WHEN p_safe THEN 0 ELSE c.deaths END,
         seen_at = CASE WHEN c.seen::text = p_seen::text THEN c.seen_at ELSE clock_timestamp() END,
         failed_message_id = NULL, tries = 0, error_code = NULL, error_message = NULL, moved_at = clock_timestamp()
   WHERE c.name = p_name AND c.fence = p_fence;
  RETURN FOUND;
END $$;

-- Notes that the next message failed, for whoever wonders why the cursor stands still. Returns after how many
-- milliseconds to try again, or null if the lease was lost.
CREATE OR REPLACE FUNCTION note_failure(
  p_name text, p_fence bigint, p_message_id uuid, p_tries int, p_error_code text, p_error_message text) RETURNS float8
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_destination_id smallint;
BEGIN
  UPDATE cursors
     SET failed_message_id = p_message_id, tries = p_tries, error_code = left(p_error_code, 100), error_message = p_error_message,
         leased_until = clock_timestamp() + lease
   WHERE name = p_name AND fence = p_fence RETURNING destination_id INTO v_destination_id;
  RETURN (SELECT extract(epoch FROM retry_delay(d.retry_base_ms, d.retry_max_ms, d.retry_delays_ms, p_tries)) * 1000
            FROM destinations d WHERE d.id = v_destination_id);
END $$;

-- Pauses the destination of a cursor because of its answer to a call that began so many milliseconds ago, and notes
-- why the cursor stands still. Returns whether it did, or null if the lease was lost.
CREATE OR REPLACE FUNCTION pause_cursor(
  p_name text, p_fence bigint, p_message_id uuid, p_error_code text, p_remote_code text, p_error_message text,
  p_began_ms_ago float8) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
DECLARE
  v_cursor cursors;
BEGIN
  UPDATE cursors
     SET failed_message_id = p_message_id, error_code = left(p_error_code, 100), error_message = p_error_message,
         leased_until = clock_timestamp() + lease
   WHERE name = p_name AND fence = p_fence RETURNING * INTO v_cursor;
  IF NOT FOUND THEN RETURN NULL; END IF;
  RETURN pause_after(v_cursor.destination_id, clock_timestamp() - p_began_ms_ago * interval '1 ms', v_cursor.reader_id,
                     p_error_code, p_remote_code, p_error_message);
END $$;

-- Parks a message with the dead letters and moves the cursor past it, in one transaction.
CREATE OR REPLACE FUNCTION park_message(
  p_name text, p_fence bigint, p_seen pg_snapshot, p_target pg_snapshot, p_position uuid, p_message_id uuid, p_tries int,
  p_reason text, p_error_code text, p_remote_code text, p_error_message text) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan AS $$
DECLARE
  v_durability text := current_setting('synchronous_commit');
BEGIN
  IF NOT move_cursor(p_name, p_fence, p_seen, p_target, p_position) THEN RETURN false; END IF;
  PERFORM set_config('synchronous_commit', v_durability, true);
  INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, remote_code,
         error_message, created_at, stream_id, sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type,
         aggregate_id, headers, payload)
  SELECT m.id, c.destination_id, clock_timestamp(), 0, p_tries, p_reason, left(p_error_code, 100), left(p_remote_code, 100),
         p_error_message, m.created_at, m.stream_id, m.sequence, m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key,
         m.aggregate_type, m.aggregate_id, m.headers, m.payload
    FROM messages m, cursors c WHERE m.id = p_message_id AND c.name = p_name
  ON CONFLICT DO NOTHING;
  RETURN true;
END $$;
