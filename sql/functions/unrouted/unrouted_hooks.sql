-- Hooks of unrouted messages: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of unrouted messages.
CREATE OR REPLACE FUNCTION rights_of_unrouted() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{operator}'::text[], '{route_unrouted,unrouted_groups,discard_unrouted}'::text[]),
    ('{control,auditor}', '{unrouted_groups}')
$$;
