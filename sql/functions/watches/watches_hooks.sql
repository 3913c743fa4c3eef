-- Hooks of watches: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of watches.
CREATE OR REPLACE FUNCTION rights_of_watches() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{relay}'::text[], '{sync_watches,reconcile_watches,mend_watches,tend_watches,owns_watches,named_table,'
                          'applied_of_watches}'::text[]),
    ('{control,auditor}', '{watch_problem}')
$$;

-- The tables of watches.
CREATE OR REPLACE FUNCTION tables_of_watches() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{watches}'::text[]
$$;

-- A line of the health check: whether every watch sees every change.
CREATE OR REPLACE FUNCTION checks_of_watches() RETURNS TABLE (name text, ok boolean, detail text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT 'watches', count(w.problem) = 0,
         coalesce(string_agg(format('%s (%s): %s', w.watched, w.topic, w.problem), '; ')
                    FILTER (WHERE w.problem IS NOT NULL),
                  format('all %s see every change', count(*)))
    FROM watch_status w
$$;

-- Declares the watches of waybill apply, if its configuration has any.
CREATE OR REPLACE FUNCTION applied_of_watches(p_beside jsonb, p_application text, p_prune boolean, p_dry_run boolean)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NOT p_beside ? 'watches' THEN RETURN '[]'; END IF;
  RETURN sync_watches(p_beside -> 'watches', p_application, applied_id(), p_prune, p_dry_run);
END $$;

-- Ends the watches of an application that is being removed. It is refused if only the owner of a table can end one.
CREATE OR REPLACE FUNCTION removal_of_watches(p_application text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_watch watches;
BEGIN
  UPDATE watches w
     SET owners = array_remove(w.owners, p_application)
   WHERE p_application = ANY (w.owners)
     AND w.owners <> ARRAY[p_application];
  FOR v_watch IN SELECT w.* FROM watches w WHERE w.owners = ARRAY[p_application] LOOP
    BEGIN
      PERFORM end_watch(v_watch);
    EXCEPTION WHEN insufficient_privilege THEN
      RAISE EXCEPTION USING ERRCODE = '42501',
        HINT = 'Nothing was removed.',
        MESSAGE = format('the application "%s" is not removed: only the owner of %s can end its watch "%s"; '
                         'end it as the owner first, with waybill unwatch %s --topic %s',
                         p_application, v_watch.table_name, v_watch.topic, v_watch.table_name, v_watch.topic);
    END;
  END LOOP;
END $$;
