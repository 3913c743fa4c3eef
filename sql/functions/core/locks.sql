-- Locks: one session at a time holds a lock, until the end of its transaction. A lock is a row of the table locks.
-- Advisory locks would do the same, but any login of the database can take them by their number.
--
-- In READ COMMITTED a statement sees what was committed before it began: read the data in a later statement than the
-- one that waits for the lock. The rows are created with the schema and with each destination; a missing row is
-- created when its lock is taken.

-- Takes a lock, and waits for it if another session has it.
CREATE OR REPLACE FUNCTION take_lock(p_name text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM FROM locks l WHERE l.name = p_name FOR UPDATE;
  IF FOUND THEN RETURN; END IF;
  INSERT INTO locks (name) VALUES (p_name) ON CONFLICT DO NOTHING;
  PERFORM FROM locks l WHERE l.name = p_name FOR UPDATE;
END $$;

-- Takes a lock without waiting; returns false if another session has it.
CREATE OR REPLACE FUNCTION try_lock(p_name text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM FROM locks l WHERE l.name = p_name FOR UPDATE SKIP LOCKED;
  IF FOUND THEN RETURN true; END IF;
  IF EXISTS (SELECT FROM locks l WHERE l.name = p_name) THEN RETURN false; END IF;
  INSERT INTO locks (name) VALUES (p_name) ON CONFLICT DO NOTHING;
  PERFORM FROM locks l WHERE l.name = p_name FOR UPDATE SKIP LOCKED;
  RETURN FOUND;
END $$;

-- Takes a lock, and waits for at most p_most, or lock_timeout if that is shorter, if another session has it. Then it
-- raises an error that begins with p_what and names the session.
CREATE OR REPLACE FUNCTION take_lock_within(p_name text, p_what text, p_most interval)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_timeout text := current_setting('lock_timeout');
  v_holder  int;
BEGIN
  IF try_lock(p_name) THEN RETURN; END IF;
  IF v_timeout::interval = '0' OR v_timeout::interval > p_most THEN
    PERFORM set_config('lock_timeout', (extract(epoch FROM p_most) * 1000)::int::text, true);
  END IF;
  BEGIN
    PERFORM take_lock(p_name);
  EXCEPTION WHEN lock_not_available THEN
    v_holder := lock_holder(p_name);
    RAISE EXCEPTION USING ERRCODE = '55P03',
      MESSAGE = format('%s by %s in a transaction that has not ended: nothing was changed here, try again when it has',
                       p_what, coalesce('session ' || v_holder, 'another session')),
      HINT = coalesce('To end it: SELECT pg_terminate_backend(' || v_holder || ').', 'It has ended meanwhile.');
  END;
  PERFORM set_config('lock_timeout', v_timeout, true);
END $$;

-- The process id of the session whose transaction has locked the row, or null.
CREATE OR REPLACE FUNCTION lock_holder(p_name text)
RETURNS int
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT k.pid
    FROM locks l
    JOIN pg_locks k ON k.locktype = 'transactionid' AND k.transactionid = l.xmax
   WHERE l.name = p_name
     AND k.granted
     AND k.mode = 'ExclusiveLock'
$$;
