-- Thinning: when a day has expired but some of its messages are still needed, retention removes the rest of the day. A
-- copy of the rows that stay replaces the partition. A message never disappears and is never seen twice: the copy is
-- committed first, and replaces the partition in one transaction, once all transactions that began before the copy was
-- committed have ended. A crash leaves the old partition, perhaps with a copy beside it, which the next run completes.
-- The order of the steps is in thin_partition (expiry.sql), their parts are here.

-- The messages from p_from to before p_to that are pending, in flight, dead or unrouted. One statement and thus one
-- snapshot: a message that moves meanwhile is seen in one of its places.
CREATE OR REPLACE FUNCTION needed_messages(p_from uuid, p_to uuid) RETURNS SETOF uuid
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT d.message_id
    FROM deliveries d
   WHERE d.message_id >= p_from
     AND d.message_id < p_to
  UNION
  SELECT i.id
    FROM leases l, unnest(l.message_ids) i(id)
   WHERE i.id >= p_from
     AND i.id < p_to
  UNION
  SELECT d.message_id
    FROM dead_letters d
   WHERE d.message_id >= p_from
     AND d.message_id < p_to
  UNION
  SELECT u.message_id
    FROM unrouted_messages u
   WHERE u.message_id >= p_from
     AND u.message_id < p_to
$$;

-- The query for the rows of a partition that stay when it is thinned, as physical addresses. Of messages: those that
-- are needed. Of attempts: those of the messages that the day still has, and those that ended at $3 or later, because
-- they are not sealed yet. Of identities: those whose attempts are there. $1 and $2 are the bounds of the day.
CREATE OR REPLACE FUNCTION kept_rows(p_parent text, p_partition text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE p_parent
    WHEN 'messages' THEN format(
      'SELECT x.ctid FROM needed_messages($1, $2) n(id) JOIN %I x ON x.id = n.id', p_partition)
    WHEN 'attempts' THEN format(
      'SELECT x.ctid
         FROM (SELECT m.id FROM %1$I m UNION SELECT needed_messages($1, $2)) n
         JOIN %2$I x ON x.message_id = n.id
       UNION
       SELECT x.ctid FROM %2$I x WHERE x.ended_at >= $3', 'messages_' || right(p_partition, 8), p_partition)
    ELSE format(
      'SELECT x.ctid FROM %I x WHERE EXISTS (SELECT FROM %I a WHERE a.message_id = x.message_id)',
      p_partition, 'attempts_' || right(p_partition, 8))
  END
$$;

-- Whether thinning pays: fewer than half of the rows stay, and at most 100,000, so that comparing them with their copy
-- under a lock is short.
CREATE OR REPLACE FUNCTION is_worth_thinning(p_parent text, p_partition text, p_day date) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC' SET jit = off
AS $$
DECLARE
  v_kept bigint;
  v_pays boolean;
BEGIN
  IF p_parent = 'attempts' THEN
    -- with more than 100,000 messages left, most likely too many attempts stay: they are not counted
    EXECUTE format('SELECT EXISTS (SELECT FROM %I OFFSET 100000)', 'messages_' || right(p_partition, 8)) INTO v_pays;
    IF v_pays THEN RETURN false; END IF;
  END IF;
  EXECUTE format('SELECT count(*) FROM (%s LIMIT 100001) k', kept_rows(p_parent, p_partition))
    INTO v_kept
    USING id_at(p_day::timestamp AT TIME ZONE 'UTC'), id_at((p_day + 1)::timestamp AT TIME ZONE 'UTC'),
          'infinity'::timestamptz;
  IF v_kept > 100000 THEN RETURN false; END IF;
  -- reads no more rows than it has to
  EXECUTE format('SELECT EXISTS (SELECT FROM %I OFFSET %s)', p_partition, 2 * v_kept) INTO v_pays;
  RETURN v_pays;
EXCEPTION
  -- another session has just removed it
  WHEN undefined_table THEN RETURN false;
END $$;

-- The open transactions of this database, other than this one. Autovacuum is left out: it reads no rows for any
-- client.
CREATE OR REPLACE FUNCTION open_transactions() RETURNS text[]
LANGUAGE sql VOLATILE
AS $$
  SELECT coalesce(array_agg(l.virtualtransaction), '{}')
    FROM pg_locks l
    JOIN pg_stat_activity a ON a.pid = l.pid
   WHERE l.locktype = 'virtualxid'
     AND l.granted
     AND l.mode = 'ExclusiveLock'
     AND l.pid <> pg_backend_pid()
     AND a.datid = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
     AND a.usesysid IS NOT NULL
$$;

-- Copies up to 1,000 rows that stay and are not in the copy yet; returns how many.
CREATE OR REPLACE FUNCTION copy_kept_rows(p_parent text, p_partition text, p_from uuid, p_to uuid, p_since timestamptz)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET jit = off
AS $$
DECLARE
  v_columns text := (
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum)
      FROM pg_attribute a
     WHERE a.attrelid = p_parent::regclass
       AND a.attnum > 0
       AND NOT a.attisdropped);
  v_rows bigint;
BEGIN
  EXECUTE format('INSERT INTO %I (%s) SELECT %2$s FROM %I WHERE ctid = ANY (ARRAY (%s)) LIMIT 1000',
                 p_partition || '_kept', v_columns, p_partition, uncopied_rows(p_parent, p_partition))
    USING p_from, p_to, p_since;
  GET DIAGNOSTICS v_rows = ROW_COUNT;
  RETURN v_rows;
END $$;

-- The query for the rows that stay and are not in the copy.
CREATE OR REPLACE FUNCTION uncopied_rows(p_parent text, p_partition text) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT format('SELECT r.ctid FROM %I r JOIN (%s) s ON s.ctid = r.ctid
                  WHERE NOT EXISTS (SELECT FROM %I k WHERE %s)',
                p_partition, kept_rows(p_parent, p_partition), p_partition || '_kept',
                string_agg(format('k.%I = r.%1$I', a.attname), ' AND '))
    FROM pg_index i
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
   WHERE i.indrelid = p_parent::regclass
     AND i.indisprimary
$$;

-- Puts the copy in the place of the partition, in this transaction; returns the number of rows that were removed.
CREATE OR REPLACE FUNCTION replace_by_copy(
  p_parent    text,
  p_partition text,
  p_day       date,
  p_from      uuid,
  p_to        uuid,
  p_since     timestamptz,
  p_rows      bigint)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET timezone = 'UTC' SET jit = off
AS $$
DECLARE
  v_copy    text := p_partition || '_kept';
  v_old     oid := quote_ident(p_partition)::regclass;
  v_new     oid := quote_ident(v_copy)::regclass;
  v_index   text;
  v_kept    bigint;
  v_missing boolean;
BEGIN
  EXECUTE format('SELECT count(*) FROM %I', v_copy) INTO v_kept;
  EXECUTE format('LOCK TABLE ONLY %I, %I IN ACCESS EXCLUSIVE MODE', p_parent, p_partition);
  -- checked again under the lock, when every transaction that has written to the partition has ended
  EXECUTE format('SELECT EXISTS (%s)', uncopied_rows(p_parent, p_partition))
    INTO v_missing
    USING p_from, p_to, p_since;
  IF v_missing
     OR kept_by_floor(p_day, p_parent) IS NOT NULL
     OR (SELECT NOT u.can_thin FROM partition_use(v_old, p_day) u) THEN
    RAISE EXCEPTION USING ERRCODE = '55P03', MESSAGE = format('%s is in use again', p_partition);
  END IF;
  EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', p_parent, p_partition);
  EXECUTE format('DROP TABLE %I', p_partition);
  EXECUTE format('ALTER TABLE %I RENAME TO %I', v_copy, p_partition);
  FOR v_index IN
    SELECT c.relname
      FROM pg_index i
      JOIN pg_class c ON c.oid = i.indexrelid
     WHERE i.indrelid = v_new
  LOOP
    EXECUTE format('ALTER INDEX %I RENAME TO %I', v_index, replace(v_index, v_copy, p_partition));
  END LOOP;
  EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)',
                 p_parent, p_partition, p_from, p_to);
  EXECUTE format('ALTER TABLE %I DROP CONSTRAINT of_its_day', p_partition);
  -- the record of the day's topics was made from the whole day
  UPDATE message_days d SET partition = v_new WHERE d.day = p_day AND d.partition = v_old;
  UPDATE thinned_partitions t
     SET thinned_at = clock_timestamp(), removed = t.removed + p_rows - v_kept, kept = v_kept, copied_by = NULL,
         waits_for = NULL
   WHERE t.partition = p_partition;
  RETURN p_rows - v_kept;
END $$;
