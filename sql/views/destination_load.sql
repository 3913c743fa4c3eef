-- The load of each destination: pending, retrying, dead and stuck deliveries. Endpoints without any are left out.
-- Metrics and alerts both use it, so they cannot differ. Above 10,000 at a destination, counts are estimates. relays:
-- the living relays that serve it. waits: it has pending deliveries. urgent: one of urgent_destinations; a reader of
-- those only does not visit the others.
CREATE OR REPLACE VIEW destination_load WITH (security_invoker = true) AS
SELECT t.id AS destination_id, t.name, t.origin, t.paused_at IS NOT NULL AS paused,
       EXISTS (
         SELECT FROM relays r
          WHERE r.breakers ? t.name
            AND r.heartbeat_at > clock_timestamp() - interval '1 minute') AS breaker_open,
       (SELECT count(*)
          FROM relays r
         WHERE (t.name = ANY (r.destinations) OR (r.endpoints AND t.kind = 'endpoint'))
           AND r.heartbeat_at > clock_timestamp() - interval '1 minute') AS relays,
       CASE WHEN x.waits THEN count_waiting(t.id) ELSE 0 END AS pending,
       CASE WHEN x.waits THEN count_retrying(t.id) ELSE 0 END AS retrying,
       CASE WHEN x.waits THEN
         round(extract(epoch FROM greatest(clock_timestamp() - oldest_due_at(t.id), interval '0')), 3)
       END AS oldest_due_seconds,
       count_dead(t.id) AS dead,
       (SELECT coalesce(sum(l.remaining), 0)
          FROM leases l
         WHERE l.destination_id = t.id
           AND l.expires_at < clock_timestamp() - interval '1 minute') AS stuck,
       CASE WHEN x.waits THEN count_misdated(t.id) ELSE 0 END AS misdated,
       x.waits, x.urgent
  -- a reader of urgent ones only: the planner leaves the other parts out
  FROM (SELECT u.id, true AS waits, true AS urgent
          FROM urgent_destinations() u(id)
        UNION ALL
        SELECT w.id, true, false
          FROM waiting_destinations() w(id)
         WHERE w.id NOT IN (SELECT urgent_destinations())
        UNION ALL
        SELECT l.id, false, false
          FROM loaded_destinations() l(id)
         WHERE l.id NOT IN (SELECT waiting_destinations())
           AND l.id NOT IN (SELECT urgent_destinations())) x
 CROSS JOIN LATERAL (
        SELECT d.id, d.name, d.kind, d.origin, d.paused_at
          FROM destinations d
         WHERE d.id = x.id
        OFFSET 0) t;
