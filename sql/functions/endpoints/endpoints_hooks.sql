-- Hooks of endpoints: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of endpoints.
CREATE OR REPLACE FUNCTION rights_of_endpoints() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{relay}'::text[], '{endpoint_changes,read_endpoints,sync_endpoint_settings}'::text[]),
    ('{operator}', '{add_endpoint,change_endpoint,rotate_endpoint,retire_endpoint_secrets,'
                   'set_endpoint_enabled,recover_endpoint,remove_endpoint,read_endpoints,reseal_endpoint,send_test}'),
    ('{maintenance}', '{prune_endpoints}')
$$;

-- Explains a message that has no delivery because of filters: names each endpoint whose filter refuses it.
CREATE OR REPLACE FUNCTION explanations_of_endpoints(p_message_id uuid)
RETURNS TABLE (destination text, status text, reason text, sentence text, remedy text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT d.name, 'filtered', 'filtered_out',
         format('The filter of the endpoint %s does not want its payload.', d.name), NULL
    FROM messages m
   CROSS JOIN LATERAL targets_of(m.topic, m.namespace, m.tenant_id) t
    JOIN destinations d ON d.id = t.destination_id
   WHERE m.id = p_message_id
     AND NOT is_wanted(m.payload, t.filter)
     AND NOT EXISTS (SELECT FROM unrouted_messages u WHERE u.message_id = p_message_id)
$$;

-- The tables of endpoints.
CREATE OR REPLACE FUNCTION tables_of_endpoints() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{endpoints,endpoint_failures,endpoint_settings}'::text[]
$$;
