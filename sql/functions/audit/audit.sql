-- Audit: records who did what, to what, and how many. The table is append-only: triggers refuse other changes by any
-- role (missing_protection in access/roles.sql). If the triggers were removed, the seals reveal the change (seal.sql).

-- Records an action in the transaction that does it. The actor is the argument, or the setting waybill.actor of the
-- session, or the login.
CREATE OR REPLACE FUNCTION record_action(p_actor text, p_action text, p_subject jsonb, p_count bigint) RETURNS void
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  INSERT INTO operator_actions (actor, action, subject, count)
  VALUES (coalesce(p_actor, nullif(current_setting('waybill.actor', true), ''), session_user),
          p_action, jsonb_strip_nulls(p_subject), p_count)
$$;
