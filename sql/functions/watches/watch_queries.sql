-- Queries of watches: build the SQL that turns changed rows into messages. Each is a template for format(): %1$I, %2$I,
-- … stand for the current names of the watch's columns, because a column may be renamed at any time. Messages keep the
-- name that the column had when the watch was made.
--
-- watch_messages is the query for any number of rows. watch_row is the one for a single row, which the trigger has as
-- an argument: it takes a third of the time to parse and to plan, which is most of the cost of a single row.

-- A literal in a template.
CREATE OR REPLACE FUNCTION watch_literal(p_value text) RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
  SELECT replace(quote_nullable(p_value), '%', '%%')
$$;

-- A column in a template. p_row: n. or o., for its name in the new or the old row; c or o, for c1, c2, … or o1, o2, ….
CREATE OR REPLACE FUNCTION watch_column(p_watch jsonb, p_row text, p_column text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  RETURN p_row || CASE
    WHEN p_row LIKE '%.' THEN '%' || (p_watch -> 'uses' ->> p_column) || '$I'
    ELSE p_watch -> 'uses' ->> p_column
  END;
END $$;

-- The SQL for a column as text. A type that did not come with PostgreSQL goes through its output function: a cast could
-- be a function of the table's owner, and would run with the rights of this schema's owner.
CREATE OR REPLACE FUNCTION watch_text(p_watch jsonb, p_row text, p_column text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN format(CASE WHEN p_watch -> 'foreignTypes' ? p_column THEN 'concat(%s)' ELSE '%s::text' END,
                watch_column(p_watch, p_row, p_column));
END $$;

-- The SQL for a column as a JSON value, by the same rule.
CREATE OR REPLACE FUNCTION watch_value(p_watch jsonb, p_row text, p_column text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN format(
    CASE
      WHEN p_watch -> 'foreignTypes' ? p_column THEN 'CASE num_nulls(%1$s) WHEN 0 THEN concat(%1$s) END'
      ELSE '%s'
    END,
    watch_column(p_watch, p_row, p_column));
END $$;

-- The SQL for the chosen columns as a JSON object, in several parts because a function takes at most a hundred
-- arguments.
CREATE OR REPLACE FUNCTION watch_record(p_watch jsonb, p_row text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT string_agg(format('jsonb_build_object(%s)', p.arguments), ' || ' ORDER BY p.part)
      FROM (SELECT (c.position - 1) / 50 AS part,
                   string_agg(format('%s, %s', watch_literal(c.name), watch_value(p_watch, p_row, c.name)), ', '
                              ORDER BY c.position) AS arguments
              FROM jsonb_array_elements_text(p_watch -> 'columns') WITH ORDINALITY c(name, position)
             GROUP BY 1) p);
END $$;

-- The SQL for the record id: the primary key as text, or a JSON array of its columns.
CREATE OR REPLACE FUNCTION watch_id(p_watch jsonb, p_row text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  IF jsonb_array_length(p_watch -> 'id') = 1 THEN
    RETURN watch_text(p_watch, p_row, p_watch -> 'id' ->> 0);
  END IF;
  RETURN (
    SELECT format('jsonb_build_array(%s)::text', string_agg(watch_value(p_watch, p_row, i.name), ', '))
      FROM jsonb_array_elements_text(p_watch -> 'id') i(name));
END $$;

-- The SQL for whether these columns differ in an old row o and a new row n. They are compared by their bytes (*<>),
-- which handles nulls and needs no operators of their types.
CREATE OR REPLACE FUNCTION watch_difference(p_watch jsonb, p_columns jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT format('ROW(%s)::record *<> ROW(%s)::record',
                  string_agg(watch_column(p_watch, 'o.', c.name), ', '),
                  string_agg(watch_column(p_watch, 'n.', c.name), ', '))
      FROM jsonb_array_elements_text(p_columns) c(name));
END $$;

-- The SQL for whether an update of a row o to a row n, with the same primary key, becomes a message.
CREATE OR REPLACE FUNCTION watch_condition(p_watch jsonb) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN CASE
    WHEN NOT p_watch ? 'changed' THEN 'false'
    WHEN p_watch ? 'when' THEN watch_difference(p_watch, p_watch -> 'when')
    ELSE 'ROW(o.*)::record *<> ROW(n.*)::record'
  END;
END $$;

-- The SQL for the rows that become messages, each with its event. Old and new rows are matched by primary key; if the
-- key has changed, the old record was deleted and a new one created. Columns are called c1, c2, …; old values o1, ….
CREATE OR REPLACE FUNCTION watch_rows(p_watch jsonb, p_operation text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_columns text;
  v_match   text;
BEGIN
  IF p_operation <> 'UPDATE' THEN
    SELECT string_agg(format('%s AS c%s', watch_column(p_watch, 'n.', u.key), u.value), ', ')
      INTO v_columns
      FROM jsonb_each_text(p_watch -> 'uses') u;
    RETURN format(CASE p_operation
      WHEN 'INSERT' THEN 'SELECT %s AS event, %s FROM new_rows n'
      ELSE 'SELECT %s AS event, %s FROM old_rows n'
    END, watch_literal(p_watch ->> CASE p_operation WHEN 'INSERT' THEN 'created' ELSE 'deleted' END), v_columns);
  END IF;
  SELECT string_agg(
           format('CASE WHEN %s IS NULL THEN %s ELSE %s END AS c%s',
                  'n.%1$I', watch_column(p_watch, 'o.', u.key), watch_column(p_watch, 'n.', u.key), u.value)
             || CASE
                  WHEN (p_watch -> 'oldValues')::boolean THEN
                    format(', %s AS o%s', watch_column(p_watch, 'o.', u.key), u.value)
                  ELSE ''
                END,
           ', ')
    INTO v_columns
    FROM jsonb_each_text(p_watch -> 'uses') u;
  SELECT string_agg(
           format('%s COLLATE "C" = %s COLLATE "C"',
                  watch_text(p_watch, 'o.', i.name), watch_text(p_watch, 'n.', i.name)),
           ' AND ')
    INTO v_match
    FROM jsonb_array_elements_text(p_watch -> 'id') i(name);
  RETURN format(
    $sql$SELECT CASE WHEN %1$s IS NULL THEN %3$s WHEN %2$s IS NULL THEN %4$s ELSE %5$s END AS event,
                %1$s IS NOT NULL AND %2$s IS NOT NULL AS changed, %6$s
           FROM old_rows o
           FULL JOIN new_rows n ON %7$s
          WHERE CASE WHEN %1$s IS NULL THEN %8$L WHEN %2$s IS NULL THEN %9$L ELSE %10$s END$sql$,
    'o.%1$I', 'n.%1$I', watch_literal(p_watch ->> 'created'), watch_literal(p_watch ->> 'deleted'),
    watch_literal(p_watch ->> 'changed'), v_columns, v_match, p_watch ? 'created', p_watch ? 'deleted',
    watch_condition(p_watch));
END $$;

-- The old values of the columns that changed.
CREATE OR REPLACE FUNCTION watch_old_values(p_old jsonb, p_new jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE
AS $$
  SELECT coalesce(jsonb_object_agg(o.key, o.value), '{}')
    FROM jsonb_each(p_old) o
   WHERE o.value IS DISTINCT FROM p_new -> o.key
$$;

-- The query for the messages of one statement. An empty tenant or key counts as none. An aggregate id that is too long
-- is left out.
CREATE OR REPLACE FUNCTION watch_messages(p_watch jsonb, p_operation text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_id  text := watch_id(p_watch, 'c');
  v_old text := '';
BEGIN
  IF p_operation = 'UPDATE' AND (p_watch -> 'oldValues')::boolean THEN
    v_old := format(
      $sql$ || CASE WHEN changed THEN jsonb_build_object('old', watch_old_values(%s, %s)) ELSE '{}' END$sql$,
      watch_record(p_watch, 'o'), watch_record(p_watch, 'c'));
  END IF;
  RETURN format(
    $sql$SELECT jsonb_build_object(
                  'topic', %s || event, 'namespace', %s, 'tenantId', %s, 'key', %s,
                  'aggregateType', CASE WHEN octet_length(%5$s) BETWEEN 1 AND 255 THEN %6$s END,
                  'aggregateId', CASE WHEN octet_length(%5$s) BETWEEN 1 AND 255 THEN %5$s END,
                  'payload', jsonb_build_object(
                    'table', $1, 'recordId', %7$s, 'event', event, 'record', %8$s)%9$s) AS message
           FROM (%10$s) r$sql$,
    watch_literal(p_watch ->> 'topic' || '.'), watch_literal(p_watch ->> 'namespace'),
    CASE
      WHEN p_watch ? 'tenant' THEN format('nullif(%s, '''')', watch_text(p_watch, 'c', p_watch ->> 'tenant'))
      ELSE 'NULL'
    END,
    CASE
      WHEN p_watch ? 'key' THEN format('nullif(%s, '''')', watch_text(p_watch, 'c', p_watch ->> 'key'))
      ELSE 'NULL'
    END,
    CASE WHEN p_watch ? 'aggregateId' THEN watch_text(p_watch, 'c', p_watch ->> 'aggregateId') ELSE v_id END,
    watch_literal(p_watch ->> 'aggregateType'), v_id, watch_record(p_watch, 'c'), v_old,
    watch_rows(p_watch, p_operation));
END $$;

-- The query for the fields of a single row's message, as watch_event reads them. moved: the primary key may be another
-- one. differs: the row becomes a message. Triggers keep this text: if its columns change, the watches must be made
-- again.
CREATE OR REPLACE FUNCTION watch_row(p_watch jsonb, p_operation text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_event text := p_watch ->> CASE p_operation
    WHEN 'INSERT' THEN 'created'
    WHEN 'UPDATE' THEN 'changed'
    ELSE 'deleted'
  END;
  v_id    text := watch_id(p_watch, 'n.');
BEGIN
  RETURN format(
    'SELECT %s AS moved, %s AS differs, %s AS topic, %s AS event, %s AS namespace, %s AS tenant, %s AS key, '
    '%s AS aggregate_type, %s AS aggregate_id, %s AS id, %s AS record, %s AS old FROM %s',
    CASE p_operation WHEN 'UPDATE' THEN watch_difference(p_watch, p_watch -> 'id') ELSE 'false' END,
    CASE p_operation WHEN 'UPDATE' THEN watch_condition(p_watch) ELSE 'true' END,
    watch_literal((p_watch ->> 'topic') || '.' || v_event),
    watch_literal(v_event),
    watch_literal(p_watch ->> 'namespace'),
    CASE WHEN p_watch ? 'tenant' THEN watch_text(p_watch, 'n.', p_watch ->> 'tenant') ELSE 'NULL' END,
    CASE WHEN p_watch ? 'key' THEN watch_text(p_watch, 'n.', p_watch ->> 'key') ELSE 'NULL' END,
    watch_literal(p_watch ->> 'aggregateType'),
    CASE WHEN p_watch ? 'aggregateId' THEN watch_text(p_watch, 'n.', p_watch ->> 'aggregateId') ELSE v_id END,
    v_id,
    watch_record(p_watch, 'n.'),
    CASE
      WHEN p_operation = 'UPDATE' AND (p_watch -> 'oldValues')::boolean THEN
        format('watch_old_values(%s, %s)', watch_record(p_watch, 'o.'), watch_record(p_watch, 'n.'))
      ELSE 'NULL'
    END,
    CASE p_operation
      WHEN 'INSERT' THEN 'new_rows n'
      WHEN 'UPDATE' THEN 'old_rows o, new_rows n'
      ELSE 'old_rows n'
    END);
END $$;
