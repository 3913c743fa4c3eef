-- Who tells whom about an alert, and when. Any number of relays look; the database lets one of them tell each
-- alert, and remembers what was told. Whoever takes an alert has it until it says how the telling went, or for a
-- while: if it dies between the two, another one tells it again, under the same id.

-- Looks at all alerts, and gives what this holder has to tell now: those that have fired for long enough and were
-- not told, those that were told longer ago than p_repeat and still fire, and those that do not fire any more.
CREATE OR REPLACE FUNCTION take_alerts(p_holder uuid, p_repeat interval, p_held interval)
RETURNS TABLE (alert text, state text, notification_id uuid, tries int, since timestamptz, value numeric, threshold numeric,
               severity text, sentence text, remedy text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now    timestamptz;
  v_alerts jsonb;
BEGIN
  -- somebody is at it: what there is to tell, they will
  IF NOT pg_try_advisory_xact_lock(hashtextextended('waybill alerts ' || current_schema(), 0)) THEN
    RETURN;
  END IF;
  v_now := clock_timestamp();
  SELECT jsonb_agg(to_jsonb(a)) INTO v_alerts FROM alerts() a;
  INSERT INTO alert_states AS s (alert, firing_since)
  SELECT a.alert, v_now FROM jsonb_to_recordset(v_alerts) a(alert text, firing boolean) WHERE a.firing
  ON CONFLICT (alert) DO UPDATE SET firing_since = excluded.firing_since WHERE s.firing_since IS NULL;
  UPDATE alert_states s SET firing_since = NULL
    FROM jsonb_to_recordset(v_alerts) a(alert text, firing boolean)
   WHERE a.alert = s.alert AND NOT a.firing AND s.firing_since IS NOT NULL;
  -- of a version that had more of them
  DELETE FROM alert_states s WHERE s.alert NOT IN (SELECT d.alert FROM alert_definitions() d);
  RETURN QUERY
    WITH wanted AS (
      SELECT s.alert, CASE WHEN s.firing_since IS NULL THEN 'resolved' ELSE 'firing' END AS state, coalesce(s.firing_since, s.told_since) AS since,
             a.value, a.threshold, a.severity, a.sentence, a.remedy
        FROM alert_states s
        JOIN jsonb_to_recordset(v_alerts) a(alert text, value numeric, threshold numeric, severity text, sentence text, remedy text, hold interval) ON a.alert = s.alert
       WHERE s.held_until <= v_now
         AND CASE WHEN s.firing_since IS NULL THEN s.told = 'firing'
                  WHEN s.told = 'firing' THEN s.told_at <= v_now - p_repeat
                  ELSE s.firing_since <= v_now - a.hold END),
    taken AS (
      UPDATE alert_states s
         SET holder = p_holder, held_until = v_now + p_held, telling = w.state,
             notification_id = CASE WHEN s.telling = w.state THEN s.notification_id ELSE new_id() END,
             tries = CASE WHEN s.telling = w.state THEN s.tries + 1 ELSE 1 END
        FROM wanted w WHERE w.alert = s.alert
       RETURNING s.alert, s.notification_id, s.tries)
    SELECT w.alert, w.state, t.notification_id, t.tries, w.since, w.value, w.threshold, w.severity, w.sentence, w.remedy
      FROM taken t JOIN wanted w ON w.alert = t.alert ORDER BY w.alert;
END $$;

-- How the telling went. What was not told is tried again, after 5 seconds at first and 5 minutes at last. False if
-- somebody else has it by now.
CREATE OR REPLACE FUNCTION end_alert(p_holder uuid, p_alert text, p_notification_id uuid, p_told boolean) RETURNS boolean
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  UPDATE alert_states s
     SET told = CASE WHEN p_told THEN s.telling ELSE s.told END,
         told_at = CASE WHEN p_told THEN clock_timestamp() ELSE s.told_at END,
         told_since = CASE WHEN p_told AND s.telling = 'firing' THEN coalesce(s.firing_since, clock_timestamp()) ELSE s.told_since END,
         telling = CASE WHEN p_told THEN NULL ELSE s.telling END,
         tries = CASE WHEN p_told THEN 0 ELSE s.tries END,
         holder = NULL,
         held_until = CASE WHEN p_told THEN '-infinity' ELSE clock_timestamp() + least(interval '5 seconds' * 2 ^ least(s.tries - 1, 10), interval '5 minutes') END
   WHERE s.alert = p_alert AND s.holder = p_holder AND s.notification_id = p_notification_id;
  RETURN FOUND;
END $$;
