-- A relay shows itself: who it is, what it serves, with which configuration, how its breakers are, what it cannot
-- do at present, and that it is alive. Answers the names of living relays that run with another configuration, and how many living relays serve
-- each of its destinations, itself included: a rate limit is shared among them. One that has missed three
-- heartbeats is not living; one that was not told to stop may still be sending what it holds. One that is too old for
-- this schema is refused.
CREATE OR REPLACE FUNCTION heartbeat(
  p_relay_id uuid, p_name text, p_version text, p_configuration text, p_destinations text[], p_breakers jsonb DEFAULT '{}',
  p_problems text[] DEFAULT '{}', OUT others text[], OUT serving jsonb)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM refuse_old_relay(p_version);
  INSERT INTO relays AS r (id, name, version, configuration, destinations, started_at, heartbeat_at, breakers, problems)
  VALUES (p_relay_id, p_name, p_version, p_configuration, p_destinations, clock_timestamp(), clock_timestamp(), p_breakers, p_problems)
  ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at,
    -- a long list that is the same is not written again
    destinations = CASE WHEN r.destinations = excluded.destinations THEN r.destinations ELSE excluded.destinations END,
    breakers = excluded.breakers, problems = excluded.problems;
  DELETE FROM relays WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM relays WHERE heartbeat_at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED));
  others := ARRAY (
    SELECT name FROM relays
     WHERE id <> p_relay_id AND configuration <> p_configuration
       AND heartbeat_at > clock_timestamp() - interval '1 minute'
     ORDER BY name);
  SELECT coalesce(jsonb_object_agg(d.name, (SELECT count(*) FROM relays r
           WHERE d.name = ANY (r.destinations) AND (r.id = p_relay_id OR r.heartbeat_at > clock_timestamp() - interval '15 seconds'))), '{}')
    INTO serving FROM (SELECT DISTINCT unnest(p_destinations)) d(name);
END $$;

-- The destinations that wait at a relay for their rate limit, which is used up; told when that changes.
CREATE OR REPLACE FUNCTION tell_limits(p_relay_id uuid, p_limited text[]) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  UPDATE relays SET limited = p_limited WHERE id = p_relay_id
$$;

CREATE OR REPLACE FUNCTION sign_off(p_relay_id uuid) RETURNS void
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
  DELETE FROM doorbells WHERE relay_id = p_relay_id;
  DELETE FROM relays WHERE id = p_relay_id;
$$;
