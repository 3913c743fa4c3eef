-- Hooks of keys: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of keys.
CREATE OR REPLACE FUNCTION rights_of_keys() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{maintenance}'::text[], '{forget_keys,forget_lanes}'::text[])
$$;
