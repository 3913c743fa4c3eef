-- Hooks: functions that the core finds by their name, so that each stands in the folder of the feature that adds it:
--
--   rights_of_NAME        who may call its functions, as TABLE (roles text[], functions text[])
--   tables_of_NAME        its tables, as text[]
--   checks_of_NAME        its lines of health_check, as TABLE (name text, ok boolean, detail text)
--   routes_of_NAME        prepares or refuses routes that an owner declares (reconcile_definitions)
--   applied_of_NAME       applies what waybill apply declares beside destinations and routes (apply_definitions)
--   removal_of_NAME       removes what belongs to a retired application (remove_application)
--   explanations_of_NAME  explains why a message has no destination (explain)
--   replayed_of_NAME      is called after these messages were replayed to this destination (bring_back)
--
-- No hook is called while messages are enqueued, claimed or settled.

-- The hooks of one kind, such as rights. Only functions with the owner of this one count, not those that another login
-- has added to the schema.
CREATE OR REPLACE FUNCTION hooks(p_kind text) RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT format('%I.%I', current_schema(), p.proname)
    FROM pg_proc p
    JOIN pg_proc own ON own.oid = 'hooks'::regproc
   WHERE p.pronamespace = own.pronamespace
     AND p.proowner = own.proowner
     AND starts_with(p.proname, p_kind || '_of_')
   ORDER BY p.proname
$$;
