-- Alert notifications: decide when the alert webhook is called, and by which relay. Any number of relays check. The one
-- that finds something to send keeps the hold 'alerts' (holds.sql) until it has reported the results. If it dies
-- before, the hold expires, and another relay sends the notifications again, with the same ids.

-- Checks all alerts, and returns the notifications that this holder has to send now: alerts that have fired for long
-- enough and were not notified, alerts that still fire p_repeat after their last notification, and alerts that have
-- ended. token: that of the hold 'alerts', which the caller releases. If there is nothing to send, it is not taken.
CREATE OR REPLACE FUNCTION take_alerts(p_holder uuid, p_repeat interval, p_held interval)
RETURNS TABLE (
  token bigint, alert text, state text, notification_id uuid, tries int, since timestamptz, value numeric,
  threshold numeric, severity text, sentence text, remedy text, destination text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
  v_now    timestamptz;
  v_alerts jsonb;
  v_token  bigint;
BEGIN
  PERFORM checked_interval('p_held', p_held, '1 millisecond', '1 hour');
  -- null: another relay is checking or sending
  v_token := (SELECT h.token FROM take_hold('alerts', p_holder, p_held) h);
  IF v_token IS NULL THEN RETURN; END IF;
  v_now := clock_timestamp();
  SELECT jsonb_agg(to_jsonb(a)) INTO v_alerts FROM alerts() a;
  INSERT INTO alert_states AS s (alert, firing_since)
  SELECT a.alert, v_now
    FROM jsonb_to_recordset(v_alerts) a(alert text, firing boolean)
   WHERE a.firing
  -- a time in the future was written before the clock was set back
  ON CONFLICT (alert) DO UPDATE
     SET firing_since = excluded.firing_since
   WHERE s.firing_since IS NULL
      OR s.firing_since > v_now + clock_tolerance();
  UPDATE alert_states s
     SET firing_since = NULL
    FROM jsonb_to_recordset(v_alerts) a(alert text, firing boolean)
   WHERE a.alert = s.alert
     AND NOT a.firing
     AND s.firing_since IS NOT NULL;
  -- alerts that another version had
  DELETE FROM alert_states s
   WHERE s.alert NOT IN (SELECT d.alert FROM alert_definitions() d);
  RETURN QUERY
    WITH wanted AS (
      SELECT s.alert,
             CASE WHEN s.firing_since IS NULL THEN 'resolved' ELSE 'firing' END AS state,
             coalesce(s.firing_since, s.last_firing_since) AS since,
             a.value, a.threshold, a.severity, a.sentence, a.remedy, a.destination
        FROM alert_states s
        JOIN jsonb_to_recordset(v_alerts) a(
               alert text, value numeric, threshold numeric, severity text, sentence text, remedy text,
               notify_after interval, destination text)
          ON a.alert = s.alert
       WHERE NOT is_held(s.retry_at, '5 minutes')
         AND CASE
               WHEN s.firing_since IS NULL THEN s.last_notified = 'firing'
               WHEN s.last_notified = 'firing' THEN
                 s.last_notified_at <= v_now - p_repeat OR s.last_notified_at > v_now + clock_tolerance()
               ELSE s.firing_since <= v_now - a.notify_after
             END),
    taken AS (
      UPDATE alert_states s
         SET sending = w.state,
             notification_id = CASE WHEN s.sending = w.state THEN s.notification_id ELSE new_id() END,
             tries = CASE WHEN s.sending = w.state THEN s.tries + 1 ELSE 1 END
        FROM wanted w
       WHERE w.alert = s.alert
      RETURNING s.alert, s.notification_id, s.tries)
    SELECT v_token, w.alert, w.state, t.notification_id, t.tries, w.since, w.value, w.threshold, w.severity, w.sentence,
           w.remedy, w.destination
      FROM taken t
      JOIN wanted w ON w.alert = t.alert
     ORDER BY w.alert;
  IF NOT FOUND THEN PERFORM release_hold('alerts', v_token); END IF;
END $$;

-- Records the result of a notification. A failed one is sent again after 5 seconds at first, and after 5 minutes at
-- most. False if another relay has the hold by now.
CREATE OR REPLACE FUNCTION note_notification(p_token bigint, p_alert text, p_notification_id uuid, p_sent boolean)
RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  UPDATE alert_states s
     SET last_notified = CASE WHEN p_sent THEN s.sending ELSE s.last_notified END,
         last_notified_at = CASE WHEN p_sent THEN clock_timestamp() ELSE s.last_notified_at END,
         last_firing_since = CASE
           WHEN p_sent AND s.sending = 'firing' THEN coalesce(s.firing_since, clock_timestamp())
           ELSE s.last_firing_since
         END,
         sending = CASE WHEN p_sent THEN NULL ELSE s.sending END,
         tries = CASE WHEN p_sent THEN 0 ELSE s.tries END,
         retry_at = CASE
           WHEN p_sent THEN '-infinity'
           ELSE clock_timestamp() + least(interval '5 seconds' * 2 ^ least(s.tries - 1, 10), interval '5 minutes')
         END
   WHERE s.alert = p_alert
     AND s.notification_id = p_notification_id
     AND has_hold('alerts', p_token);
  RETURN FOUND;
END $$;
