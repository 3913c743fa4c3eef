-- Health as rows of metric, value, description and alarm. An alarm says what is wrong and what to do; null means that
-- all is well.
--
-- The view costs the same on a large outbox as on a small one. Destinations without work are not visited, and of
-- endpoints only the most urgent ones (urgent_destinations); an alarm names at most 10 of them. Above 10,000, counts of
-- pending deliveries are estimates; those of dead letters are above 10,000 at a destination, or 100,000 in all; other
-- counts stop at 10,000. The average covers the last five minutes, at most 10,000 messages. It uses
-- statement_timestamp(), because a condition with clock_timestamp() cannot use an index. Planning the view is slow:
-- callers that read it often use read_health, which caches the plan.
CREATE OR REPLACE VIEW health WITH (security_invoker = true) AS
-- OFFSET 0 makes it a look-up for each destination that has work, instead of a scan of all of them
WITH waiting AS MATERIALIZED (
  SELECT w.id, t.name, t.paused_at
    FROM urgent_destinations() w(id)
   CROSS JOIN LATERAL (
          SELECT d.name, d.paused_at
            FROM destinations d
           WHERE d.id = w.id
          OFFSET 0) t)
SELECT 'waiting' AS metric,
       count_all_waiting()::numeric AS value,
       'pending deliveries, retrying ones included (an estimate above 10000)' AS description,
       NULL::text AS alarm
UNION ALL
SELECT 'retrying',
       count_all_retrying(),
       'pending deliveries with at least one failed try (an estimate above 10000)', NULL
UNION ALL
SELECT 'processing',
       (SELECT coalesce(sum(remaining), 0) FROM leases),
       'deliveries that a relay or a worker holds now', NULL
UNION ALL
SELECT 'delivered',
       (SELECT CASE
                 WHEN count(*) < 10000 THEN count(*)
                 ELSE greatest(
                   count(*),
                   (SELECT sum(s.delivered)
                      FROM statistics s
                     WHERE s.slice > statement_timestamp() - interval '5 minutes'))
               END
          FROM (SELECT FROM attempts a
                 WHERE a.message_id >= id_at(statement_timestamp() - interval '5 minutes')
                   AND a.message_id < id_at(statement_timestamp() + interval '1 minute')
                   AND a.state = 'dispatched'
                 LIMIT 10000) x),
       'deliveries made of messages of the last 5 minutes (above 10000: as counted by relays)', NULL
UNION ALL
SELECT r.metric, r.value, r.description, NULL
  FROM delivery_rates('5 minutes') x,
       LATERAL (VALUES
         ('delivery_rate', x.delivery_rate,
          'share of the deliveries that ended in the last 5 minutes and were delivered, after any number of tries '
          '(as counted by relays)'),
         ('success_rate', x.success_rate,
          'share of the single tries of the last 5 minutes that succeeded (as counted by relays)'))
       r(metric, value, description)
UNION ALL
SELECT 'dead',
       count_all_dead(),
       'dead letters, which need an operator (an estimate above 10000 at a destination, or 100000 in all)', NULL
UNION ALL
SELECT 'blocked',
       (SELECT count(*) FROM (SELECT FROM lanes WHERE blocked_by IS NOT NULL LIMIT 10000) x),
       'keys that wait behind a dead letter at a destination (at most 10000 are counted)', NULL
UNION ALL
SELECT 'paused', count(*), 'paused destinations (alarm for those that were paused because of their answers)',
       CASE WHEN count(d.paused_code) = 1 THEN 'paused because of its answer: '
            ELSE 'paused because of their answers: '
       END
         || array_to_string(
              (array_agg(format('%s (%s)', d.name, d.paused_code) ORDER BY d.name)
                 FILTER (WHERE d.paused_code IS NOT NULL))[1:10], ', ')
         || CASE
              WHEN count(d.paused_code) = 11 THEN ' and 1 other'
              WHEN count(d.paused_code) > 11 THEN format(' and %s others', count(d.paused_code) - 10)
              ELSE ''
            END
         || CASE WHEN count(d.paused_code) = 1 THEN ': repair it' ELSE ': repair them' END
         || ', then run waybill destinations resume'
  FROM destinations d
 WHERE d.paused_at IS NOT NULL
UNION ALL
SELECT 'open_breakers', count(*), 'circuit breakers of living relays that are not closed (alarm for each)',
       CASE WHEN count(*) = 1 THEN 'a circuit breaker is open: ' ELSE 'circuit breakers are open: ' END
         || array_to_string((array_agg(format('%s at %s', b.name, r.name) ORDER BY b.name, r.name))[1:10], ', ')
         || CASE
              WHEN count(*) = 11 THEN ' and 1 other'
              WHEN count(*) > 11 THEN format(' and %s others', count(*) - 10)
              ELSE ''
            END
         || CASE
              WHEN count(*) = 1 THEN ': this destination fails, and its deliveries wait'
              ELSE ': these destinations fail, and their deliveries wait'
            END
  FROM relays r
 CROSS JOIN LATERAL jsonb_object_keys(r.breakers) b(name)
 WHERE r.heartbeat_at > clock_timestamp() - interval '1 minute'
UNION ALL
SELECT 'unrouted', u.count,
       'messages without a route, kept until they are routed or discarded '
       '(at most 10000 are counted; alarm above 0)',
       CASE WHEN u.count > 0 THEN
         format('%s%s without a route: waybill unrouted list shows the topics; add a route and run '
                  || 'waybill unrouted route, or discard them with waybill unrouted discard',
                CASE WHEN u.count = 10000 THEN 'at least ' END,
                CASE WHEN u.count = 1 THEN '1 message' ELSE u.count || ' messages' END)
       END
  FROM (SELECT count_unrouted() AS count) u
UNION ALL
SELECT 'stalled_cursors', count(*),
       'cursors with messages that have waited for 15 minutes, and that have not moved since (alarm above 0)',
       CASE WHEN count(*) = 1 THEN 'a cursor has stopped: ' ELSE 'cursors have stopped: ' END
         || string_agg(
              format('%s (%s)', s.name,
                     CASE WHEN s.is_read THEN 'its reader does not get on' ELSE 'nothing reads it' END),
              ', ' ORDER BY s.name)
         || ': waybill doctor cursors_behind says why; start a reader, '
            'or delete a cursor that is not needed with waybill cursors delete'
  FROM stalled_cursors() s
UNION ALL
SELECT r.metric, r.value, r.description, r.alarm
  FROM (SELECT max(o.seconds) AS seconds, max(o.seconds) FILTER (WHERE o.paused) AS paused_seconds,
               array_agg(o.name ORDER BY o.name) FILTER (WHERE o.seconds > 300 AND NOT o.paused) AS late
          FROM (SELECT t.name, t.paused_at IS NOT NULL AS paused,
                       round(extract(epoch FROM greatest(clock_timestamp() - oldest_due_at(t.id), interval '0')), 3)
                         AS seconds
                  FROM waiting t) o) x,
       LATERAL (VALUES
         ('oldest_waiting_seconds', x.seconds,
          'seconds for which the oldest due delivery has been due, at most since its enqueue if its producer gave the '
          'time (alarm above 300, unless its destination is paused)',
          'deliveries have been due for more than 300 seconds at ' || array_to_string(x.late[1:10], ', ')
            || CASE
                 WHEN cardinality(x.late) = 11 THEN ' and 1 other destination'
                 WHEN cardinality(x.late) > 11 THEN format(' and %s other destinations', cardinality(x.late) - 10)
                 ELSE ''
               END
            || ': is a relay or a worker running that serves them, and does it keep up?'),
         ('oldest_paused_seconds', x.paused_seconds,
          'the same, of paused destinations only (null if none is paused)', NULL))
       r(metric, value, description, alarm)
UNION ALL
SELECT 'misdated', coalesce(sum(m.count), 0),
       'deliveries and keys that wait only because the database''s clock ran ahead '
       '(of the 1000 of each that become due last at a destination; alarm above 0)',
       CASE WHEN sum(m.count) = 1 THEN '1 delivery is misdated' ELSE 'deliveries are misdated' END
         || ', because the database''s clock ran ahead, at '
         || array_to_string((array_agg(m.name ORDER BY m.name) FILTER (WHERE m.count > 0))[1:10], ', ')
         || ': a relay corrects the times within seconds; without a relay, waybill doctor says what to run'
  FROM (SELECT t.name, count_misdated(t.id) AS count
          FROM waiting t) m
UNION ALL
SELECT 'endpoints', count(*), 'webhook endpoints of the database', NULL
  FROM endpoints
 WHERE removed_at IS NULL
UNION ALL
SELECT 'endpoints_disabled', count(*), 'disabled webhook endpoints, whose deliveries wait', NULL
  FROM endpoints e
  JOIN destinations d ON d.id = e.destination_id
 WHERE e.removed_at IS NULL
   AND d.paused_at IS NOT NULL
UNION ALL
SELECT 'relay_problems', count(p.problem), 'problems that living relays report (alarm above 0)',
       string_agg(format('relay %s: %s', r.name, p.problem), '; ' ORDER BY r.name, p.problem)
  FROM relays r
 CROSS JOIN unnest(r.problems) p(problem)
 WHERE r.heartbeat_at > clock_timestamp() - interval '1 minute'
UNION ALL
SELECT 'unexported_heads', coalesce(max((SELECT coalesce(max(number), 0) FROM seals) - e.number), 0),
       'heads of the audit''s seals that were not exported to their sink outside the database yet '
       '(alarm while a sink cannot be reached)',
       'heads of the audit''s seals cannot be exported to '
         || string_agg(
              format('%s (since %s: %s)', e.sink, to_char(e.failed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI"Z"'),
                     e.error),
              '; ' ORDER BY e.sink)
  FROM seal_exports e
 WHERE e.error IS NOT NULL
   AND e.tried_at > clock_timestamp() - interval '1 hour'
UNION ALL
SELECT 'average_delivery_ms',
       (SELECT round(avg(greatest(extract(epoch FROM r.ended_at - id_time(r.message_id)) * 1000, 0)), 1)
          FROM (SELECT a.message_id, a.ended_at
                  FROM attempts a
                 WHERE a.message_id >= id_at(statement_timestamp() - interval '5 minutes')
                   AND a.message_id < id_at(statement_timestamp() + interval '1 minute')
                   AND a.state = 'dispatched'
                 ORDER BY a.message_id DESC
                 LIMIT 10000) r),
       'milliseconds from creation to delivery, over the last 5 minutes (at most the last 10000 messages)', NULL
UNION ALL
SELECT 'partition_days_ahead', p.days, 'days from today for which partitions exist (alarm below 30)',
       CASE WHEN p.days < 30 THEN
         format('partitions exist for %s ahead: run waybill maintain, or find out why no relay makes them',
                CASE WHEN p.days = 1 THEN '1 day' ELSE p.days || ' days' END)
       END
  FROM (SELECT partition_days_ahead() AS days) p;
