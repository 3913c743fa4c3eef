-- What an operator should be woken for, with default thresholds; each can be set anew. The page, the server's
-- webhook and the command line ask here; the rules for Prometheus say the same.

-- One row for each alert, whether it fires or not. p_thresholds: {"waiting": 5000, …}; null switches one off.
CREATE OR REPLACE FUNCTION alerts(p_thresholds jsonb DEFAULT '{}')
RETURNS TABLE (alert text, value numeric, threshold numeric, firing boolean, sentence text, remedy text)
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_unknown text;
BEGIN
  SELECT k INTO v_unknown FROM jsonb_object_keys(p_thresholds) k WHERE k NOT IN (SELECT d.alert FROM default_thresholds() d) LIMIT 1;
  IF v_unknown IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('"%s" is not an alert: use %s', left(v_unknown, 60),
      (SELECT string_agg(d.alert, ', ') FROM default_thresholds() d));
  END IF;
  RETURN QUERY
    WITH health AS MATERIALIZED (SELECT h.metric, h.value FROM health h),
    lately AS MATERIALIZED (
      SELECT coalesce(sum(s.delivered), 0) AS delivered, coalesce(sum(s.retried), 0) AS retried, coalesce(sum(s.died), 0) AS died
        FROM statistics s WHERE s.slice > statement_timestamp() - interval '5 minutes'),
    measured(alert, value) AS (
      SELECT m.alert, h.value FROM (VALUES ('waiting', 'waiting'), ('average_delivery_ms', 'average_delivery_ms'), ('retrying', 'retrying'),
                                           ('oldest_waiting_seconds', 'oldest_waiting_seconds')) m(alert, metric)
        LEFT JOIN health h ON h.metric = m.metric
      UNION ALL
      SELECT 'dead_growth', (SELECT count(*) FROM (SELECT FROM dead_letters d WHERE d.dead_at > statement_timestamp() - interval '10 minutes' LIMIT 100000) x)
      UNION ALL
      SELECT 'stuck_dispatching', (SELECT coalesce(sum(l.remaining), 0) FROM leases l WHERE l.expires_at < clock_timestamp() - interval '1 minute')
      UNION ALL
      SELECT 'retry_share', CASE WHEN l.delivered + l.retried + l.died >= 20 THEN round(l.retried::numeric / (l.delivered + l.retried + l.died), 3) END
        FROM lately l
      UNION ALL
      SELECT 'dead_share', CASE WHEN l.delivered + l.died >= 20 THEN round(l.died::numeric / (l.delivered + l.died), 4) END FROM lately l)
    SELECT d.alert, m.value, t.threshold, coalesce(m.value > t.threshold, false), format(d.sentence, m.value, t.threshold), d.remedy
      FROM default_thresholds() d
      JOIN measured m ON m.alert = d.alert
      CROSS JOIN LATERAL (SELECT CASE WHEN p_thresholds ? d.alert THEN (p_thresholds ->> d.alert)::numeric ELSE d.threshold END) t(threshold);
END $$;

CREATE OR REPLACE FUNCTION default_thresholds()
RETURNS TABLE (alert text, threshold numeric, sentence text, remedy text) LANGUAGE sql IMMUTABLE AS $$
  VALUES
    ('waiting', 1000::numeric, '%s deliveries wait (alert above %s)', 'Are relays running, is a destination paused or slow? Run more relays, or raise its concurrency.'),
    ('oldest_waiting_seconds', 300, 'the oldest due delivery has been due for %s seconds (alert above %s)', 'Is a relay running that serves its destination?'),
    ('average_delivery_ms', 5000, 'deliveries took %s ms on average in the last 5 minutes (alert above %s)', 'Look for a slow destination, or for a backlog.'),
    ('retrying', 100, '%s deliveries wait for another try (alert above %s)', 'Look at their error codes: waybill messages list --status retrying.'),
    ('retry_share', 0.5, 'a share of %s of the deliveries of the last 5 minutes failed and is retried (alert above %s)', 'Look at the destinations that fail.'),
    ('dead_growth', 10, '%s deliveries died in the last 10 minutes (alert above %s)', 'waybill dead-letters list'),
    ('dead_share', 0.001, 'a share of %s of the deliveries of the last 5 minutes died (alert above %s)', 'waybill dead-letters list'),
    ('stuck_dispatching', 0, '%s deliveries are held by somebody whose lease ended more than a minute ago (alert above %s)', 'Start a relay: it frees them.')
$$;
