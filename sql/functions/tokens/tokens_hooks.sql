-- Hooks of tokens: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of tokens.
CREATE OR REPLACE FUNCTION rights_of_tokens() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{control}'::text[], '{find_access,begin_session,end_session}'::text[]),
    ('{operator}', '{add_tenant_token}')
$$;

-- The tables of tokens.
CREATE OR REPLACE FUNCTION tables_of_tokens() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{tokens,sessions}'::text[]
$$;
