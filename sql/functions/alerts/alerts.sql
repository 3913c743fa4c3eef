-- Alerts: conditions that an operator should know about, with default thresholds that can be changed. The page, the
-- alert webhook and SQL callers use this file. deploy/prometheus/waybill.rules.yml has the same alerts for Prometheus,
-- and a test compares the two.

-- All alerts, one row each, whether they fire or not. Thresholds come from the configuration, or are the defaults.
-- p_thresholds overrides them for this call: {"waiting": 5000, …}; null switches an alert off. destination: the one
-- that an alert which fires affects most; null if it concerns no destination.
CREATE OR REPLACE FUNCTION alerts(p_thresholds jsonb DEFAULT '{}')
RETURNS TABLE (
  alert text, value numeric, threshold numeric, firing boolean, sentence text, remedy text, severity text,
  notify_after interval, destination text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN QUERY
    SELECT a.*
      FROM alerts_of((SELECT jsonb_object_agg(h.metric, h.value) FROM read_health() h), p_thresholds) a;
END $$;

-- The alerts for a given health, {"waiting": 3, …}.
CREATE OR REPLACE FUNCTION alerts_of(p_health jsonb, p_thresholds jsonb)
RETURNS TABLE (
  alert text, value numeric, threshold numeric, firing boolean, sentence text, remedy text, severity text,
  notify_after interval, destination text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
  PERFORM refuse_unknown_alerts(p_thresholds);
  RETURN QUERY
    WITH lately AS MATERIALIZED (
      SELECT coalesce(sum(s.delivered), 0) AS delivered,
             coalesce(sum(s.retried), 0) AS retried,
             coalesce(sum(s.died), 0) AS died
        FROM statistics s
       WHERE s.slice > statement_timestamp() - interval '5 minutes'),
    -- read once for all alerts
    load AS MATERIALIZED (
      SELECT l.destination_id, l.paused, l.breaker_open, l.relays, l.pending, l.retrying, l.oldest_due_seconds
        FROM destination_load l
       WHERE l.urgent),
    measured(alert, value) AS (
      SELECT m.alert, (p_health ->> m.metric)::numeric / m.unit
        FROM (VALUES
               ('waiting', 'waiting', 1),
               ('average_delivery_seconds', 'average_delivery_ms', 1000),
               ('retrying', 'retrying', 1),
               ('unrouted', 'unrouted', 1),
               ('stalled_cursors', 'stalled_cursors', 1),
               ('partitions_ahead', 'partition_days_ahead', 1)) m(alert, metric, unit)
      UNION ALL
      -- a pause has an alert of its own
      SELECT 'oldest_waiting_seconds',
             (SELECT max(l.oldest_due_seconds) FROM load l WHERE NOT l.paused)
      UNION ALL
      SELECT 'paused_waiting',
             (SELECT coalesce(sum(l.pending), 0) FROM load l WHERE l.paused)
      UNION ALL
      SELECT 'breaker_open',
             (SELECT coalesce(sum(l.pending), 0) FROM load l WHERE l.breaker_open)
      UNION ALL
      SELECT 'no_relay',
             (SELECT coalesce(sum(l.pending), 0)
                FROM load l
               WHERE NOT l.paused
                 AND l.relays = 0
                 AND l.oldest_due_seconds > 60)
      UNION ALL
      SELECT 'dead_growth',
             CASE
               WHEN g.count < 10000 THEN g.count
               ELSE greatest(g.count, (
                      SELECT sum(s.died)
                        FROM statistics s
                       WHERE s.slice > statement_timestamp() - interval '10 minutes'))
             END
        FROM (SELECT count(*)
                FROM (SELECT
                        FROM dead_letters d
                       WHERE d.dead_at > statement_timestamp() - interval '10 minutes'
                         AND d.dead_at < statement_timestamp() + interval '1 minute'
                       LIMIT 10000) x) g
      UNION ALL
      -- counts deliveries that were corrected already: an operator should know about the clock
      SELECT 'clock_ahead',
             (p_health ->> 'misdated')::numeric + (
               SELECT coalesce(sum(a.count), 0)
                 FROM operator_actions a
                WHERE a.at > statement_timestamp() - interval '10 minutes'
                  AND a.action = 'release_misdated')
      UNION ALL
      SELECT 'stuck_dispatching',
             (SELECT coalesce(sum(l.remaining), 0)
                FROM leases l
               WHERE l.expires_at < clock_timestamp() - interval '1 minute')
      UNION ALL
      SELECT 'retry_share',
             CASE
               WHEN l.delivered + l.retried + l.died >= 20 THEN
                 round(l.retried::numeric / (l.delivered + l.retried + l.died), 3)
             END
        FROM lately l
      UNION ALL
      SELECT 'dead_share',
             CASE WHEN l.delivered + l.died >= 20 THEN round(l.died::numeric / (l.delivered + l.died), 4) END
        FROM lately l)
    SELECT d.alert, m.value, t.threshold, f.firing,
           format(
             CASE WHEN m.value = 1 THEN coalesce(d.singular, d.sentence) ELSE d.sentence END,
             coalesce(alert_number(d.unit, coalesce(w.own, m.value)), '–'),
             ' to ' || w.name || CASE WHEN d.compares OR w.others = 0 THEN '' ELSE ' and ' || o.others END)
           || CASE
                WHEN d.compares AND w.others > 0 THEN format('; with %s, %s', o.others, alert_number(d.unit, m.value))
                ELSE ''
              END
           || CASE
                WHEN t.threshold IS NULL THEN ' (switched off)'
                ELSE format(' (alert %s %s)', CASE WHEN d.below THEN 'below' ELSE 'above' END,
                            alert_number(d.unit, t.threshold))
              END,
           d.remedy, d.severity, d.notify_after, w.name
      FROM alert_definitions() d
      JOIN measured m ON m.alert = d.alert
      LEFT JOIN alert_thresholds s ON s.alert = d.alert
     CROSS JOIN LATERAL (
            SELECT CASE
              WHEN p_thresholds ? d.alert THEN (p_thresholds ->> d.alert)::numeric
              WHEN s.alert IS NOT NULL THEN s.threshold
              ELSE d.threshold
            END) t(threshold)
     CROSS JOIN LATERAL (
            SELECT coalesce(CASE WHEN d.below THEN m.value < t.threshold ELSE m.value > t.threshold END, false))
            f(firing)
      -- only for alerts that fire, so it costs nothing while all is well
      LEFT JOIN LATERAL worst_destination(
             CASE WHEN f.firing THEN d.alert END, t.threshold, (SELECT jsonb_agg(l) FROM load l)) w ON true
     CROSS JOIN LATERAL (
            SELECT w.others || CASE WHEN w.others = 1 THEN ' other destination' ELSE ' other destinations' END)
            o(others);
END $$;

-- The destination that an alert affects most, and how many others it affects. own: the value of that destination alone,
-- for alerts whose value is no sum over destinations. No row: p_alert is null, or concerns no destination. p_load: the
-- destination_load of the urgent destinations, as alerts_of has read it.
CREATE OR REPLACE FUNCTION worst_destination(p_alert text, p_threshold numeric, p_load jsonb)
RETURNS TABLE (name text, others int, own numeric)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT SET plan_cache_mode = force_custom_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
  IF p_alert IS NULL THEN RETURN; END IF;
  RETURN QUERY
    WITH load AS (
      SELECT l.*
        FROM jsonb_to_recordset(p_load) l(
               destination_id int, paused boolean, breaker_open boolean, relays bigint, pending bigint, retrying bigint,
               oldest_due_seconds numeric)),
    affected(destination_id, size, own) AS MATERIALIZED (
      SELECT l.destination_id, l.pending::numeric, NULL::numeric
        FROM load l
       WHERE p_alert IN ('waiting', 'paused_waiting', 'breaker_open', 'no_relay')
         AND l.pending > 0
         AND CASE p_alert
               WHEN 'paused_waiting' THEN l.paused
               WHEN 'breaker_open' THEN l.breaker_open
               WHEN 'no_relay' THEN NOT l.paused AND l.relays = 0 AND l.oldest_due_seconds > 60
               ELSE true
             END
      UNION ALL
      SELECT l.destination_id, l.retrying, NULL
        FROM load l
       WHERE p_alert = 'retrying'
         AND l.retrying > 0
      UNION ALL
      SELECT l.destination_id, l.oldest_due_seconds, l.oldest_due_seconds
        FROM load l
       WHERE p_alert = 'oldest_waiting_seconds'
         AND NOT l.paused
         AND l.oldest_due_seconds > p_threshold
      UNION ALL
      SELECT x.destination_id, count(*), NULL
        FROM (SELECT d.destination_id
                FROM dead_letters d
               WHERE p_alert = 'dead_growth'
                 AND d.dead_at > statement_timestamp() - interval '10 minutes'
                 AND d.dead_at < statement_timestamp() + interval '1 minute'
               LIMIT 10000) x
       GROUP BY x.destination_id
      UNION ALL
      SELECT l.destination_id, sum(l.remaining), NULL
        FROM leases l
       WHERE p_alert = 'stuck_dispatching'
         AND l.expires_at < clock_timestamp() - interval '1 minute'
       GROUP BY l.destination_id
      UNION ALL
      -- the sizes are failures: a single failure of a destination with a single try is not the worst
      SELECT s.destination_id,
             sum(CASE p_alert WHEN 'retry_share' THEN s.retried ELSE s.died END),
             CASE p_alert
               WHEN 'retry_share' THEN round(sum(s.retried) / sum(s.delivered + s.retried + s.died), 3)
               ELSE round(sum(s.died) / nullif(sum(s.delivered + s.died), 0), 4)
             END
        FROM statistics s
       WHERE p_alert IN ('retry_share', 'dead_share')
         AND s.slice > statement_timestamp() - interval '5 minutes'
       GROUP BY s.destination_id
      HAVING sum(s.delivered + s.died + CASE p_alert WHEN 'retry_share' THEN s.retried ELSE 0 END) > 0
      UNION ALL
      SELECT x.destination_id, sum(x.seconds), avg(x.seconds)
        FROM (SELECT a.destination_id, greatest(extract(epoch FROM a.ended_at - id_time(a.message_id)), 0) AS seconds
                FROM attempts a
               WHERE p_alert = 'average_delivery_seconds'
                 AND a.message_id >= id_at(statement_timestamp() - interval '5 minutes')
                 AND a.message_id < id_at(statement_timestamp() + interval '1 minute')
                 AND a.state = 'dispatched'
               ORDER BY a.message_id DESC
               LIMIT 10000) x
       GROUP BY x.destination_id)
    SELECT t.name, (SELECT count(*)::int FROM affected) - 1, x.own
      FROM (SELECT a.* FROM affected a ORDER BY a.size DESC, a.destination_id LIMIT 1) x
      JOIN destinations t ON t.id = x.destination_id;
END $$;

-- A number of an alert in words: 12.5 %, 8 minutes, 3.
CREATE OR REPLACE FUNCTION alert_number(p_unit text, p_value numeric) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_unit = 'share' THEN trim_scale(round(p_value * 100, 2)) || ' %'
    WHEN p_unit <> 'seconds' THEN trim_scale(round(p_value, 4))::text
    ELSE (
      SELECT d.number || ' ' || d.unit || CASE WHEN d.number = 1 THEN '' ELSE 's' END
        FROM (SELECT CASE WHEN p_value < 10 THEN trim_scale(round(p_value, 1)) ELSE round(p_value / u.seconds) END,
                     u.unit
                FROM (VALUES (1, 0, 'second'), (60, 120, 'minute'), (3600, 7200, 'hour'), (86400, 172800, 'day'))
                     u(seconds, least_seconds, unit)
               WHERE p_value >= u.least_seconds
               ORDER BY u.seconds DESC
               LIMIT 1) d(number, unit))
  END
$$;

-- The definition of every alert: its default threshold; whether it fires below it instead of above; how long the
-- condition must hold before a notification is sent; the unit of its value; its sentence, and that for a value of 1 if
-- it differs; what to do. In a sentence, %1$s is the value, and %2$s the destinations that it affects. compares: the
-- sentence says the value of the worst destination, and then that of all.
CREATE OR REPLACE FUNCTION alert_definitions()
RETURNS TABLE (
  alert text, threshold numeric, below boolean, notify_after interval, severity text, unit text, compares boolean,
  singular text, sentence text, remedy text)
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('waiting', 1000::numeric, false, interval '1 minute', 'warning', 'count', false,
     '%1$s delivery%2$s waits',
     '%1$s deliveries%2$s wait',
     'Are relays running, is a destination paused or slow? Run more relays, or raise its concurrency.'),
    ('oldest_waiting_seconds', 300, false, interval '1 minute', 'critical', 'seconds', false,
     NULL,
     'deliveries%2$s have been due for up to %1$s',
     'Is a relay running that serves the destination?'),
    ('average_delivery_seconds', 5, false, interval '1 minute', 'warning', 'seconds', true,
     NULL,
     'deliveries%2$s took %1$s on average in the last 5 minutes',
     'Look for a slow destination, or for a backlog.'),
    ('retrying', 100, false, interval '1 minute', 'warning', 'count', false,
     '%1$s delivery%2$s waits for another try',
     '%1$s deliveries%2$s wait for another try',
     'Look at their error codes: waybill messages list --status retrying.'),
    ('retry_share', 0.5, false, interval '5 minutes', 'warning', 'share', true,
     NULL,
     '%1$s of the tries%2$s failed in the last 5 minutes and are repeated',
     'Look at the destinations that fail.'),
    ('dead_growth', 10, false, interval '0', 'warning', 'count', false,
     '%1$s delivery%2$s died in the last 10 minutes',
     '%1$s deliveries%2$s died in the last 10 minutes',
     'waybill dead-letters list'),
    ('dead_share', 0.001, false, interval '0', 'critical', 'share', true,
     NULL,
     '%1$s of the deliveries%2$s died in the last 5 minutes',
     'waybill dead-letters list'),
    ('stuck_dispatching', 0, false, interval '1 minute', 'critical', 'count', false,
     '%1$s delivery%2$s is held by a lease that expired more than a minute ago',
     '%1$s deliveries%2$s are held by leases that expired more than a minute ago',
     'Start a relay: its reaper requeues them.'),
    ('clock_ahead', 0, false, interval '0', 'critical', 'count', false,
     '%1$s delivery of the last 10 minutes was misdated: the clock of the database ran ahead',
     '%1$s deliveries of the last 10 minutes were misdated: the clock of the database ran ahead',
     'Relays correct their times; waybill doctor deliveries_misdated shows what is left. '
     'Find out why the clock was wrong.'),
    ('no_relay', 0, false, interval '1 minute', 'critical', 'count', false,
     '%1$s delivery%2$s has waited for more than a minute, and no running relay serves it',
     '%1$s deliveries%2$s have waited for more than a minute, and no running relay serves them',
     'Start a relay whose configuration has their destination: waybill status names it.'),
    ('breaker_open', 0, false, interval '1 minute', 'warning', 'count', false,
     '%1$s delivery%2$s waits behind an open circuit breaker',
     '%1$s deliveries%2$s wait behind an open circuit breaker',
     'Repair the destination: waybill destinations list says which, and what it answers.'),
    ('paused_waiting', 0, false, interval '5 minutes', 'warning', 'count', false,
     '%1$s delivery%2$s waits because of a pause',
     '%1$s deliveries%2$s wait because of a pause',
     'waybill destinations list says which, and why; then waybill destinations resume.'),
    ('unrouted', 0, false, interval '1 minute', 'critical', 'count', false,
     '%1$s message has no route and is not delivered',
     '%1$s messages have no route and are not delivered',
     'waybill unrouted list shows their topics. '
     'Add a route and run waybill unrouted route, or discard them with waybill unrouted discard.'),
    ('stalled_cursors', 0, false, interval '1 minute', 'critical', 'count', false,
     '%1$s cursor has stopped before messages that are older than 15 minutes',
     '%1$s cursors have stopped before messages that are older than 15 minutes',
     'waybill doctor cursors_behind says which, and why. '
     'Start a reader, or delete a cursor that is not needed with waybill cursors delete.'),
    ('partitions_ahead', 30, true, interval '0', 'critical', 'count', false,
     'partitions exist for %1$s day ahead',
     'partitions exist for %1$s days ahead',
     'Run waybill maintain, or find out why no relay makes them.')
$$;

-- Refuses thresholds for alerts that do not exist.
CREATE OR REPLACE FUNCTION refuse_unknown_alerts(p_thresholds jsonb) RETURNS void
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_unknown text;
BEGIN
  SELECT k
    INTO v_unknown
    FROM jsonb_object_keys(p_thresholds) k
   WHERE k NOT IN (SELECT d.alert FROM alert_definitions() d)
   LIMIT 1;
  IF v_unknown IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('"%s" is not an alert: use %s', left(v_unknown, 60),
                       (SELECT string_agg(d.alert, ', ') FROM alert_definitions() d));
  END IF;
END $$;

-- Replaces the thresholds of the previous configuration: {"waiting": 5000, "retrying": null}.
CREATE OR REPLACE FUNCTION sync_alert_thresholds(p_thresholds jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM refuse_unknown_alerts(p_thresholds);
  -- serializes relays that start at the same time
  PERFORM take_lock('alerts');
  DELETE FROM alert_thresholds t WHERE NOT p_thresholds ? t.alert;
  INSERT INTO alert_thresholds AS t (alert, threshold)
  SELECT k.key, k.value::numeric
    FROM jsonb_each_text(p_thresholds) k
  ON CONFLICT (alert) DO UPDATE
     SET threshold = excluded.threshold
   WHERE t.threshold IS DISTINCT FROM excluded.threshold;
END $$;
