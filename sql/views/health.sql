-- Health as rows of metric, value, description, alarm. An alarm says what is wrong and what to do; null means
-- that nothing is. Above 10,000 at a destination, counts of what waits and what is dead are estimates; what is counted up
-- to 10,000 says so by being exactly that much. The average is over at most the last 10,000 messages of five minutes,
-- found by the time of the statement, because no index serves a clock that moves while it is asked. So the view costs the
-- same on a large outbox as on a small one. Its plan does not: whoever asks often asks read_health, which keeps it.
CREATE OR REPLACE VIEW health WITH (security_invoker = true) AS
SELECT 'waiting' AS metric,
       (SELECT coalesce(sum(count_waiting(t.id)), 0) FROM destinations t)::numeric AS value,
       'deliveries that wait, retrying ones included (an estimate above 10000 at a destination)' AS description,
       NULL::text AS alarm
UNION ALL
SELECT 'retrying', (SELECT coalesce(sum(count_retrying(t.id)), 0) FROM destinations t),
       'deliveries that wait for another try after a failed one (an estimate above 10000 at a destination)', NULL
UNION ALL
SELECT 'processing', (SELECT coalesce(sum(remaining), 0) FROM leases), 'deliveries that a relay holds now', NULL
UNION ALL
SELECT 'delivered',
       (SELECT CASE WHEN count(*) < 10000 THEN count(*)
                    ELSE greatest(count(*), (SELECT sum(s.delivered) FROM statistics s WHERE s.slice > statement_timestamp() - interval '5 minutes')) END
          FROM (SELECT FROM attempts a
                 WHERE a.message_id >= id_at(statement_timestamp() - interval '5 minutes') AND a.state = 'dispatched' LIMIT 10000) x),
       'deliveries made of messages of the last 5 minutes (above 10000 as relays have told of them)', NULL
UNION ALL
SELECT 'dead', (SELECT coalesce(sum(count_dead(t.id)), 0) FROM destinations t),
       'dead letters, which need a person (an estimate above 10000 at a destination)', NULL
UNION ALL
SELECT 'blocked', (SELECT count(*) FROM (SELECT FROM lanes WHERE blocked_by IS NOT NULL LIMIT 10000) x),
       'keys that wait behind a dead letter at a destination (at most 10000 are counted)', NULL
UNION ALL
SELECT 'paused', count(*), 'destinations that are paused (alarm for those that an answer of theirs has paused)',
       'paused by their own answers: '
         || string_agg(format('%s (%s)', d.name, d.paused_code), ', ' ORDER BY d.name) FILTER (WHERE d.paused_code IS NOT NULL)
         || ': mend them, then run waybill destinations resume'
  FROM destinations d WHERE d.paused_at IS NOT NULL
UNION ALL
SELECT 'open_breakers', count(*), 'circuit breakers of living relays that are not closed (alarm for each)',
       'circuit breakers are open: ' || string_agg(format('%s at %s', b.name, r.name), ', ' ORDER BY b.name, r.name)
         || ': these destinations fail, and their deliveries wait'
  FROM relays r CROSS JOIN LATERAL jsonb_object_keys(r.breakers) b(name) WHERE r.heartbeat_at > clock_timestamp() - interval '1 minute'
UNION ALL
SELECT 'unrouted', (SELECT count(*) FROM (SELECT FROM unrouted_messages LIMIT 10000) x),
       'messages that no route wanted (at most 10000 are counted)', NULL
UNION ALL
SELECT 'oldest_waiting_seconds', max(o.seconds),
       'seconds for which the oldest due delivery has been due (alarm above 300, unless its destination is paused)',
       'deliveries have been due for more than 300 seconds at '
         || string_agg(o.name, ', ' ORDER BY o.name) FILTER (WHERE o.seconds > 300 AND NOT o.paused)
         || ': is a relay or a worker running that serves them, and does it keep up?'
  FROM (SELECT t.name, t.paused_at IS NOT NULL AS paused,
               round(extract(epoch FROM greatest(clock_timestamp() - f.available_at, interval '0')), 3) AS seconds
          FROM destinations t CROSS JOIN LATERAL (
            SELECT min(x.available_at) AS available_at FROM (
              (SELECT d.available_at FROM deliveries d WHERE d.destination_id = t.id AND d.stream_id IS NULL
                ORDER BY d.available_at, d.message_id LIMIT 1)
              UNION ALL
              (SELECT l.available_at FROM lanes l WHERE l.destination_id = t.id AND l.available_at IS NOT NULL AND l.blocked_by IS NULL
                ORDER BY l.available_at, l.stream_id LIMIT 1)) x) f) o
UNION ALL
SELECT 'endpoints', count(*), 'webhook endpoints of the database', NULL FROM endpoints WHERE removed_at IS NULL
UNION ALL
SELECT 'endpoints_disabled', count(*), 'those of them that are disabled, and whose deliveries wait', NULL
  FROM endpoints e JOIN destinations d ON d.id = e.destination_id WHERE e.removed_at IS NULL AND d.paused_at IS NOT NULL
UNION ALL
SELECT 'relay_problems', count(p.problem), 'what relays that are alive cannot do (alarm above 0)',
       string_agg(format('relay %s: %s', r.name, p.problem), '; ' ORDER BY r.name, p.problem)
  FROM relays r CROSS JOIN unnest(r.problems) p(problem) WHERE r.heartbeat_at > clock_timestamp() - interval '1 minute'
UNION ALL
SELECT 'unexported_heads', coalesce(max((SELECT coalesce(max(number), 0) FROM seals) - e.number), 0),
       'heads of the audit''s seals that a place outside the database has not got yet (alarm while one cannot be reached)',
       'heads of the audit''s seals do not get to '
         || string_agg(format('%s (since %s: %s)', e.sink, to_char(e.failed_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI"Z"'), e.error), '; ' ORDER BY e.sink)
  FROM seal_exports e WHERE e.error IS NOT NULL AND e.tried_at > clock_timestamp() - interval '1 hour'
UNION ALL
SELECT 'average_delivery_ms',
       (SELECT round(avg(extract(epoch FROM r.ended_at - id_time(r.message_id)) * 1000), 1)
          FROM (SELECT a.message_id, a.ended_at FROM attempts a
                 WHERE a.message_id >= id_at(statement_timestamp() - interval '5 minutes') AND a.state = 'dispatched'
                 ORDER BY a.message_id DESC LIMIT 10000) r),
       'milliseconds from creation to delivery, over the last 5 minutes (at most the last 10000 messages)', NULL
UNION ALL
SELECT 'partition_days_ahead', p.days, 'days from today for which partitions exist (alarm below 30)',
       CASE WHEN p.days < 30 THEN format('partitions exist for %s days ahead: run waybill maintain, or find out why no relay makes them', p.days) END
  FROM (SELECT partition_days_ahead() AS days) p;
