-- Hooks of replays: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of replays.
CREATE OR REPLACE FUNCTION rights_of_replays() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{operator}'::text[], '{plan_replay,start_replay,replay_step,resume_replay,cancel_replay}'::text[])
$$;

-- The tables of replays.
CREATE OR REPLACE FUNCTION tables_of_replays() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{replays}'::text[]
$$;
