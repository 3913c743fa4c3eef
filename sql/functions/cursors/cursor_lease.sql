-- Cursor leases: one reader at a time reads a partition of a cursor. The lease is a hold (holds.sql, cursor_hold). The
-- row stores the token of the hold as its fence, and only a reader with the current fence can move it. So moves need
-- this row alone; extend_cursor renews the hold. p_hash_from is the beginning of the row's hashes, 0 for a cursor with
-- one partition.

-- Takes the lease of a partition that is free: returns one row with the fence, the filters and where to continue, or no
-- row. While the destination is paused, or has routes, or the number of partitions changes, no reader gets a lease.
-- p_except: not the rows that begin at these hashes. failed_message_id: the message at which the partition has stopped,
-- with its tries so far, and the time until its next try, 0 if it is due.
--
-- If the last reader did not release the lease, it has died, unless it is the caller: then the database was
-- unreachable. After a death, readers record each batch before they hand it to the handler. A death counts against a
-- batch only if that batch was recorded, so a reader that dies while idle counts against no batch. See
-- docs/internals/decisions/0033-a-death-counts-against-its-batch.md.
CREATE OR REPLACE FUNCTION take_cursor(
  p_name        text,
  p_reader_id   uuid,
  p_reader_name text,
  p_lease_ms    int,
  p_except      int[] DEFAULT '{}')
RETURNS TABLE (
  fence bigint, hash_from int, hash_to int, partition int, partitions int, seen text, target text, "position" uuid,
  until text, after_crash boolean, quarantined_until uuid, quarantined_count int, topics text[], namespaces text[],
  tenant_ids text[], failed_message_id uuid, tries int, retry_in_ms float8)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_free cursors;
  v_hold record;
  v_died boolean;
BEGIN
  PERFORM refuse_standby();
  PERFORM checked_number('p_lease_ms', p_lease_ms, 1, 3600000);
  IF EXISTS (
       SELECT FROM destinations d
         JOIN routes r ON r.destination_id = d.id
        WHERE d.name = p_name) THEN
    RETURN;
  END IF;
  PERFORM refuse_foreign(find_cursor(p_name));
  IF NOT apply_partitions(p_name) THEN RETURN; END IF;
  FOR v_free IN
    SELECT *
      FROM readable_partitions(p_name) c
     WHERE c.hash_from <> ALL (p_except)
       -- readers that stand by ask often: they lock nothing
       AND NOT is_taken(cursor_hold(c.name, c.hash_from))
  LOOP
    PERFORM refuse_foreign(v_free);
    PERFORM
       FROM cursors c
      WHERE c.name = p_name
        AND c.generation = v_free.generation
        AND c.hash_from = v_free.hash_from
        AND c.closing_since IS NULL
        AND NOT EXISTS (
              SELECT FROM destinations d
               WHERE d.id = c.destination_id
                 AND d.paused_at IS NOT NULL)
        FOR UPDATE;
    CONTINUE WHEN NOT FOUND;
    SELECT *
      INTO v_hold
      FROM take_hold(cursor_hold(p_name, v_free.hash_from), p_reader_id, p_lease_ms * interval '1 ms');
    CONTINUE WHEN v_hold.token IS NULL;
    v_died := coalesce(v_hold.left_by <> p_reader_id, false);
    RETURN QUERY
      UPDATE cursors c
         SET fence = v_hold.token,
             reader_name = p_reader_name,
             after_crash = c.after_crash OR v_died,
             deaths = c.deaths + CASE WHEN c.batch_in_flight AND v_died THEN 1 ELSE 0 END,
             died_fences = CASE
               WHEN c.batch_in_flight AND v_died
               THEN c.died_fences[greatest(cardinality(c.died_fences) - 98, 1):] || c.fence
               ELSE c.died_fences
             END,
             batch_in_flight = false
       WHERE c.name = p_name
         AND c.generation = v_free.generation
         AND c.hash_from = v_free.hash_from
      RETURNING c.fence, c.hash_from, c.hash_to, partition_number(c.hash_from, c.partitions), c.partitions,
                c.seen::text, c.target::text, c.position, c.until::text, c.after_crash,
                CASE WHEN c.deaths > 0 THEN c.quarantined_until END, c.quarantined_count,
                c.topics, c.namespaces, c.tenant_ids, c.failed_message_id, c.tries,
                CASE
                  WHEN c.failed_message_id IS NOT NULL AND is_held(c.retry_at, c.retry_delay)
                  THEN greatest(extract(epoch FROM c.retry_at - clock_timestamp())::float8 * 1000, 0)
                  ELSE 0
                END;
    RETURN;
  END LOOP;
END $$;

-- Whether the lease with this fence is still the latest. A reader checks it before each window, so it sends at most one
-- window after it has lost the lease.
CREATE OR REPLACE FUNCTION holds_cursor(p_name text, p_fence bigint, p_hash_from int DEFAULT 0) RETURNS boolean
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM cursors c
     WHERE c.name = p_name
       AND c.hash_from = p_hash_from
       AND c.fence = p_fence)
$$;

-- Records the batch that a reader after a crash is about to give to the handler: p_count messages, up to p_until.
-- Returns how many readers have died during exactly this batch, or null if the lease was lost.
CREATE OR REPLACE FUNCTION note_batch(
  p_name      text,
  p_fence     bigint,
  p_until     uuid,
  p_count     int,
  p_hash_from int DEFAULT 0)
RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  UPDATE cursors c
     SET batch_in_flight = true,
         quarantined_until = p_until,
         quarantined_count = p_count,
         deaths = CASE WHEN c.quarantined_until = p_until AND c.quarantined_count = p_count THEN c.deaths ELSE 0 END,
         died_fences = CASE
           WHEN c.quarantined_until = p_until AND c.quarantined_count = p_count THEN c.died_fences
           ELSE '{}'
         END
   WHERE c.name = p_name
     AND c.hash_from = p_hash_from
     AND c.fence = p_fence
  RETURNING c.deaths
$$;

-- Takes back the death that was counted for the reader with this fence: that reader is alive, and lost its lease only
-- because the database was unreachable for longer than the lease. Other readers may have taken the lease and lost it
-- since, so the fences of all counted deaths are kept.
CREATE OR REPLACE FUNCTION withdraw_death(p_name text, p_fence bigint, p_hash_from int DEFAULT 0) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  UPDATE cursors
     SET deaths = greatest(deaths - 1, 0),
         died_fences = array_remove(died_fences, p_fence)
   WHERE name = p_name
     AND hash_from = p_hash_from
     AND p_fence = ANY (died_fences)
$$;

-- Extends the lease. held is false if another reader has taken it. paused: the reader should release the lease.
CREATE OR REPLACE FUNCTION extend_cursor(
  p_name      text,
  p_fence     bigint,
  p_hash_from int DEFAULT 0,
  OUT held    boolean,
  OUT paused  boolean)
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT renew_hold(cursor_hold(p_name, p_hash_from), p_fence),
         EXISTS (
           SELECT FROM cursors c
             JOIN destinations d ON d.id = c.destination_id
            WHERE c.name = p_name
              AND c.hash_from = p_hash_from
              AND c.fence = p_fence
              AND d.paused_at IS NOT NULL)
$$;

-- Releases the lease. False: it was lost before.
CREATE OR REPLACE FUNCTION release_cursor(p_name text, p_fence bigint, p_hash_from int DEFAULT 0) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT release_hold(cursor_hold(p_name, p_hash_from), p_fence)
$$;

-- Moves the cursor: within its window (target and position given), or past it (both null, seen is the old target).
-- p_safe: no batch is left during which a reader may have died. Returns false, and moves nothing, if
-- the lease was lost. The commit does not wait for the disk: after a crash of the server the cursor may be slightly
-- further back, and messages are read twice, which every reader has to handle anyway.
CREATE OR REPLACE FUNCTION move_cursor(
  p_name      text,
  p_fence     bigint,
  p_seen      pg_snapshot,
  p_target    pg_snapshot,
  p_position  uuid,
  p_safe      boolean DEFAULT true,
  p_hash_from int DEFAULT 0)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan
AS $$
BEGIN
  PERFORM set_config('synchronous_commit', 'off', true);
  UPDATE cursors c
     SET seen = p_seen,
         target = p_target,
         position = p_position,
         after_crash = c.after_crash AND NOT p_safe,
         batch_in_flight = false,
         quarantined_until = NULL,
         quarantined_count = 0,
         deaths = 0,
         died_fences = '{}',
         seen_at = CASE WHEN c.seen::text = p_seen::text THEN c.seen_at ELSE clock_timestamp() END,
         failed_message_id = NULL,
         tries = 0,
         error_code = NULL,
         error_message = NULL,
         moved_at = clock_timestamp()
   WHERE c.name = p_name
     AND c.hash_from = p_hash_from
     AND c.fence = p_fence;
  RETURN FOUND;
END $$;

-- Records that the next message failed: operators see why the cursor has stopped, and the next reader goes on with its
-- tries. Returns the delay until the next try in milliseconds, or null if the lease was lost.
CREATE OR REPLACE FUNCTION note_failure(
  p_name          text,
  p_fence         bigint,
  p_message_id    uuid,
  p_tries         int,
  p_error_code    text,
  p_error_message text,
  p_hash_from     int DEFAULT 0)
RETURNS float8
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_delay interval := (
    SELECT retry_delay(d.retry_base_ms, d.retry_max_ms, d.retry_delays_ms, p_tries)
      FROM destinations d
     WHERE d.name = p_name);
BEGIN
  UPDATE cursors
     SET failed_message_id = p_message_id,
         tries = p_tries,
         retry_at = clock_timestamp() + v_delay,
         retry_delay = v_delay,
         error_code = left(p_error_code, 100),
         error_message = short_text(p_error_message, 2000),
         batch_in_flight = false
   WHERE name = p_name
     AND hash_from = p_hash_from
     AND fence = p_fence;
  RETURN CASE WHEN FOUND THEN extract(epoch FROM v_delay) * 1000 END;
END $$;

-- Pauses the destination of a cursor because of its answer to a call that began p_began_ms_ago, and records why the
-- cursor has stopped. Returns whether this call paused it, or null if the lease was lost.
CREATE OR REPLACE FUNCTION pause_cursor(
  p_name          text,
  p_fence         bigint,
  p_message_id    uuid,
  p_error_code    text,
  p_remote_code   text,
  p_error_message text,
  p_began_ms_ago  float8,
  p_hash_from     int DEFAULT 0)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_cursor cursors;
BEGIN
  UPDATE cursors
     SET failed_message_id = p_message_id,
         error_code = left(p_error_code, 100),
         error_message = short_text(p_error_message, 2000),
         batch_in_flight = false
   WHERE name = p_name
     AND hash_from = p_hash_from
     AND fence = p_fence
  RETURNING *
    INTO v_cursor;
  IF NOT FOUND THEN RETURN NULL; END IF;
  RETURN pause_after(v_cursor.destination_id, clock_timestamp() - p_began_ms_ago * interval '1 ms',
                     (SELECT h.holder FROM holds h WHERE h.name = cursor_hold(p_name, p_hash_from)),
                     p_error_code, p_remote_code, p_error_message);
END $$;

-- Makes a message a dead letter and moves the cursor past it, in one transaction.
CREATE OR REPLACE FUNCTION park_message(
  p_name          text,
  p_fence         bigint,
  p_seen          pg_snapshot,
  p_target        pg_snapshot,
  p_position      uuid,
  p_message_id    uuid,
  p_tries         int,
  p_reason        text,
  p_error_code    text,
  p_remote_code   text,
  p_error_message text,
  p_hash_from     int DEFAULT 0)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan
AS $$
DECLARE
  v_durability text := current_setting('synchronous_commit');
BEGIN
  IF NOT move_cursor(p_name, p_fence, p_seen, p_target, p_position, true, p_hash_from) THEN RETURN false; END IF;
  PERFORM set_config('synchronous_commit', v_durability, true);
  INSERT INTO dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code, remote_code,
                            error_message, created_at, key_id, sequence, bytes, namespace, topic, tenant_id, key,
                            dedupe_key, aggregate_type, aggregate_id, headers, payload)
  SELECT m.id, d.id, clock_timestamp(), 0, p_tries, p_reason, left(p_error_code, 100),
         left(p_remote_code, 100), short_text(p_error_message, 2000), m.created_at, m.key_id, m.sequence, m.bytes,
         m.namespace, m.topic, m.tenant_id, m.key, m.dedupe_key, m.aggregate_type, m.aggregate_id, m.headers, m.payload
    FROM messages m, destinations d
   WHERE m.id = p_message_id
     AND d.name = p_name
  ON CONFLICT DO NOTHING;
  RETURN true;
END $$;
