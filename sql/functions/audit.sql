-- The audit: who did what, to what, and how many. It can only be added to: triggers refuse the rest to everybody
-- (missing_protection in roles.sql), and what somebody does who takes them away is found by the seals (seal.sql).

-- Records an action in the transaction that does it. The actor: as given, or as the session says (SET waybill.actor),
-- or the login.
CREATE OR REPLACE FUNCTION record_action(p_actor text, p_action text, p_subject jsonb, p_count bigint) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  INSERT INTO operator_actions (actor, action, subject, count)
  VALUES (coalesce(p_actor, nullif(current_setting('waybill.actor', true), ''), session_user), p_action, jsonb_strip_nulls(p_subject), p_count)
$$;
