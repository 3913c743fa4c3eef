-- Partitions of a cursor: several readers share the log. Each partition has the messages of some of the keys, with its
-- own position and lease, so the order of each key is kept. A cursor has one partition by default.
--
--   sharing    Each living reader has a share of the partitions: their number divided by that of the readers, and one
--              more for the readers that joined first, if it does not divide. A reader that has more than its share
--              releases partitions between two batches; one that has less takes free ones.
--   changing   A new number of partitions applies when all readers have released theirs. A partition is a range of
--              hashes; the rows are split at the bounds of the new ranges, and each piece continues at the position of
--              its row. If a new partition has several pieces, they are read up to a common snapshot and deleted, and
--              the row of the partition is read from there. So no message is skipped, none comes twice, and the order
--              of each key is kept.
--
-- Decision 40 has the reasons: docs/internals/decisions/0040-partitions-of-a-cursor-are-ranges-of-hashes.md.

-- The hash of a message, from 0 to 65535: by the id of its key, so that all messages of a key are in one partition; for
-- a message without a key, by the random end of its id. The same on every server and version, because cursors rely on
-- it: only arithmetic. Keys have consecutive ids. Their multiples of the golden ratio are spread evenly, also those of
-- every second key.
CREATE OR REPLACE FUNCTION partition_hash(p_key_id bigint, p_id uuid) RETURNS int
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN p_key_id IS NULL THEN get_byte(uuid_send(p_id), 14) * 256 + get_byte(uuid_send(p_id), 15)
    ELSE (((p_key_id & 2147483647) * 2654435761 & 4294967295) >> 16)::int
  END
$$;

-- Whether a message has a hash of this range. For the range of all hashes, nothing is computed. PostgreSQL puts this
-- function into the query of its caller, which costs less than a call; so it calls no function of this schema.
CREATE OR REPLACE FUNCTION in_partition(p_key_id bigint, p_id uuid, p_hash_from int, p_hash_to int) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE
    WHEN p_hash_to - p_hash_from = 65536 THEN true
    -- partition_hash, written out; modulo, so that the hash is computed once
    ELSE (CASE
            WHEN p_key_id IS NULL THEN get_byte(uuid_send(p_id), 14) * 256 + get_byte(uuid_send(p_id), 15)
            ELSE (((p_key_id & 2147483647) * 2654435761 & 4294967295) >> 16)::int
          END - p_hash_from + 65536) % 65536 < p_hash_to - p_hash_from
  END
$$;

-- Whether a message is in the part of the log that a row has not read. Within its window it counts as unread.
CREATE OR REPLACE FUNCTION is_unread(p_message messages, p_cursor cursors) RETURNS boolean
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT NOT pg_visible_in_snapshot(p_message.transaction_id, p_cursor.seen)
     AND (p_cursor.until IS NULL OR pg_visible_in_snapshot(p_message.transaction_id, p_cursor.until))
     AND in_partition(p_message.key_id, p_message.id, p_cursor.hash_from, p_cursor.hash_to)
$$;

-- The first hash of a partition.
CREATE OR REPLACE FUNCTION partition_start(p_partition int, p_partitions int) RETURNS int
LANGUAGE sql IMMUTABLE
AS $$
  SELECT p_partition * 65536 / p_partitions
$$;

-- The number of the partition that a row belongs to, from 0.
CREATE OR REPLACE FUNCTION partition_number(p_hash_from int, p_partitions int) RETURNS int
LANGUAGE sql IMMUTABLE
AS $$
  SELECT ((p_hash_from + 1) * p_partitions - 1) / 65536
$$;

-- The name of the hold of a row.
CREATE OR REPLACE FUNCTION cursor_hold(p_name text, p_hash_from int) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT 'cursor ' || p_name || CASE WHEN p_hash_from = 0 THEN '' ELSE '/' || p_hash_from END
$$;

-- The rows of a cursor that can be read: no row of an older generation has the same hashes.
CREATE OR REPLACE FUNCTION readable_partitions(p_name text) RETURNS SETOF cursors
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT *
    FROM cursors c
   WHERE c.name = p_name
     AND c.kept IS NULL
     AND NOT EXISTS (
           SELECT FROM cursors o
            WHERE o.name = p_name
              AND o.generation < c.generation
              AND o.hash_from < c.hash_to
              AND o.hash_to > c.hash_from)
   ORDER BY c.hash_from
$$;

-- Tells that a reader shares a cursor, for as long as a lease. partitions: how many can be read now. share: how many of
-- them this reader should hold; 0 while all readers have to release theirs, because the number changes. A single one
-- needs no sharing: the first reader that asks has it.
CREATE OR REPLACE FUNCTION join_cursor(
  p_name         text,
  p_reader_id    uuid,
  p_lease_ms     int,
  OUT partitions int,
  OUT share      int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_lease interval := p_lease_ms * interval '1 ms';
BEGIN
  PERFORM refuse_standby();
  PERFORM checked_number('p_lease_ms', p_lease_ms, 1, 3600000);
  share := CASE WHEN apply_partitions(p_name) THEN 1 ELSE 0 END;
  partitions := (SELECT count(*) FROM readable_partitions(p_name));
  IF share = 0 OR partitions < 2 THEN RETURN; END IF;
  -- once in a third of the lease, as a hold is renewed
  IF NOT EXISTS (
       SELECT FROM cursor_readers r
        WHERE r.cursor = p_name
          AND r.reader_id = p_reader_id
          AND is_held(r.expires_at, r.duration)
          AND r.expires_at > clock_timestamp() + v_lease * 2 / 3) THEN
    INSERT INTO cursor_readers AS r (cursor, reader_id, expires_at, duration)
    VALUES (p_name, p_reader_id, clock_timestamp() + v_lease, v_lease)
    ON CONFLICT (cursor, reader_id) DO UPDATE
      SET expires_at = excluded.expires_at,
          duration = excluded.duration;
    DELETE FROM cursor_readers r
     WHERE r.cursor = p_name
       AND r.reader_id IN (
             SELECT d.reader_id
               FROM cursor_readers d
              WHERE d.cursor = p_name
                AND NOT is_held(d.expires_at, d.duration)
                -- two readers that come back after an outage must not wait for each other
                FOR UPDATE SKIP LOCKED);
  END IF;
  SELECT partitions / x.readers + CASE WHEN x.place <= partitions % x.readers THEN 1 ELSE 0 END
    INTO share
    FROM (SELECT r.reader_id, count(*) OVER () AS readers,
                 row_number() OVER (ORDER BY r.joined_at, r.reader_id) AS place
            FROM cursor_readers r
           WHERE r.cursor = p_name
             AND is_held(r.expires_at, r.duration)) x
   WHERE x.reader_id = p_reader_id;
  share := coalesce(share, 0);
END $$;

-- A reader that stops leaves its share to the others.
CREATE OR REPLACE FUNCTION leave_cursor(p_name text, p_reader_id uuid) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  DELETE FROM cursor_readers r WHERE r.cursor = p_name AND r.reader_id = p_reader_id
$$;

-- For a drain: how many rows it could still read, besides those that begin at the hashes p_except, and a reader that
-- holds one of them, or null.
CREATE OR REPLACE FUNCTION partitions_left(p_name text, p_except int[], OUT partitions int, OUT held_by text)
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT count(*),
         max(coalesce(c.reader_name, '')) FILTER (WHERE is_taken(cursor_hold(c.name, c.hash_from)))
    FROM readable_partitions(p_name) c
   WHERE c.hash_from <> ALL (p_except)
$$;

-- Deletes a row that was read to its end, for a newer generation reads on, and releases it. False: the lease was lost.
CREATE OR REPLACE FUNCTION end_partition(p_name text, p_fence bigint, p_hash_from int) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  DELETE FROM cursors c
   WHERE c.name = p_name
     AND c.hash_from = p_hash_from
     AND c.fence = p_fence
     AND c.until IS NOT NULL;
  IF NOT FOUND THEN RETURN false; END IF;
  RETURN release_hold(cursor_hold(p_name, p_hash_from), p_fence);
END $$;

-- Ends the holds of a cursor: no reader can move it until it has taken it again. p_as_left: as in revoke_hold. The
-- caller has locked the rows.
CREATE OR REPLACE FUNCTION revoke_cursor(p_name text, p_as_left boolean DEFAULT false) RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  UPDATE cursors c
     SET fence = revoke_hold(cursor_hold(c.name, c.hash_from), p_as_left)
   WHERE c.name = p_name
$$;

-- Makes the rows of a cursor match its number of partitions, if no reader holds one of them. False: they do not match
-- yet. A reader that lost its lease without noticing cannot move the new rows.
CREATE OR REPLACE FUNCTION apply_partitions(p_name text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF has_partitions(p_name) THEN RETURN true; END IF;
  IF has_reader(p_name) THEN RETURN false; END IF;
  PERFORM lock_cursor(p_name);
  -- with the locks, no reader can take a partition
  IF has_reader(p_name) THEN RETURN false; END IF;
  IF has_partitions(p_name) THEN RETURN true; END IF;
  PERFORM revoke_cursor(p_name);
  PERFORM repartition_cursor(p_name, (find_cursor(p_name)).partitions);
  RETURN true;
END $$;

-- Whether a cursor has as many partitions as it should, besides rows that are read before them. True if there is no
-- such cursor.
CREATE OR REPLACE FUNCTION has_partitions(p_name text) RETURNS boolean
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT count(*) = coalesce(max(c.partitions), 0)
    FROM cursors c
   WHERE c.name = p_name
     AND c.until IS NULL
$$;

-- Whether a reader holds a partition of the cursor.
CREATE OR REPLACE FUNCTION has_reader(p_name text) RETURNS boolean
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM cursors c
     WHERE c.name = p_name
       AND is_taken(cursor_hold(c.name, c.hash_from)))
$$;

-- Changes the number of partitions. The caller has locked the rows and revoked the holds.
CREATE OR REPLACE FUNCTION repartition_cursor(p_name text, p_partitions int) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_generation  int := (SELECT max(c.generation) + 1 FROM cursors c WHERE c.name = p_name);
  v_start       pg_snapshot;
  v_from        int;
  v_to          int;
  v_row         cursors;
  v_places      text[];
  v_after_crash boolean;
BEGIN
  PERFORM assert_read_committed('a change of the partitions of a cursor');
  -- it contains every window that a reader has stored, because the rows are locked
  v_start := committed_snapshot();
  FOR v_partition IN 0..p_partitions - 1 LOOP
    v_from := partition_start(v_partition, p_partitions);
    v_to := partition_start(v_partition + 1, p_partitions);
    PERFORM split_cursor(p_name, v_to);
    SELECT array_agg(DISTINCT concat_ws(' ', c.seen, c.target, c.position)), bool_or(c.after_crash)
      INTO v_places, v_after_crash
      FROM cursors c
     WHERE c.name = p_name
       AND c.until IS NULL
       AND c.hash_from >= v_from
       AND c.hash_to <= v_to;
    -- the row that has stopped at a message, if there is one
    SELECT *
      INTO v_row
      FROM cursors c
     WHERE c.name = p_name
       AND c.until IS NULL
       AND c.hash_from >= v_from
       AND c.hash_to <= v_to
     ORDER BY c.failed_message_id IS NULL, c.hash_from
     LIMIT 1;
    CONTINUE WHEN v_row.hash_from = v_from AND v_row.hash_to = v_to;
    IF cardinality(v_places) = 1 THEN
      -- they are at the same place: they become one row at once
      DELETE FROM cursors c
       WHERE c.name = p_name
         AND c.until IS NULL
         AND c.hash_from >= v_from
         AND c.hash_to <= v_to;
      v_row.hash_from := v_from;
      v_row.hash_to := v_to;
      v_row.generation := v_generation;
      v_row.fence := 0;
      v_row.after_crash := v_after_crash;
      INSERT INTO cursors VALUES (v_row.*);
      CONTINUE;
    END IF;
    UPDATE cursors c
       SET until = v_start
     WHERE c.name = p_name
       AND c.until IS NULL
       AND c.hash_from >= v_from
       AND c.hash_to <= v_to;
    INSERT INTO cursors (name, hash_from, hash_to, generation, destination_id, topics, namespaces, tenant_ids, began,
                         seen, seen_at, system_id, after_crash)
    VALUES (p_name, v_from, v_to, v_generation, v_row.destination_id, v_row.topics, v_row.namespaces, v_row.tenant_ids,
            v_row.began, v_start, clock_timestamp(), v_row.system_id, v_after_crash);
  END LOOP;
  UPDATE cursors c
     SET partitions = p_partitions,
         batch_in_flight = false
   WHERE c.name = p_name;
END $$;

-- Splits the rows of a cursor at a hash. Both pieces continue at the position of the row. The message at which it has
-- stopped stays with the piece that has it.
CREATE OR REPLACE FUNCTION split_cursor(p_name text, p_hash int) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_row    cursors;
  v_failed uuid;
BEGIN
  FOR v_row IN
    SELECT *
      FROM cursors c
     WHERE c.name = p_name
       AND c.hash_from < p_hash
       AND c.hash_to > p_hash
  LOOP
    v_failed := (
      SELECT m.id
        FROM messages m
       WHERE m.id = v_row.failed_message_id
         AND partition_hash(m.key_id, m.id) >= p_hash);
    UPDATE cursors c
       SET hash_to = p_hash,
           failed_message_id = CASE WHEN v_failed IS NULL THEN c.failed_message_id END,
           tries = CASE WHEN v_failed IS NULL THEN c.tries ELSE 0 END,
           error_code = CASE WHEN v_failed IS NULL THEN c.error_code END,
           error_message = CASE WHEN v_failed IS NULL THEN c.error_message END
     WHERE c.name = p_name
       AND c.generation = v_row.generation
       AND c.hash_from = v_row.hash_from;
    v_row.hash_from := p_hash;
    v_row.fence := 0;
    IF v_failed IS NULL THEN
      v_row.failed_message_id := NULL;
      v_row.tries := 0;
      v_row.error_code := NULL;
      v_row.error_message := NULL;
    END IF;
    INSERT INTO cursors VALUES (v_row.*);
  END LOOP;
END $$;
