-- Argument checks: refuse a bad argument with its name, its value and the allowed range. They refuse null too: a caller
-- for which null is allowed checks that first.

-- Returns the number if it is in the range.
CREATE OR REPLACE FUNCTION checked_number(p_argument text, p_value bigint, p_lowest bigint, p_highest bigint)
RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
  IF p_value BETWEEN p_lowest AND p_highest THEN RETURN p_value; END IF;
  RAISE EXCEPTION USING ERRCODE = '22023',
    MESSAGE = format('%s is %s: give a whole number from %s to %s',
                     p_argument, coalesce(p_value::text, 'null'), p_lowest, p_highest);
END $$;

-- Returns the interval in milliseconds if it is in the range.
CREATE OR REPLACE FUNCTION checked_interval(p_argument text, p_value interval, p_lowest interval, p_highest interval)
RETURNS bigint
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
  IF p_value BETWEEN p_lowest AND p_highest THEN RETURN extract(epoch FROM p_value) * 1000; END IF;
  RAISE EXCEPTION USING ERRCODE = '22023',
    MESSAGE = format('%s is %s: give an interval from %s to %s',
                     p_argument, coalesce(p_value::text, 'null'), p_lowest, p_highest);
END $$;

-- Raises an error for an unknown name, with the known names as a hint. Its code is P0002, so that callers can tell it
-- from other errors.
CREATE OR REPLACE FUNCTION refuse_unknown(p_what text, p_name text, p_known text[])
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'P0002',
    MESSAGE = format('%s %s does not exist', p_what, coalesce('"' || left(p_name, 60) || '"', 'null')),
    HINT = format('Known %ss: %s', p_what, coalesce(nullif(array_to_string(p_known, ', '), ''), 'none'));
END $$;

-- Cuts a text to p_most characters and marks the cut, as relays do (cleanText in src/core/outcome.ts).
CREATE OR REPLACE FUNCTION short_text(p_text text, p_most int)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
  SELECT CASE WHEN length(p_text) > p_most THEN left(p_text, p_most - 1) || '…' ELSE p_text END
$$;
