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
