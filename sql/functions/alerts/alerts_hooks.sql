-- Hooks of alerts: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of alerts.
CREATE OR REPLACE FUNCTION rights_of_alerts() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{relay}'::text[], '{sync_alert_thresholds,take_alerts,note_notification}'::text[]),
    ('{control,auditor}', '{alerts,alerts_of}')
$$;

-- The tables of alerts.
CREATE OR REPLACE FUNCTION tables_of_alerts() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{alert_thresholds,alert_states}'::text[]
$$;
