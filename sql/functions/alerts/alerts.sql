-- Alerts: conditions that an operator should know about, with default thresholds that can be changed. The page, the
-- alert webhook and SQL callers use this file. deploy/prometheus/waybill.rules.yml has the same alerts for Prometheus,
-- and a test compares the two.

-- All alerts, one row each, whether they fire or not. Thresholds come from the configuration, or are the defaults.
-- p_thresholds overrides them for this call: {"waiting": 5000, …}; null switches an alert off.
CREATE OR REPLACE FUNCTION alerts(p_thresholds jsonb DEFAULT '{}')
RETURNS TABLE (
  alert text, value numeric, threshold numeric, firing boolean, sentence text, remedy text, severity text,
  notify_after interval)
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
  notify_after interval)
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
             (SELECT max(l.oldest_due_seconds) FROM destination_load l WHERE NOT l.paused)
      UNION ALL
      SELECT 'paused_waiting',
             (SELECT coalesce(sum(l.pending), 0) FROM destination_load l WHERE l.paused)
      UNION ALL
      SELECT 'breaker_open',
             (SELECT coalesce(sum(l.pending), 0) FROM destination_load l WHERE l.breaker_open)
      UNION ALL
      SELECT 'no_relay',
             (SELECT coalesce(sum(l.pending), 0)
                FROM destination_load l
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
    SELECT d.alert, m.value, t.threshold,
           coalesce(CASE WHEN d.below THEN m.value < t.threshold ELSE m.value > t.threshold END, false),
           -- no more digits than needed
           format(d.sentence, trim_scale(round(m.value, 4)), trim_scale(t.threshold)), d.remedy, d.severity,
           d.notify_after
      FROM alert_definitions() d
      JOIN measured m ON m.alert = d.alert
      LEFT JOIN alert_thresholds s ON s.alert = d.alert
     CROSS JOIN LATERAL (
            SELECT CASE
              WHEN p_thresholds ? d.alert THEN (p_thresholds ->> d.alert)::numeric
              WHEN s.alert IS NOT NULL THEN s.threshold
              ELSE d.threshold
            END) t(threshold);
END $$;

-- The definition of every alert: its default threshold; whether it fires below it instead of above; how long the
-- condition must hold before a notification is sent; the sentence that describes it, and what to do.
CREATE OR REPLACE FUNCTION alert_definitions()
RETURNS TABLE (
  alert text, threshold numeric, below boolean, notify_after interval, severity text, sentence text, remedy text)
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('waiting', 1000::numeric, false, interval '1 minute', 'warning',
     '%s deliveries wait (alert above %s)',
     'Are relays running, is a destination paused or slow? Run more relays, or raise its concurrency.'),
    ('oldest_waiting_seconds', 300, false, interval '1 minute', 'critical',
     'the oldest due delivery has been due for %s seconds (alert above %s)',
     'Is a relay running that serves its destination?'),
    ('average_delivery_seconds', 5, false, interval '1 minute', 'warning',
     'deliveries took %s seconds on average in the last 5 minutes (alert above %s)',
     'Look for a slow destination, or for a backlog.'),
    ('retrying', 100, false, interval '1 minute', 'warning',
     '%s deliveries wait for another try (alert above %s)',
     'Look at their error codes: waybill messages list --status retrying.'),
    ('retry_share', 0.5, false, interval '5 minutes', 'warning',
     'a share of %s of the tries of the last 5 minutes failed and is retried (alert above %s)',
     'Look at the destinations that fail.'),
    ('dead_growth', 10, false, interval '0', 'warning',
     '%s deliveries died in the last 10 minutes (alert above %s)',
     'waybill dead-letters list'),
    ('dead_share', 0.001, false, interval '0', 'critical',
     'a share of %s of the deliveries of the last 5 minutes died (alert above %s)',
     'waybill dead-letters list'),
    ('stuck_dispatching', 0, false, interval '1 minute', 'critical',
     '%s deliveries are held by leases that expired more than a minute ago (alert above %s)',
     'Start a relay: its reaper requeues them.'),
    ('clock_ahead', 0, false, interval '0', 'critical',
     '%s deliveries of the last 10 minutes were misdated: the clock of the database ran ahead (alert above %s)',
     'Relays correct their times; waybill doctor deliveries_misdated shows what is left. '
     'Find out why the clock was wrong.'),
    ('no_relay', 0, false, interval '1 minute', 'critical',
     '%s deliveries have waited for more than a minute where no living relay serves them (alert above %s)',
     'Start a relay whose configuration has their destination: waybill status names it.'),
    ('breaker_open', 0, false, interval '1 minute', 'warning',
     '%s deliveries wait behind an open circuit breaker (alert above %s)',
     'Repair the destination: waybill destinations list says which, and what it answers.'),
    ('paused_waiting', 0, false, interval '5 minutes', 'warning',
     '%s deliveries wait at paused destinations (alert above %s)',
     'waybill destinations list says which, and why; then waybill destinations resume.'),
    ('unrouted', 0, false, interval '1 minute', 'critical',
     '%s messages have no route and are not delivered (alert above %s)',
     'waybill unrouted list shows their topics. '
     'Add a route and run waybill unrouted route, or discard them with waybill unrouted discard.'),
    ('stalled_cursors', 0, false, interval '1 minute', 'critical',
     '%s cursors have stopped before messages that are older than 15 minutes (alert above %s)',
     'waybill doctor cursors_behind says which, and why. '
     'Start a reader, or delete a cursor that is not needed with waybill cursors delete.'),
    ('partitions_ahead', 30, true, interval '0', 'critical',
     'partitions exist for %s days ahead (alert below %s)',
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
