-- Leases: released by their holder, extended by it, or ended by the reaper after they have expired. Like settle.sql,
-- these functions lock the lease's row before they end its claims.

-- Requeues the messages that a lease still holds. They count as never sent, so no try is used. Returns how many.
CREATE OR REPLACE FUNCTION release_lease(p_lease_id uuid, p_relay_id uuid)
RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_lease leases;
  v_held  int;
  v_count int;
BEGIN
  PERFORM assert_read_committed('release');
  SELECT * INTO v_lease FROM leases WHERE id = p_lease_id AND relay_id = p_relay_id FOR UPDATE;
  IF NOT FOUND THEN RETURN 0; END IF;
  v_held := cardinality(v_lease.message_ids);
  v_count := cardinality((end_claims(
    ARRAY[v_lease], array_fill(v_lease.id, ARRAY[v_held]), v_lease.message_ids, v_lease.claim_nos,
    array_fill('release'::outcome, ARRAY[v_held]))).ended_ids);
  DELETE FROM leases WHERE id = v_lease.id;
  RETURN v_count;
END $$;

-- Releases leases by their ids. A claim whose answer was lost leaves a lease that its relay does not know about; the
-- relay chose the lease's id, so it can release it.
CREATE OR REPLACE FUNCTION release_leases(p_relay_id uuid, p_lease_ids uuid[])
RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT coalesce(sum(release_lease(l.id, p_relay_id)), 0)::int
    FROM (SELECT id
            FROM leases
           WHERE relay_id = p_relay_id
             AND id = ANY (p_lease_ids)
           ORDER BY id) l
$$;

-- Extends leases. Returns those that this relay still holds; a lease that is missing from the answer is lost.
CREATE OR REPLACE FUNCTION extend_leases(p_relay_id uuid, p_lease_ids uuid[])
RETURNS uuid[]
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  WITH held AS (
    SELECT id
      FROM leases
     WHERE id = ANY (p_lease_ids)
       AND relay_id = p_relay_id
     ORDER BY id
       FOR UPDATE),
  extended AS (
    UPDATE leases l
       SET expires_at = clock_timestamp() + l.duration
      FROM held
     WHERE l.id = held.id
    RETURNING l.id)
  SELECT coalesce(array_agg(id), '{}') FROM extended
$$;

-- Ends expired leases. Their messages are requeued with the same id and an attempt zombie_requeue, or become dead
-- letters if no tries are left. A lease that ends later than its duration allows was written before the clock was set
-- back, and counts as expired. Any number of sessions may call this at once. It adds its dead letters to the
-- statistics, because their relay is gone. Returns the number of messages.
CREATE OR REPLACE FUNCTION reap(p_max_leases int DEFAULT 100)
RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_lease leases;
  v_held  int;
  v_ended uuid[];
  v_count int := 0;
  -- the destination of each dead letter
  v_died  int[] := '{}';
BEGIN
  PERFORM checked_number('p_max_leases', p_max_leases, 1, 1000000);
  PERFORM assert_read_committed('reap');
  FOR v_lease IN
    SELECT *
      FROM leases
     WHERE NOT is_held(expires_at, duration)
     ORDER BY expires_at
     LIMIT p_max_leases
       FOR UPDATE SKIP LOCKED
  LOOP
    -- one block per lease: a lease that cannot be ended must not stop the others
    BEGIN
      v_held := cardinality(v_lease.message_ids);
      v_ended := (end_claims(
        ARRAY[v_lease], array_fill(v_lease.id, ARRAY[v_held]), v_lease.message_ids, v_lease.claim_nos,
        array_fill('zombie'::outcome, ARRAY[v_held]),
        p_error_codes => array_fill('zombie'::text, ARRAY[v_held]))).ended_ids;
      DELETE FROM leases WHERE id = v_lease.id;
      v_count := v_count + cardinality(v_ended);
      v_died := v_died || ARRAY (
        SELECT t.id
          FROM destinations t, unnest(v_lease.message_ids, v_lease.tries) l(message_id, tries)
         WHERE t.id = v_lease.destination_id
           AND l.message_id = ANY (v_ended)
           AND l.tries >= t.max_attempts);
    EXCEPTION WHEN OTHERS THEN
      RAISE WARNING 'lease % cannot be ended: %', v_lease.id, SQLERRM;
    END;
  END LOOP;
  IF v_died <> '{}' THEN
    PERFORM add_statistics(array_agg(d.id), array_agg(0::bigint), array_agg(0::bigint), array_agg(d.count))
       FROM (SELECT x.id, count(*) FROM unnest(v_died) x(id) GROUP BY x.id) d;
  END IF;
  RETURN v_count;
END $$;
