-- Watch triggers: run in the writer's transaction. A watched table has statement-level triggers with transition tables
-- (old_rows, new_rows) that call watch_event. One query turns the rows of a statement into messages, whether it changed
-- one row or a million. The function runs with the owner's rights: writers of the table need no rights in this schema.
--
-- The triggers carry the definition of their watch (see resolve_watch in watch.sql) and the query for a single row (see
-- watch_row in watch_queries.sql). The query for many rows is built for each statement.

-- A pattern for the definition of the trigger that ties these columns to the watch, as pg_get_triggerdef writes it.
CREATE OR REPLACE FUNCTION watch_columns_trigger(p_topic text, p_names text[], p_arguments text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN replace(replace(replace(
           format('CREATE TRIGGER %I BEFORE UPDATE OF %s ON ', watch_trigger_name(p_topic, 'columns'),
                  (SELECT string_agg(quote_ident(n.name), ', ' ORDER BY n.position)
                     FROM unnest(p_names) WITH ORDINALITY n(name, position))),
           '\', '\\'), '%', '\%'), '_', '\_') || '%(' || p_arguments || ')';
END $$;

-- The current names of a watch's columns, in the order of the watch. Null if the trigger that ties them to the watch is
-- missing, or is a trigger of other origin with the same name. Also null if the snapshot of the transaction shows an
-- older state of the table: pg_get_triggerdef shows the current one.
CREATE OR REPLACE FUNCTION watch_names(p_table regclass, p_topic text) RETURNS text[]
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_names   text[];
  v_trigger text;
BEGIN
  SELECT array_agg(a.attname ORDER BY u.position), pg_get_triggerdef(t.oid)
    INTO v_names, v_trigger
    FROM pg_trigger t
   CROSS JOIN LATERAL unnest(t.tgattr::smallint[]) WITH ORDINALITY u(number, position)
    JOIN pg_attribute a ON a.attrelid = t.tgrelid AND a.attnum = u.number
   WHERE t.tgrelid = p_table
     AND t.tgname = watch_trigger_name(p_topic, 'columns')
     AND t.tgfoid = 'watch_event'::regproc
   GROUP BY t.oid;
  RETURN CASE WHEN v_trigger LIKE watch_columns_trigger(p_topic, v_names, '%') THEN v_names END;
END $$;

-- The columns of a watch whose types did not come with PostgreSQL, by the names of the watch. p_names: the current
-- names of its columns, where they are others.
CREATE OR REPLACE FUNCTION watch_foreign_types(p_table regclass, p_uses jsonb, p_names text[] DEFAULT NULL)
RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
BEGIN
  RETURN (
    SELECT coalesce(jsonb_agg(u.key ORDER BY u.key COLLATE "C"), '[]')
      FROM jsonb_each_text(p_uses) u
      JOIN pg_attribute a ON a.attrelid = p_table AND a.attname = coalesce(p_names[u.value::int], u.key)
      JOIN pg_type t ON t.oid = a.atttypid
     WHERE t.oid >= 16384
       AND (t.typtype <> 'd' OR NOT is_own_type(t.oid)));
END $$;

-- The trigger function of every watch. Its arguments: the definition of the watch; table, or partition for a statement
-- that names the partition instead of the table; the query for a single row; and a pattern for the definition of the
-- trigger that ties the columns to the watch. While that trigger is the one that was made with the watch, its columns
-- have the same types; while they also have the same names, the query for a single row can be used.
CREATE OR REPLACE FUNCTION watch_event() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT SET jit = off
-- fixed settings, so that a value reads the same in every session: it may be a key
SET DateStyle = 'ISO, YMD' SET TimeZone = 'UTC' SET IntervalStyle = 'iso_8601' SET bytea_output = 'hex'
SET extra_float_digits = 1
AS $$
DECLARE
  v_table     regclass := coalesce(pg_partition_root(TG_RELID), TG_RELID);
  v_watch     jsonb;
  v_names     text[];
  v_name      text := left(TG_NAME, -length(TG_OP)) || 'columns';
  v_trigger   text;
  v_rows      bigint;
  v_messages  jsonb;
  -- a single row: see watch_row
  v_moved     boolean;
  v_differs   boolean;
  v_topic     text;
  v_event     text;
  v_namespace text;
  v_tenant    text;
  v_key       text;
  v_type      text;
  v_aggregate text;
  v_id        text;
  v_record    jsonb;
  v_old       jsonb;
BEGIN
  CASE TG_OP
    WHEN 'INSERT', 'UPDATE' THEN
      SELECT r.count, pg_get_triggerdef(t.oid)
        INTO v_rows, v_trigger
        FROM (SELECT count(*) FROM new_rows) r
        LEFT JOIN pg_trigger t ON t.tgrelid = v_table AND t.tgname = v_name AND t.tgfoid = 'watch_event'::regproc;
    WHEN 'DELETE' THEN
      SELECT r.count, pg_get_triggerdef(t.oid)
        INTO v_rows, v_trigger
        FROM (SELECT count(*) FROM old_rows) r
        LEFT JOIN pg_trigger t ON t.tgrelid = v_table AND t.tgname = v_name AND t.tgfoid = 'watch_event'::regproc;
    ELSE NULL;
  END CASE;
  IF v_rows = 0 THEN RETURN NULL; END IF;

  IF v_rows = 1 AND v_trigger LIKE TG_ARGV[3] THEN
    EXECUTE TG_ARGV[2]
      INTO v_moved, v_differs, v_topic, v_event, v_namespace, v_tenant, v_key, v_type, v_aggregate, v_id, v_record,
           v_old;
    IF v_differs AND NOT v_moved THEN
      IF octet_length(v_aggregate) NOT BETWEEN 1 AND 255 THEN v_aggregate := NULL; END IF;
      v_record := jsonb_build_object('table', v_table::text, 'recordId', v_id, 'event', v_event, 'record', v_record);
      IF v_old IS NOT NULL THEN v_record := v_record || jsonb_build_object('old', v_old); END IF;
      PERFORM enqueue_many(
        jsonb_build_array(jsonb_build_object(
          'topic', v_topic, 'namespace', v_namespace, 'tenantId', nullif(v_tenant, ''), 'key', nullif(v_key, ''),
          'aggregateType', CASE WHEN v_aggregate IS NOT NULL THEN v_type END, 'aggregateId', v_aggregate,
          'payload', v_record)),
        p_names_checked => true,
        p_unrouted => 'keep');
    END IF;
    IF NOT v_moved THEN RETURN NULL; END IF;
  END IF;

  v_watch := TG_ARGV[0];
  v_names := watch_names(v_table, v_watch ->> 'topic');
  IF v_names IS NULL AND current_setting('transaction_isolation') <> 'read committed' THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = format('the watch %s of %s, or the table itself, is newer than this transaction: try again',
                       v_watch ->> 'topic', v_table);
  ELSIF v_names IS NULL AND TG_ARGV[1] = 'table' THEN
    RAISE EXCEPTION USING ERRCODE = '55000',
      MESSAGE = format('the watch %s of %s has lost its trigger %s',
                       v_watch ->> 'topic', v_table, watch_trigger_name(v_watch ->> 'topic', 'columns')),
      HINT = 'Watch the table again, or unwatch it.';
  ELSIF v_names IS NULL THEN
    -- a detached partition is a table of its own, which is not watched
    RETURN NULL;
  END IF;

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
        WHEN TG_ARGV[1] = 'partition' THEN jsonb_build_object('partition', TG_RELID::regclass::text)
        ELSE '{}'
      END,
      unrouted => 'keep');
    RETURN NULL;
  END IF;

  v_watch := jsonb_set(v_watch, '{foreignTypes}', watch_foreign_types(v_table, v_watch -> 'uses', v_names));
  IF v_rows <= 10000 THEN
    EXECUTE format('SELECT jsonb_agg(m.message) FROM (' || watch_messages(v_watch, TG_OP) || ') m', VARIADIC v_names)
      INTO v_messages
      USING v_table::text;
    IF v_messages IS NOT NULL THEN
      PERFORM enqueue_many(v_messages, p_names_checked => true, p_unrouted => 'keep');
    END IF;
  ELSE
    -- one JSON value cannot hold any number of messages: batches, each of which is freed before the next
    EXECUTE format(
      $sql$SELECT
             FROM (SELECT jsonb_agg(n.message ORDER BY n.position) AS messages
                     FROM (SELECT m.message, row_number() OVER () AS position FROM ($sql$
                       || watch_messages(v_watch, TG_OP) || $sql$) m) n
                    GROUP BY (n.position - 1) / 10000) b,
                  LATERAL enqueue_many(b.messages, p_names_checked => true, p_unrouted => 'keep')$sql$,
      VARIADIC v_names)
      USING v_table::text;
  END IF;
  RETURN NULL;
END $$;
