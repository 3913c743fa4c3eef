-- The load of each destination: pending, retrying, dead and stuck deliveries. Endpoints without any are left out.
-- Metrics and alerts both use it, so they cannot differ. Above 10,000 at a destination, counts are estimates. relays:
-- the living relays that serve it.
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
       count_waiting(t.id) AS pending, count_retrying(t.id) AS retrying,
       round(extract(epoch FROM greatest(clock_timestamp() - oldest_due_at(t.id), interval '0')), 3)
         AS oldest_due_seconds,
       count_dead(t.id) AS dead,
       (SELECT coalesce(sum(l.remaining), 0)
          FROM leases l
         WHERE l.destination_id = t.id
           AND l.expires_at < clock_timestamp() - interval '1 minute') AS stuck,
       count_misdated(t.id) AS misdated
  FROM loaded_destinations() x(id)
  JOIN destinations t ON t.id = x.id;
