-- Hooks of reports: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of reports.
CREATE OR REPLACE FUNCTION rights_of_reports() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{relay}'::text[], '{fill_reports}'::text[]),
    ('{maintenance}', '{prune_reports}'),
    ('{control,auditor}', '{report_slices,report_rows}')
$$;

-- The tables of reports.
CREATE OR REPLACE FUNCTION tables_of_reports() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{report_counts,report_progress}'::text[]
$$;
