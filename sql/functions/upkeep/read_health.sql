-- The health view with a cached plan, for callers that read it often.
CREATE OR REPLACE FUNCTION read_health() RETURNS TABLE (metric text, value numeric, description text, alarm text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET plan_cache_mode = force_generic_plan SET jit = off
AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT h.metric, h.value, h.description, h.alarm FROM health h;
END $$;
