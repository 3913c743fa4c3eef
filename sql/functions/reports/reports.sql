-- Reading the reports: a period is put together from the longest slices that fit, so a report reads a bounded number of
-- rows, whatever the number of messages: at most 31 days, 46 hours and ten or so slices of 10 minutes in a month.

-- The slices of a period, in the order of time. The period is extended to whole slices: to 10 minutes within the last
-- two days, to hours within the last 32 days, to days in UTC before that. complete_to: everything before it is counted.
CREATE OR REPLACE FUNCTION report_slices(p_what text, p_from timestamptz, p_to timestamptz)
RETURNS TABLE (step int, since timestamptz, until timestamptz, complete_to timestamptz)
LANGUAGE plpgsql STABLE SECURITY DEFINER ROWS 5
SET search_path FROM CURRENT
AS $$
DECLARE
  v_done      report_progress;
  v_unit      interval;
  v_from      timestamptz;
  v_to        timestamptz;
  v_hour_from timestamptz;
  v_hour_to   timestamptz;
  v_day_from  timestamptz;
  v_day_to    timestamptz;
BEGIN
  SELECT * INTO STRICT v_done FROM report_progress p WHERE p.what = p_what;
  v_unit := CASE
    WHEN p_from >= v_done.hours_to - interval '2 days' THEN interval '10 minutes'
    WHEN p_from >= v_done.hours_to - interval '32 days' THEN interval '1 hour'
    ELSE interval '1 day'
  END;
  v_from := date_bin(v_unit, p_from, 'epoch');
  -- the end is extended in the same way, so that the slices of the end exist
  v_unit := CASE
    WHEN p_to >= v_done.hours_to - interval '2 days' THEN interval '10 minutes'
    WHEN p_to >= v_done.hours_to - interval '32 days' THEN interval '1 hour'
    ELSE interval '1 day'
  END;
  v_to := date_bin(v_unit, p_to, 'epoch');
  IF v_to < p_to THEN v_to := v_to + v_unit; END IF;
  v_hour_from := date_bin('1 hour', v_from + interval '1 hour' - interval '1 microsecond', 'epoch');
  v_hour_to := least(date_bin('1 hour', v_to, 'epoch'), v_done.hours_to);
  v_day_from := date_bin('1 day', v_from + interval '1 day' - interval '1 microsecond', 'epoch');
  v_day_to := least(date_bin('1 day', v_to, 'epoch'), v_done.days_to);
  IF v_hour_from >= v_hour_to THEN
    v_hour_from := v_to;
    v_hour_to := v_to;
  END IF;
  IF v_day_from >= v_day_to THEN
    v_day_from := v_hour_to;
    v_day_to := v_hour_to;
  END IF;
  RETURN QUERY
    SELECT x.step, x.since, x.until, v_done.counted_to
      FROM (VALUES
             (600, v_from, v_hour_from),
             (3600, v_hour_from, v_day_from),
             (86400, v_day_from, v_day_to),
             (3600, v_day_to, v_hour_to),
             (600, v_hour_to, v_to)) x(step, since, until)
     WHERE x.since < x.until
     ORDER BY x.since;
END $$;

-- The counts of a period (from report_slices) by topic, tenant or destination: the 1,000 largest names, and the rest
-- with the name null. p_name: only this one. A destination has its name; one that was removed has # and its number.
CREATE OR REPLACE FUNCTION report_rows(p_kind text, p_from timestamptz, p_to timestamptz, p_name text DEFAULT NULL)
RETURNS TABLE (name text, count bigint, delivered bigint, failed bigint, dead bigint, histogram text)
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT SET jit = off SET plan_cache_mode = force_custom_plan
SET work_mem = '32MB'
AS $$
#variable_conflict use_column
DECLARE
  v_name text := p_name;
BEGIN
  IF p_kind = 'destination' AND p_name IS NOT NULL THEN v_name := (find_destination(p_name)).id::text; END IF;
  RETURN QUERY
    WITH ranges AS MATERIALIZED (
      SELECT s.step, s.since, s.until
        FROM report_slices(CASE p_kind WHEN 'destination' THEN 'attempts' ELSE 'messages' END, p_from, p_to) s),
    -- First the names alone: there may be many more than are shown, and their histograms would be summed for nothing.
    -- LATERAL with OFFSET reads one range of the index for each length of slices; a join would read the whole table.
    largest AS MATERIALIZED (
      SELECT r.name
        FROM ranges s
       CROSS JOIN LATERAL (
              SELECT c.name, c.count
                FROM report_counts c
               WHERE c.kind = p_kind
                 AND c.step = s.step
                 AND c.slice >= s.since
                 AND c.slice < s.until
                 AND (v_name IS NULL OR c.name = v_name)
              OFFSET 0) r
       WHERE r.name IS NOT NULL
       GROUP BY r.name
       ORDER BY sum(r.count) DESC, r.name
       LIMIT 1000),
    kept AS (
      SELECT l.name AS kept_name, sum(r.count)::bigint AS count, sum(r.delivered)::bigint AS delivered,
             sum(r.failed)::bigint AS failed, sum(r.dead)::bigint AS dead, sum(r.histogram)::text AS histogram
        FROM ranges s
       CROSS JOIN LATERAL (
              SELECT c.*
                FROM report_counts c
               WHERE c.kind = p_kind
                 AND c.step = s.step
                 AND c.slice >= s.since
                 AND c.slice < s.until
                 AND (v_name IS NULL OR c.name = v_name)
              OFFSET 0) r
        LEFT JOIN largest l ON l.name = r.name
       GROUP BY l.name)
    SELECT CASE
             WHEN p_kind = 'destination' AND k.kept_name IS NOT NULL THEN coalesce(d.name, '#' || k.kept_name)
             ELSE k.kept_name
           END,
           k.count, k.delivered, k.failed, k.dead, k.histogram
      FROM kept k
      LEFT JOIN destinations d ON d.id = CASE WHEN p_kind = 'destination' THEN k.kept_name::int END;
END $$;
