-- Holds: elect the one process that does something, across transactions: read with a cursor, run a job, do the daily
-- retention, notify of alerts. A hold is a row of the table holds. It ends when its holder releases it, or expires when
-- the holder stops renewing it; then another process takes it. All times are those of the database.
--
-- The token is a fencing token: it grows each time the hold is taken or revoked. A process that lost its hold has an
-- old token, and every function that needs the hold refuses it. Names: 'cursor NAME', 'job ID', 'retention', 'alerts'.
-- A function that also changes the row of a cursor or a job locks that row first. Claims have leases instead
-- (leases.sql).

-- Whether a hold or a lease is still valid. p_until: when it expires. p_longest: the longest time for which it can be
-- held. A time that is further ahead was written before the clock was set back, and counts as expired.
CREATE OR REPLACE FUNCTION is_held(p_until timestamptz, p_longest interval)
RETURNS boolean
LANGUAGE sql VOLATILE
AS $$
  SELECT p_until > clock_timestamp() AND p_until <= clock_timestamp() + p_longest + interval '1 second'
$$;

-- Whether a process has this hold now.
CREATE OR REPLACE FUNCTION is_taken(p_name text)
RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM holds h
     WHERE h.name = p_name
       AND is_held(h.expires_at, h.duration))
$$;

-- Takes a hold for p_held, if no process has it. token: null if it is taken, or being taken. left_by: the last holder,
-- if it did not release the hold. Each caller limits p_held. It waits for no other session, unless both create the row.
CREATE OR REPLACE FUNCTION take_hold(
  p_name      text,
  p_holder    uuid,
  p_held      interval,
  OUT token   bigint,
  OUT left_by uuid)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_hold holds;
BEGIN
  -- without a lock: processes that stand by ask again and again
  IF is_taken(p_name) THEN RETURN; END IF;
  -- only if it is missing: ON CONFLICT waits for a session that is changing the row
  IF NOT EXISTS (SELECT FROM holds h WHERE h.name = p_name) THEN
    INSERT INTO holds (name) VALUES (p_name) ON CONFLICT DO NOTHING;
  END IF;
  SELECT *
    INTO v_hold
    FROM holds h
   WHERE h.name = p_name
     AND NOT is_held(h.expires_at, h.duration)
     FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;
  UPDATE holds h
     SET token = h.token + 1,
         holder = p_holder,
         expires_at = clock_timestamp() + p_held,
         duration = p_held
   WHERE h.name = p_name;
  token := v_hold.token + 1;
  left_by := v_hold.holder;
END $$;

-- Renews a hold for as long as it was taken, also if it has expired and no other process took it. False: it is lost.
CREATE OR REPLACE FUNCTION renew_hold(p_name text, p_token bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE holds h
     SET expires_at = clock_timestamp() + h.duration
   WHERE h.name = p_name
     AND h.token = p_token
     AND h.holder IS NOT NULL;
  RETURN FOUND;
END $$;

-- Releases a hold. False: it was lost before.
CREATE OR REPLACE FUNCTION release_hold(p_name text, p_token bigint)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE holds h
     SET holder = NULL,
         expires_at = '-infinity'
   WHERE h.name = p_name
     AND h.token = p_token
     AND h.holder IS NOT NULL;
  RETURN FOUND;
END $$;

-- Whether this token is still the latest of the hold, and was not released.
CREATE OR REPLACE FUNCTION has_hold(p_name text, p_token bigint)
RETURNS boolean
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT EXISTS (
    SELECT FROM holds h
     WHERE h.name = p_name
       AND h.token = p_token
       AND h.holder IS NOT NULL)
$$;

-- Ends a hold, whichever process has it. Returns a token that no process has. p_as_left: the next holder learns of the
-- last one (left_by), as if it had not released the hold.
CREATE OR REPLACE FUNCTION revoke_hold(p_name text, p_as_left boolean DEFAULT false)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_token bigint;
BEGIN
  UPDATE holds h
     SET token = h.token + 1,
         holder = CASE WHEN p_as_left THEN h.holder END,
         expires_at = '-infinity'
   WHERE h.name = p_name
  RETURNING h.token INTO v_token;
  RETURN coalesce(v_token, 0);
END $$;
