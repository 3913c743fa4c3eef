-- Idempotency keys: a request of the HTTP API that is repeated with the same key gets the same answer. The key, the
-- changes of the request and its answer are one transaction, so a crash leaves all of them or none.

-- The owner of a key: for a session that is limited to a tenant, always that tenant.
CREATE OR REPLACE FUNCTION key_owner(p_owner text) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT coalesce('tenant ' || session_tenant(), 'client ' || p_owner)
$$;

-- Begins a request. Returns the answer that was kept for the key within the last day, or null if the key is new. Waits
-- for a transaction that has begun a request with the same key. Keys that are older than a day are deleted here, so
-- that they do not pile up.
CREATE OR REPLACE FUNCTION begin_request(p_owner text, p_key bytea) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET lock_timeout = '5s'
AS $$
DECLARE
  v_owner  text := key_owner(p_owner);
  v_before timestamptz := clock_timestamp() - interval '1 day';
BEGIN
  DELETE FROM kept_answers a WHERE a.owner = v_owner AND a.key = p_key AND a.made_at < v_before;
  INSERT INTO kept_answers (owner, key) VALUES (v_owner, p_key) ON CONFLICT DO NOTHING;
  IF NOT FOUND THEN
    -- a separate statement, so that its snapshot is newer than the wait
    RETURN (SELECT a.answer FROM kept_answers a WHERE a.owner = v_owner AND a.key = p_key);
  END IF;
  DELETE FROM kept_answers a
   WHERE a.ctid = ANY (ARRAY (
           SELECT x.ctid
             FROM kept_answers x
            WHERE x.made_at < v_before
            ORDER BY x.made_at
            LIMIT 100
              FOR UPDATE SKIP LOCKED));
  RETURN NULL;
END $$;

-- Keeps the sealed answer to a request that this transaction has begun.
CREATE OR REPLACE FUNCTION keep_answer(p_owner text, p_key bytea, p_sealed text) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_sealed IS NULL OR p_sealed !~ '^sealed:1:' THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'p_sealed is not sealed: only the HTTP server keeps answers';
  END IF;
  UPDATE kept_answers a
     SET answer = p_sealed
   WHERE a.owner = key_owner(p_owner)
     AND a.key = p_key
     AND a.answer IS NULL;
END $$;
