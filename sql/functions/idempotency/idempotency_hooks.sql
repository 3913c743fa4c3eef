-- Hooks of idempotency keys: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of idempotency keys.
CREATE OR REPLACE FUNCTION rights_of_idempotency() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES ('{operator}'::text[], '{begin_request,keep_answer}'::text[])
$$;

-- The tables of idempotency keys.
CREATE OR REPLACE FUNCTION tables_of_idempotency() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{kept_answers}'::text[]
$$;
