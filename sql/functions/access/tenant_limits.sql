-- Limits of tenants: how often a session that is limited to a tenant (session_tenant) may do something. The count is in
-- the database, so it holds over all servers and tokens of the tenant.

-- Counts one more action of the session's tenant, and refuses it if there were p_most within p_per already. Without a
-- tenant it does nothing. A period begins with the first action after the last period.
CREATE OR REPLACE FUNCTION limit_tenant(p_action text, p_most int, p_per interval) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_tenant text := session_tenant();
  v_now    timestamptz := clock_timestamp();
  v_limit  tenant_limits;
BEGIN
  IF v_tenant IS NULL THEN RETURN; END IF;
  INSERT INTO tenant_limits AS t (tenant_id, action, since, count)
  VALUES (v_tenant, p_action, v_now, 1)
  ON CONFLICT (tenant_id, action) DO UPDATE
     SET since = CASE WHEN t.since < v_now - p_per THEN v_now ELSE t.since END,
         count = CASE WHEN t.since < v_now - p_per THEN 1 ELSE t.count + 1 END
  RETURNING t.* INTO v_limit;
  IF v_limit.count <= p_most THEN RETURN; END IF;
  RAISE EXCEPTION USING ERRCODE = '54000',
    MESSAGE = format('at most %s requests of this kind (%s) are allowed in %s: wait until %s', p_most, p_action, p_per,
                     to_char((v_limit.since + p_per) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'));
END $$;
