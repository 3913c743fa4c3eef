-- Hooks of endpoints: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of endpoints.
CREATE OR REPLACE FUNCTION rights_of_endpoints() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{relay}'::text[], '{endpoint_changes,read_endpoints,sync_endpoint_settings}'::text[]),
    ('{operator}', '{add_endpoint,change_endpoint,rotate_endpoint,retire_endpoint_secrets,'
                   'set_endpoint_enabled,remove_endpoint,read_endpoints,reseal_endpoint,send_test}'),
    ('{maintenance}', '{prune_endpoints}')
$$;

-- The tables of endpoints.
CREATE OR REPLACE FUNCTION tables_of_endpoints() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{endpoints,endpoint_settings}'::text[]
$$;
