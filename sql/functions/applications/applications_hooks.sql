-- Hooks of applications: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of applications.
CREATE OR REPLACE FUNCTION rights_of_applications() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{relay}'::text[], '{sync_definitions,route_earlier,confirm_declaration,tend_definitions,'
                        'apply_definitions,declare_applied,applied_id,remove_application,define_route,'
                        'remove_route}'::text[]),
    ('{control,auditor}', '{shown_routes}')
$$;
