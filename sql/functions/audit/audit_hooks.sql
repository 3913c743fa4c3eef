-- Hooks of the audit: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of the audit.
CREATE OR REPLACE FUNCTION rights_of_audit() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{relay}'::text[], '{seal_attempts,seal_actions,export_state,heads_after,note_export}'::text[]),
    ('{maintenance}', '{seal_expiry}'),
    ('{control,auditor}', '{heads_after}')
$$;

-- The tables of the audit.
CREATE OR REPLACE FUNCTION tables_of_audit() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{operator_actions,seals,seal_leaves,seal_days,seal_exports}'::text[]
$$;
