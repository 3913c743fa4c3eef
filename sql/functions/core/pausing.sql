-- Pauses destinations: by an operator, or because of a destination's answer. A paused destination keeps its pending
-- deliveries; no relay claims them.

-- Pauses or resumes a destination. reason: shown to operators.
CREATE OR REPLACE FUNCTION set_paused(
  destination text,
  paused      boolean,
  actor       text DEFAULT NULL,
  reason      text DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
DECLARE
  v_destination destinations := find_destination(destination);
BEGIN
  IF paused IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = 'paused is null: give true or false';
  END IF;
  UPDATE destinations d
     SET paused_at = CASE WHEN paused THEN clock_timestamp() END,
         paused_by = CASE WHEN paused THEN coalesce(actor, session_user) END,
         paused_reason = CASE WHEN paused THEN left(reason, 2000) END,
         paused_code = NULL,
         resumed_at = CASE WHEN paused THEN d.resumed_at ELSE clock_timestamp() END
   WHERE d.id = v_destination.id
     AND (d.paused_at IS NOT NULL) <> paused;
  IF FOUND THEN
    PERFORM record_action(actor, CASE WHEN paused THEN 'pause' ELSE 'resume' END,
                          jsonb_build_object('destination', destination, 'reason', left(reason, 2000)), 1);
    IF NOT paused THEN PERFORM notify_relays(ARRAY[v_destination.id]); END IF;
  END IF;
END $$;

-- Pauses a destination because of its answer, if it is not paused yet. An answer to a call that began before an
-- operator resumed the destination does not pause it again: the operator knew the cause. Returns whether it paused.
CREATE OR REPLACE FUNCTION pause_after(
  p_destination_id int,
  p_since          timestamptz,
  p_relay_id       uuid,
  p_code           text,
  p_remote_code    text,
  p_message        text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_actor text := coalesce(
    'relay ' || (SELECT r.name FROM relays r WHERE r.id = p_relay_id),
    'worker ' || p_relay_id);
  v_name  text;
BEGIN
  UPDATE destinations d
     SET paused_at = clock_timestamp(),
         paused_by = v_actor,
         paused_code = left(p_code, 100),
         paused_reason = left(nullif(concat_ws(': ', left(p_remote_code, 100), p_message), ''), 2000)
   WHERE d.id = p_destination_id
     AND d.paused_at IS NULL
     -- a time in the future was written before the clock was set back
     AND (d.resumed_at IS NULL OR d.resumed_at < p_since OR d.resumed_at > clock_timestamp())
  RETURNING d.name INTO v_name;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM record_action(v_actor, 'pause', jsonb_build_object(
    'destination', v_name, 'code', left(p_code, 100), 'remoteCode', left(p_remote_code, 100),
    'reason', left(p_message, 2000)), 1);
  RETURN true;
END $$;
