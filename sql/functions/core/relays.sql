-- Relays: each one records itself with its heartbeats, learns of the others, and signs off when it stops.

-- Heartbeat: records that a relay is living, with its name, destinations, configuration, breakers and current problems.
-- others: the relays of its application that run with another configuration and were heard from in the last minute.
-- serving: how many relays that were heard from in the last 15 seconds (three heartbeats) serve each of its
-- destinations, itself included; they share the rate limit. serving_endpoints: how many of them serve the endpoints. A
-- relay that was not heard from may still send what it holds. A relay that is too old for this schema is refused.
CREATE OR REPLACE FUNCTION heartbeat(
  p_relay_id            uuid,
  p_name                text,
  p_version             text,
  p_configuration       text,
  p_destinations        text[],
  p_breakers            jsonb DEFAULT '{}',
  p_problems            text[] DEFAULT '{}',
  p_application         text DEFAULT 'default',
  p_application_version text DEFAULT NULL,
  p_endpoints           boolean DEFAULT false,
  OUT others            text[],
  OUT serving           jsonb,
  OUT serving_endpoints int)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  PERFORM refuse_old_relay(p_version);
  INSERT INTO relays AS r (id, name, version, application, application_version, configuration, destinations,
                           endpoints, started_at, heartbeat_at, breakers, problems)
  VALUES (p_relay_id, p_name, p_version, p_application, p_application_version, p_configuration, p_destinations,
          p_endpoints, clock_timestamp(), clock_timestamp(), p_breakers, p_problems)
  ON CONFLICT (id) DO UPDATE
     SET heartbeat_at = excluded.heartbeat_at,
         -- keeps the stored value if the list is the same, so that a long list is not written again
         destinations = CASE
           WHEN r.destinations = excluded.destinations THEN r.destinations
           ELSE excluded.destinations
         END,
         breakers = excluded.breakers,
         problems = excluded.problems;
  DELETE FROM relays
   WHERE ctid = ANY (ARRAY (
           SELECT ctid
             FROM relays
            WHERE heartbeat_at < clock_timestamp() - interval '1 day'
              FOR UPDATE SKIP LOCKED));
  -- A heartbeat in the future was written before the clock was set back. That relay may be gone: from now on it has the
  -- usual time to send another.
  UPDATE relays
     SET heartbeat_at = clock_timestamp()
   WHERE heartbeat_at > clock_timestamp() + clock_tolerance();
  others := ARRAY (
    SELECT name
      FROM relays
     WHERE id <> p_relay_id
       AND application = p_application
       AND configuration <> p_configuration
       AND heartbeat_at > clock_timestamp() - interval '1 minute'
     ORDER BY name);
  SELECT coalesce(jsonb_object_agg(d.name, (
           SELECT count(*)
             FROM relays r
            WHERE d.name = ANY (r.destinations)
              AND (r.id = p_relay_id OR r.heartbeat_at > clock_timestamp() - interval '15 seconds'))), '{}')
    INTO serving
    FROM (SELECT DISTINCT unnest(p_destinations)) d(name);
  SELECT count(*)
    INTO serving_endpoints
    FROM relays r
   WHERE r.endpoints
     AND (r.id = p_relay_id OR r.heartbeat_at > clock_timestamp() - interval '15 seconds');
END $$;

-- Records the destinations whose rate limit is used up at this relay. The relay calls it when the list changes.
CREATE OR REPLACE FUNCTION tell_limits(p_relay_id uuid, p_limited text[])
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  UPDATE relays SET limited = p_limited WHERE id = p_relay_id
$$;

-- Removes a relay that has stopped, or whose start has failed.
CREATE OR REPLACE FUNCTION sign_off(p_relay_id uuid)
RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
  DELETE FROM listeners WHERE relay_id = p_relay_id;
  DELETE FROM relays WHERE id = p_relay_id;
  UPDATE declarations SET signed_off = true WHERE relay_id = p_relay_id;
$$;
