-- Filters of endpoints: which payloads an endpoint wants. A filter is a JSON object of fields and conditions, without
-- code: {"type": "invoice", "amount": {"gte": 100}, "customer.country": {"in": ["DE", "FR"]}}. All conditions must
-- hold. It is checked when it is set, and stored as a jsonpath (destinations.filter), which enqueue evaluates. A
-- jsonpath raises no error for any payload, so a filter cannot keep a message from being enqueued.

-- Shortens a value for an error message.
CREATE OR REPLACE FUNCTION shown_value(p_value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT coalesce(left(p_value::text, 60), 'null')
$$;

-- Validates one operator of a filter: returns the problem, or null.
CREATE OR REPLACE FUNCTION filter_operator_problem(p_field text, p_operator text, p_value jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT CASE
    WHEN p_operator NOT IN ('in', 'exists', 'prefix', 'gt', 'gte', 'lt', 'lte') THEN
      format('filter.%s.%s is not an operator: use in, exists, prefix, gt, gte, lt, lte', p_field, left(p_operator, 60))
    WHEN p_operator = 'in'
         AND (jsonb_typeof(p_value) <> 'array'
              OR jsonb_array_length(CASE jsonb_typeof(p_value) WHEN 'array' THEN p_value ELSE '[]' END)
                 NOT BETWEEN 1 AND 100
              OR jsonb_path_exists(p_value, 'strict $[*] ? (@.type() == "object" || @.type() == "array")')) THEN
      format('filter.%s.in is %s: give a list of 1 to 100 texts, numbers, true, false or null', p_field,
             shown_value(p_value))
    WHEN p_operator = 'exists' AND jsonb_typeof(p_value) <> 'boolean' THEN
      format('filter.%s.exists is %s: give true or false', p_field, shown_value(p_value))
    WHEN p_operator = 'prefix' AND (jsonb_typeof(p_value) <> 'string' OR p_value = '""') THEN
      format('filter.%s.prefix is %s: give a text', p_field, shown_value(p_value))
    WHEN p_operator IN ('gt', 'gte', 'lt', 'lte') AND jsonb_typeof(p_value) NOT IN ('number', 'string') THEN
      format('filter.%s.%s is %s: give a number or a text', p_field, p_operator, shown_value(p_value))
  END
$$;

-- Validates a filter: returns the first problem, or null. Keep it in step with src/features/endpoints/filter.ts, which
-- checks the same rules before the database is called.
CREATE OR REPLACE FUNCTION filter_problem(p_filter jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN p_filter IS NULL THEN NULL
    WHEN jsonb_typeof(p_filter) <> 'object' OR p_filter = '{}' THEN
      format('filter is %s: give an object such as {"type": "invoice", "amount": {"gte": 100}}', shown_value(p_filter))
    WHEN octet_length(p_filter::text) > 4096 THEN
      format('filter has %s bytes: give at most 4096', octet_length(p_filter::text))
    WHEN (SELECT count(*) FROM jsonb_object_keys(p_filter)) > 20 THEN
      format('filter has %s fields: give at most 20', (SELECT count(*) FROM jsonb_object_keys(p_filter)))
    ELSE (
      SELECT x.problem
        FROM (SELECT f.field, CASE
                       WHEN octet_length(f.field) > 255 OR f.field !~ '^[^.]+(\.[^.]+){0,9}$' THEN
                         format('filter has the field "%s": give 1 to 10 names joined by dots, at most 255 bytes',
                                left(f.field, 60))
                       WHEN jsonb_typeof(f.value) = 'array' OR f.value = '{}' THEN
                         format('filter.%s is %s: give a text, a number, true, false, null, '
                                'or an object of in, exists, prefix, gt, gte, lt, lte', f.field, shown_value(f.value))
                       WHEN jsonb_typeof(f.value) = 'object' THEN (
                         SELECT filter_operator_problem(f.field, o.operator, o.operand)
                           FROM jsonb_each(f.value) o(operator, operand)
                          WHERE filter_operator_problem(f.field, o.operator, o.operand) IS NOT NULL
                          LIMIT 1)
                     END AS problem
                FROM jsonb_each(p_filter) f(field, value)) x
       WHERE x.problem IS NOT NULL
       ORDER BY x.field
       LIMIT 1)
  END
$$;

-- The jsonpath of a valid filter. Values are written as JSON, which is also valid in a jsonpath. A jsonpath is lax: of
-- a list in the payload, one element that matches is enough.
CREATE OR REPLACE FUNCTION filter_path(p_filter jsonb) RETURNS text
LANGUAGE sql IMMUTABLE
SET search_path FROM CURRENT
AS $$
  SELECT '$ ? (' || string_agg(CASE c.operator
           WHEN 'eq' THEN format('%s == %s', c.path, c.operand)
           WHEN 'in' THEN (
             SELECT '(' || string_agg(format('%s == %s', c.path, v), ' || ') || ')'
               FROM jsonb_array_elements(c.operand) v)
           WHEN 'exists' THEN CASE c.operand WHEN 'true' THEN '' ELSE '!' END || format('(exists (%s))', c.path)
           WHEN 'prefix' THEN format('%s starts with %s', c.path, c.operand)
           WHEN 'gt' THEN format('%s > %s', c.path, c.operand)
           WHEN 'gte' THEN format('%s >= %s', c.path, c.operand)
           WHEN 'lt' THEN format('%s < %s', c.path, c.operand)
           WHEN 'lte' THEN format('%s <= %s', c.path, c.operand)
         END, ' && ' ORDER BY c.field, c.operator) || ')'
    FROM (SELECT f.field, o.operator, o.operand,
                 '@' || (SELECT string_agg('.' || to_json(n)::text, '' ORDER BY place)
                           FROM string_to_table(f.field, '.') WITH ORDINALITY n(n, place)) AS path
            FROM jsonb_each(p_filter) f(field, value)
           CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(f.value)
                   WHEN 'object' THEN f.value
                   ELSE jsonb_build_object('eq', f.value)
                 END) o(operator, operand)) c
$$;
