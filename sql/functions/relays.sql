-- A relay shows itself: who it is, what it serves, with which configuration, that it is
-- alive, and what it cannot do at present.
-- Returns the names of living relays that run with another configuration.
CREATE OR REPLACE FUNCTION heartbeat(
  p_relay_id uuid, p_name text, p_version text, p_configuration text, p_destinations text[],
  p_problems text[] DEFAULT '{}') RETURNS text[]
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  INSERT INTO relays AS r (id, name, version, configuration, destinations, problems, started_at, heartbeat_at)
  VALUES (p_relay_id, p_name, p_version, p_configuration, p_destinations, p_problems, clock_timestamp(), clock_timestamp())
  ON CONFLICT (id) DO UPDATE SET heartbeat_at = excluded.heartbeat_at, problems = excluded.problems;
  DELETE FROM relays WHERE ctid = ANY (ARRAY (
    SELECT ctid FROM relays WHERE heartbeat_at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED));
  RETURN ARRAY (
    SELECT name FROM relays
     WHERE id <> p_relay_id AND configuration <> p_configuration
       AND heartbeat_at > clock_timestamp() - interval '1 minute'
     ORDER BY name);
END $$;

CREATE OR REPLACE FUNCTION sign_off(p_relay_id uuid) RETURNS void
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  DELETE FROM doorbells WHERE relay_id = p_relay_id;
  DELETE FROM relays WHERE id = p_relay_id;
$$;
