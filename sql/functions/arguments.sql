-- Arguments are checked where they enter: one that cannot be used is refused with its name, its value and
-- what is allowed. Null never is: whom it serves asks before.

-- The number, if it is in the range.
CREATE OR REPLACE FUNCTION checked_number(p_argument text, p_value bigint, p_lowest bigint, p_highest bigint) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
  IF p_value BETWEEN p_lowest AND p_highest THEN RETURN p_value; END IF;
  RAISE EXCEPTION USING ERRCODE = '22023',
    MESSAGE = format('%s is %s: give a whole number from %s to %s', p_argument, coalesce(p_value::text, 'null'), p_lowest, p_highest);
END $$;

-- The interval in milliseconds, if it is in the range.
CREATE OR REPLACE FUNCTION checked_interval(p_argument text, p_value interval, p_lowest interval, p_highest interval) RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
  IF p_value BETWEEN p_lowest AND p_highest THEN RETURN extract(epoch FROM p_value) * 1000; END IF;
  RAISE EXCEPTION USING ERRCODE = '22023',
    MESSAGE = format('%s is %s: give an interval from %s to %s', p_argument, coalesce(p_value::text, 'null'), p_lowest, p_highest);
END $$;

-- Says that there is nothing of this name, and what there is instead: P0002, so that callers can tell it from
-- other refusals.
CREATE OR REPLACE FUNCTION refuse_unknown(p_what text, p_name text, p_known text[]) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'P0002',
    MESSAGE = format('%s %s does not exist', p_what, coalesce('"' || left(p_name, 60) || '"', 'null')),
    HINT = format('Known %ss: %s', p_what, coalesce(nullif(array_to_string(p_known, ', '), ''), 'none'));
END $$;
