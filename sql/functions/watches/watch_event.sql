-- Watch triggers: run in the writer's transaction. A watched table has statement-level triggers with transition tables
-- (old_rows, new_rows) that call watch_event. One query turns the rows of a statement into messages, whether it changed
-- one row or a million. The function runs with the owner's rights: writers of the table need no rights in this schema.
--
-- The triggers carry the definition of their watch (see resolve_watch in watch.sql). The query is built for each
-- statement, because a column may have been renamed since. Messages keep the name that the column had when the watch
-- was made. Inside the query, columns are called c1, c2, … (old values: o1, o2, …).

-- The current names of a watch's columns, in the order of the watch. Null if the trigger that ties them to the watch is
-- missing, or is a trigger of other origin with the same name.
CREATE OR REPLACE FUNCTION watch_names(p_table regclass, p_topic text) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT array_agg(a.attname ORDER BY u.position)
      FROM pg_trigger t
     CROSS JOIN LATERAL unnest(t.tgattr::smallint[]) WITH ORDINALITY u(number, position)
      JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = u.number
     WHERE t.tgrelid = p_table
       AND t.tgname = watch_trigger_name(p_topic, 'columns')
       AND t.tgfoid = 'watch_event'::regproc);
END $$;

-- The SQL for a column as text. A type that did not come with PostgreSQL goes through its output function: a cast could
-- be a function of the table's owner, and would run with the rights of this schema's owner.
CREATE OR REPLACE FUNCTION watch_text(p_watch jsonb, p_column text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  RETURN format(
    CASE
      WHEN p_watch -> 'foreignTypes' ? p_column THEN 'format(''%%s'', c%s)'
      ELSE 'c%s::text'
    END,
    p_watch -> 'uses' ->> p_column);
END $$;

-- The SQL for a column as a JSON value, by the same rule. p_prefix: c, or o for the old value.
CREATE OR REPLACE FUNCTION watch_value(p_watch jsonb, p_prefix text, p_column text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
BEGIN
  RETURN format(
    CASE
      WHEN p_watch -> 'foreignTypes' ? p_column THEN 'CASE num_nulls(%1$s) WHEN 0 THEN format(''%%s'', %1$s) END'
      ELSE '%s'
    END,
    p_prefix || (p_watch -> 'uses' ->> p_column));
END $$;

-- The SQL for the chosen columns as a JSON object, in several parts because a function takes at most a hundred
-- arguments.
CREATE OR REPLACE FUNCTION watch_record(p_watch jsonb, p_prefix text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT string_agg(format('jsonb_build_object(%s)', p.arguments), ' || ' ORDER BY p.part)
      FROM (SELECT (c.position - 1) / 50 AS part,
                   string_agg(format('%L, %s', c.name, watch_value(p_watch, p_prefix, c.name)), ', '
                              ORDER BY c.position) AS arguments
              FROM jsonb_array_elements_text(p_watch -> 'columns') WITH ORDINALITY c(name, position)
             GROUP BY 1) p);
END $$;

-- The SQL for the rows that become messages, each with its event. Old and new rows are matched by primary key; if the
-- key has changed, the old record was deleted and a new one created. Watched columns are compared by their bytes (*<>),
-- which handles nulls and needs no operators of their types.
CREATE OR REPLACE FUNCTION watch_rows(p_watch jsonb, p_names text[], p_operation text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
AS $$
DECLARE
  v_columns text;
  v_match   text;
  v_differ  text;
BEGIN
  IF p_operation = 'INSERT' OR p_operation = 'DELETE' THEN
    SELECT string_agg(format('%I AS c%s', c.name, c.position), ', ')
      INTO v_columns
      FROM unnest(p_names) WITH ORDINALITY c(name, position);
    RETURN CASE p_operation
      WHEN 'INSERT' THEN format('SELECT %L AS event, %s FROM new_rows', p_watch ->> 'created', v_columns)
      ELSE format('SELECT %L AS event, %s FROM old_rows', p_watch ->> 'deleted', v_columns)
    END;
  END IF;
  SELECT string_agg(
           format('CASE WHEN n.%1$I IS NULL THEN o.%2$I ELSE n.%2$I END AS c%3$s', p_names[1], c.name, c.position)
             || CASE
                  WHEN (p_watch -> 'oldValues')::boolean THEN format(', o.%I AS o%s', c.name, c.position)
                  ELSE ''
                END,
           ', ')
    INTO v_columns
    FROM unnest(p_names) WITH ORDINALITY c(name, position);
  SELECT string_agg(
           format(
             CASE
               WHEN p_watch -> 'foreignTypes' ? i.name THEN
                 'format(''%%s'', o.%1$I) COLLATE "C" = format(''%%s'', n.%1$I) COLLATE "C"'
               ELSE 'o.%1$I::text COLLATE "C" = n.%1$I::text COLLATE "C"'
             END,
             p_names[i.position]),
           ' AND ')
    INTO v_match
    FROM jsonb_array_elements_text(p_watch -> 'id') WITH ORDINALITY i(name, position);
  SELECT format('ROW(%s)::record *<> ROW(%s)::record',
                string_agg('o.' || w.name, ', '), string_agg('n.' || w.name, ', '))
    INTO v_differ
    FROM (SELECT quote_ident(p_names[(p_watch -> 'uses' ->> e)::int]) AS name
            FROM jsonb_array_elements_text(p_watch -> 'when') e) w;
  RETURN format(
    $sql$SELECT CASE WHEN o.%1$I IS NULL THEN %2$L WHEN n.%1$I IS NULL THEN %3$L ELSE %4$L END AS event,
                o.%1$I IS NOT NULL AND n.%1$I IS NOT NULL AS changed, %5$s
           FROM old_rows o
           FULL JOIN new_rows n ON %6$s
          WHERE CASE WHEN o.%1$I IS NULL THEN %7$L WHEN n.%1$I IS NULL THEN %8$L ELSE %9$L AND %10$s END$sql$,
    p_names[1], p_watch ->> 'created', p_watch ->> 'deleted', p_watch ->> 'changed', v_columns, v_match,
    p_watch ? 'created', p_watch ? 'deleted', p_watch ? 'changed',
    CASE WHEN p_watch ? 'when' THEN v_differ ELSE 'ROW(o.*)::record *<> ROW(n.*)::record' END);
END $$;

-- The SQL for the messages of one statement. The record id is the primary key as text, or a JSON array of its columns.
-- An empty tenant or key counts as none. An aggregate id that is too long is left out.
CREATE OR REPLACE FUNCTION watch_messages(p_watch jsonb, p_names text[], p_operation text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_id        text := watch_text(p_watch, p_watch -> 'id' ->> 0);
  v_aggregate text;
  v_old       text := '';
BEGIN
  IF jsonb_array_length(p_watch -> 'id') > 1 THEN
    SELECT format('jsonb_build_array(%s)::text', string_agg(watch_value(p_watch, 'c', i), ', '))
      INTO v_id
      FROM jsonb_array_elements_text(p_watch -> 'id') i;
  END IF;
  v_aggregate := CASE
    WHEN p_watch ? 'aggregateId' THEN watch_text(p_watch, p_watch ->> 'aggregateId')
    ELSE v_id
  END;
  IF p_operation = 'UPDATE' AND (p_watch -> 'oldValues')::boolean THEN
    v_old := format(
      $sql$ || CASE WHEN changed THEN jsonb_build_object('old', (
        SELECT coalesce(jsonb_object_agg(key, value), '{}')
          FROM jsonb_each(%s)
         WHERE value IS DISTINCT FROM (%s) -> key)) ELSE '{}' END$sql$,
      watch_record(p_watch, 'o'), watch_record(p_watch, 'c'));
  END IF;
  RETURN format(
    $sql$SELECT jsonb_build_object(
                  'topic', %L || event, 'namespace', %L, 'tenantId', %s, 'key', %s,
                  'aggregateType', CASE WHEN octet_length(%5$s) BETWEEN 1 AND 255 THEN %6$L END,
                  'aggregateId', CASE WHEN octet_length(%5$s) BETWEEN 1 AND 255 THEN %5$s END,
                  'payload', jsonb_build_object(
                    'table', $1, 'recordId', %7$s, 'event', event, 'record', %8$s)%9$s) AS message
           FROM (%10$s) r$sql$,
    p_watch ->> 'topic' || '.', p_watch ->> 'namespace',
    CASE
      WHEN p_watch ? 'tenant' THEN format('nullif(%s, '''')', watch_text(p_watch, p_watch ->> 'tenant'))
      ELSE 'NULL'
    END,
    CASE
      WHEN p_watch ? 'key' THEN format('nullif(%s, '''')', watch_text(p_watch, p_watch ->> 'key'))
      ELSE 'NULL'
    END,
    v_aggregate, p_watch ->> 'aggregateType', v_id, watch_record(p_watch, 'c'), v_old,
    watch_rows(p_watch, p_names, p_operation));
END $$;

-- The trigger function of every watch. Its first argument is the definition of the watch. A second argument marks
-- triggers of partitions, for statements that name the partition instead of the table.
CREATE OR REPLACE FUNCTION watch_event() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET jit = off
-- fixed settings, so that a value reads the same in every session: it may be a key
SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC' SET IntervalStyle = 'iso_8601' SET bytea_output = 'hex'
SET extra_float_digits = 1
AS $$
DECLARE
  v_watch    jsonb := TG_ARGV[0];
  v_table    regclass := coalesce(pg_partition_root(TG_RELID), TG_RELID);
  v_names    text[];
  v_rows     bigint;
  v_messages jsonb;
BEGIN
  CASE TG_OP
    WHEN 'INSERT', 'UPDATE' THEN SELECT count(*) INTO v_rows FROM new_rows;
    WHEN 'DELETE' THEN SELECT count(*) INTO v_rows FROM old_rows;
    ELSE NULL;
  END CASE;
  IF v_rows = 0 THEN RETURN NULL; END IF;

  v_names := watch_names(v_table, v_watch ->> 'topic');
  IF v_names IS NULL AND current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = format('the watch %s of %s is newer than this transaction: try again', v_watch ->> 'topic', v_table);
  ELSIF v_names IS NULL AND TG_NARGS = 1 THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('the watch %s of %s has lost its trigger %s',
                       v_watch ->> 'topic', v_table, watch_trigger_name(v_watch ->> 'topic', 'columns')),
      HINT = 'Watch the table again, or unwatch it.';
  ELSIF v_names IS NULL THEN
    -- a detached partition is a table of its own, which is not watched
    RETURN NULL;
  END IF;

  -- Read at each call, because the table's owner can change the types. Types with an id below 16384 came with
  -- PostgreSQL.
  v_watch := jsonb_set(v_watch, '{foreignTypes}', (
    SELECT coalesce(jsonb_agg(u.key), '[]')
      FROM jsonb_each_text(v_watch -> 'uses') u
      JOIN pg_attribute a ON a.attrelid = v_table AND a.attname = v_names[u.value::int]
     WHERE a.atttypid >= 16384
       AND NOT is_own_type(a.atttypid)));

  IF TG_OP = 'TRUNCATE' AND v_watch ->> 'truncate' = 'refuse' THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('%s is watched (%s.%s), and TRUNCATE does not say which rows it removes',
                       v_table, v_watch ->> 'topic', v_watch ->> 'deleted'),
      HINT = 'Use DELETE; or watch the table with truncate "report", which makes one message for a whole TRUNCATE.';
  ELSIF TG_OP = 'TRUNCATE' THEN
    PERFORM enqueue(
      format('%s.truncated', v_watch ->> 'topic'),
      namespace => v_watch ->> 'namespace',
      payload => jsonb_build_object('table', v_table::text, 'event', 'truncated') || CASE
        WHEN TG_NARGS > 1 THEN jsonb_build_object('partition', TG_RELID::regclass::text)
        ELSE '{}'
      END,
      unrouted => 'keep');
  ELSIF v_rows <= 10000 THEN
    EXECUTE format('SELECT jsonb_agg(m.message) FROM (%s) m', watch_messages(v_watch, v_names, TG_OP))
      INTO v_messages
      USING v_table::text;
    IF v_messages IS NOT NULL THEN
      PERFORM enqueue_many(v_messages, p_unrouted => 'keep');
    END IF;
  ELSE
    -- one JSON value cannot hold any number of messages: batches, each of which is freed before the next
    EXECUTE format(
      $sql$SELECT
             FROM (SELECT jsonb_agg(n.message ORDER BY n.position) AS messages
                     FROM (SELECT m.message, row_number() OVER () AS position FROM (%s) m) n
                    GROUP BY (n.position - 1) / 10000) b,
                  LATERAL enqueue_many(b.messages, p_unrouted => 'keep')$sql$,
      watch_messages(v_watch, v_names, TG_OP))
      USING v_table::text;
  END IF;
  RETURN NULL;
END $$;
