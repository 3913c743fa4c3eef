-- Watching, the half that makes and checks triggers. A watch is one table and one topic. For each table of a
-- partition tree, because a statement that names a partition fires only the partition's own triggers:
--
--   …_insert, …_update, …_delete   AFTER, for each statement, with transition tables: call watch_event
--   …_truncate                     AFTER TRUNCATE: refuses or reports
--   …_columns                      never fires; its UPDATE OF list ties the columns to the watch
--
-- The last one makes PostgreSQL itself refuse to drop a watched column or to change its type, and follow it
-- when it is renamed, also through a dump. Whatever else can happen to the triggers, watch_problem finds.

-- The trigger's name begins with the schema's, so that two outboxes may watch one table.
CREATE OR REPLACE FUNCTION watch_trigger_name(p_topic text, p_kind text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  v_name text := format('%s_%s', current_schema(), p_topic);
BEGIN
  RETURN CASE WHEN octet_length(v_name) <= 54 THEN v_name ELSE md5(v_name) END || '_' || p_kind;
END $$;

-- The table that the caller's search_path has under this name, or null: also for what is no name at all, where
-- to_regclass fails, and for a number, which newer versions of it take for an object id.
CREATE OR REPLACE FUNCTION named_table(p_name text) RETURNS regclass
LANGUAGE plpgsql STABLE AS $$
BEGIN
  RETURN CASE WHEN p_name !~ '^([0-9]+|-)$' THEN to_regclass(p_name) END;
EXCEPTION WHEN syntax_error OR invalid_name OR feature_not_supported THEN
  RETURN NULL;
END $$;

CREATE OR REPLACE FUNCTION primary_key(p_table regclass) RETURNS text[]
LANGUAGE sql STABLE AS $$
  SELECT array_agg(a.attname::text ORDER BY k.position)
    FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY k(number, position)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
   WHERE i.indrelid = p_table AND i.indisprimary AND k.position <= i.indnkeyatts
$$;

-- Whether a type came with PostgreSQL; a domain is as its base type.
CREATE OR REPLACE FUNCTION is_own_type(p_type oid) RETURNS boolean
LANGUAGE sql STABLE AS $$
  WITH RECURSIVE base AS (
    SELECT t.oid, t.typtype, t.typbasetype FROM pg_type t WHERE t.oid = p_type
    UNION ALL SELECT t.oid, t.typtype, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.typbasetype WHERE b.typtype = 'd')
  SELECT b.oid < 16384 FROM base b WHERE b.typtype <> 'd'
$$;

-- Why this table cannot be watched, or null.
CREATE OR REPLACE FUNCTION unwatchable(p_table regclass) RETURNS text
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT CASE
    WHEN c.relnamespace = quote_ident(current_schema())::regnamespace THEN
      format('%s is a table of Waybill itself, whose changes are no events: watch a table of the application', p_table)
    WHEN c.relkind NOT IN ('r', 'p') THEN format('%s is not a table: watch the table behind it', p_table)
    WHEN c.relpersistence = 't' THEN format('%s is a temporary table: watch one that stays', p_table)
    WHEN c.relispartition THEN
      format('%s is a partition, and statements on %2$s would go unseen: watch %2$s', p_table, pg_partition_root(p_table))
    WHEN c.relkind = 'r' AND EXISTS (SELECT FROM pg_inherits i WHERE p_table IN (i.inhrelid, i.inhparent)) THEN
      format('%s takes part in table inheritance, where statements on one table change another unseen: use a partitioned table', p_table)
    WHEN primary_key(p_table) IS NULL THEN format(
      'table %s has no primary key, which is needed to tell its rows apart: add one (ALTER TABLE %1$s ADD PRIMARY KEY …)', p_table)
  END FROM pg_class c WHERE c.oid = p_table
$$;

-- The definition with everything filled in, or an error that says what is wrong with it. uses: every column that
-- the messages need, by its position; the primary key comes first.
CREATE OR REPLACE FUNCTION resolve_watch(p_table regclass, p_watch jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  v_given   jsonb := jsonb_strip_nulls(p_watch);
  v_id      jsonb := to_jsonb(primary_key(p_table));
  v_watch   jsonb;
  v_uses    text[];
  v_problem text := unwatchable(p_table);
BEGIN
  IF v_problem IS NULL THEN
    v_watch := jsonb_strip_nulls(jsonb_build_object(
      'topic', coalesce(v_given ->> 'topic', ''), 'namespace', v_given -> 'namespace',
      'created', v_given -> 'created', 'changed', v_given -> 'changed', 'deleted', v_given -> 'deleted',
      'truncate', coalesce(v_given ->> 'truncate', 'refuse'), 'oldValues', coalesce(v_given -> 'oldValues', 'false'),
      'id', v_id, 'key', v_given -> 'key', 'tenant', v_given -> 'tenant',
      'aggregateType', coalesce(v_given ->> 'aggregateType', (SELECT c.relname FROM pg_class c WHERE c.oid = p_table)),
      'aggregateId', v_given -> 'aggregateId',
      'columns', coalesce(v_given -> 'columns', v_id), 'when', coalesce(v_given -> 'when', v_given -> 'columns')));
    v_uses := ARRAY (
      SELECT u.name FROM jsonb_array_elements_text(
          v_id || jsonb_build_array(v_watch -> 'key', v_watch -> 'tenant', v_watch -> 'aggregateId')
               || (v_watch -> 'columns') || coalesce(v_watch -> 'when', '[]')) WITH ORDINALITY u(name, position)
       WHERE u.name IS NOT NULL GROUP BY u.name ORDER BY min(u.position));
    v_problem := watch_refusal(p_table, v_watch, v_uses);
  END IF;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was changed.';
  END IF;
  RETURN v_watch || jsonb_build_object(
    'uses', (SELECT jsonb_object_agg(u.name, u.position) FROM unnest(v_uses) WITH ORDINALITY u(name, position)),
    'foreignTypes', ARRAY (
      SELECT a.attname FROM pg_attribute a WHERE a.attrelid = p_table AND a.attname = ANY (v_uses) AND NOT is_own_type(a.atttypid)));
END $$;

-- The first thing wrong with a watch, or null.
CREATE OR REPLACE FUNCTION watch_refusal(p_table regclass, p_watch jsonb, p_uses text[]) RETURNS text
LANGUAGE plpgsql STABLE SET search_path FROM CURRENT AS $$
DECLARE
  v_events text[] := ARRAY[p_watch ->> 'created', p_watch ->> 'changed', p_watch ->> 'deleted'];
BEGIN
  RETURN coalesce(
    message_problem(p_watch ->> 'topic', p_watch ->> 'namespace', NULL, NULL, NULL, p_watch ->> 'aggregateType', 'id', NULL, NULL, NULL, NULL, 0),
    (SELECT message_problem(format('%s.%s', p_watch ->> 'topic', e), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0)
       FROM unnest(v_events) e WHERE e IS NOT NULL ORDER BY 1 LIMIT 1),
    CASE WHEN num_nonnulls(VARIADIC v_events) = 0 THEN 'created, changed and deleted are all null: name at least one event' END,
    CASE WHEN p_watch ->> 'truncate' NOT IN ('refuse', 'report') THEN
      format('truncate "%s" must be "refuse" or "report"', left(p_watch ->> 'truncate', 60)) END,
    CASE WHEN jsonb_array_length(p_watch -> 'columns') = 0 OR jsonb_array_length(p_watch -> 'when') = 0 THEN
      'columns and when must not be empty: leave them out, or name columns' END,
    (SELECT format('column "%s" of %s does not exist: use %s', u.name, p_table,
                   (SELECT string_agg(c.attname, ', ' ORDER BY c.attnum) FROM pg_attribute c
                     WHERE c.attrelid = p_table AND c.attnum > 0 AND NOT c.attisdropped))
       FROM unnest(p_uses) WITH ORDINALITY u(name, position)
       LEFT JOIN pg_attribute a ON a.attrelid = p_table AND a.attname = u.name AND a.attnum > 0 AND NOT a.attisdropped
      WHERE a.attnum IS NULL ORDER BY u.position LIMIT 1),
    (SELECT format('column "%s" of %s is generated whenever it is read, so triggers never see its value: make it STORED, or use the columns that it is made from',
                   a.attname, p_table)
       FROM pg_attribute a WHERE a.attrelid = p_table AND a.attname = ANY (p_uses) AND a.attgenerated = 'v' ORDER BY a.attnum LIMIT 1));
END $$;

-- The triggers that a watch needs, with the statements that make them. A TRUNCATE of a partitioned table fires
-- the triggers of its partitions; so the partitions have them and the table itself does not.
CREATE OR REPLACE FUNCTION watch_triggers(p_table regclass, p_watch jsonb)
RETURNS TABLE (relation regclass, name text, statement text) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT t.relation, n.name,
         format('CREATE OR REPLACE TRIGGER %I %s ON %s %sFOR EACH STATEMENT %sEXECUTE FUNCTION %I.watch_event(%s)',
           n.name, k.event, t.relation, k.rows, k.condition, current_schema(),
           CASE WHEN k.kind <> 'columns' THEN quote_literal(p_watch) || CASE WHEN t.relation <> p_table THEN ', ''partition''' ELSE '' END END)
    FROM (SELECT p_table AS relation UNION SELECT p.relid FROM pg_partition_tree(p_table) p) t
    JOIN pg_class c ON c.oid = t.relation
    JOIN (VALUES
      (1, 'insert', 'AFTER INSERT', 'REFERENCING NEW TABLE AS new_rows ', '', p_watch ? 'created'),
      (2, 'update', 'AFTER UPDATE', 'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows ', '', true),
      (3, 'delete', 'AFTER DELETE', 'REFERENCING OLD TABLE AS old_rows ', '', p_watch ? 'deleted'),
      (4, 'truncate', 'AFTER TRUNCATE', '', '', p_watch ? 'deleted'),
      (5, 'columns', 'BEFORE UPDATE OF ' || (SELECT string_agg(quote_ident(u.key), ', ' ORDER BY u.value::int)
                                               FROM jsonb_each_text(p_watch -> 'uses') u),
       '', 'WHEN (false) ', true)) k(position, kind, event, rows, condition, wanted)
      ON k.wanted AND NOT (k.kind = 'truncate' AND c.relkind = 'p') AND NOT (k.kind = 'columns' AND t.relation <> p_table)
   CROSS JOIN LATERAL (SELECT watch_trigger_name(p_watch ->> 'topic', k.kind) AS name) n
   ORDER BY t.relation <> p_table, t.relation, k.position
$$;

-- The triggers that a watch has, wanted or not.
CREATE OR REPLACE FUNCTION existing_watch_triggers(p_table regclass, p_topic text)
RETURNS TABLE (relation regclass, name text) LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT t.tgrelid::regclass, t.tgname
    FROM (SELECT p_table AS relation UNION SELECT p.relid FROM pg_partition_tree(p_table) p) r
    JOIN pg_trigger t ON t.tgrelid = r.relation AND t.tgfoid = 'watch_event'::regproc
     AND t.tgname IN (SELECT watch_trigger_name(p_topic, k) FROM unnest('{insert,update,delete,truncate,columns}'::text[]) k)
   ORDER BY 1, 2
$$;

-- The partitions that have come since the table was watched: they have none of its triggers.
CREATE OR REPLACE FUNCTION new_partitions(p_table regclass, p_topic text) RETURNS TABLE (relation regclass)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT p.relid FROM pg_partition_tree(p_table) p
   WHERE p.relid <> p_table AND p.relid NOT IN (SELECT e.relation FROM existing_watch_triggers(p_table, p_topic) e)
   ORDER BY p.relid
$$;

-- Why a watch does not see everything, and what to do about it; null if it does.
CREATE OR REPLACE FUNCTION watch_problem(p_watch watches) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_class WHERE oid = p_watch.table_id) THEN
    RETURN 'the table was dropped: unwatch it, or watch the one in its place';
  END IF;
  RETURN coalesce(
    unwatchable(p_watch.table_id),
    (SELECT format('partition %s is new, and statements that name it are not seen: the next maintenance adds its triggers, or watch the table again', p.relation)
       FROM new_partitions(p_watch.table_id, p_watch.topic) p LIMIT 1),
    (SELECT format('trigger %s on %s is %s: watch the table again', w.name, w.relation,
                   CASE WHEN t.oid IS NULL THEN 'missing' WHEN t.tgfoid <> 'watch_event'::regproc THEN 'not ours' ELSE 'disabled' END)
       FROM watch_triggers(p_watch.table_id, p_watch.definition) w
       LEFT JOIN pg_trigger t ON t.tgrelid = w.relation AND t.tgname = w.name
      WHERE t.oid IS NULL OR t.tgfoid <> 'watch_event'::regproc OR t.tgenabled NOT IN ('O', 'A')
      LIMIT 1),
    CASE WHEN primary_key(p_watch.table_id)
              <> (watch_names(p_watch.table_id, p_watch.topic))[1:jsonb_array_length(p_watch.definition -> 'id')]
         THEN 'the primary key is another one now: watch the table again' END);
END $$;

-- Makes a watch, or changes it to be as given; returns the statements that it took. Nothing is done where
-- nothing is to do, so that it can be repeated at every start. It waits two seconds at most for transactions
-- that write to the table, because everybody else would wait behind it.
CREATE OR REPLACE FUNCTION define_watch(p_table regclass, p_watch jsonb, p_configured boolean, p_dry_run boolean) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  v_known     watches;
  v_watch     jsonb;
  v_statement text;
BEGIN
  IF p_table IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format('table "%s" does not exist: write it as schema.table', left(p_watch ->> 'table', 130));
  END IF;
  PERFORM pg_advisory_xact_lock(hashtextextended('waybill watch ' || current_schema(), 0));
  SELECT * INTO v_known FROM watches w WHERE w.table_id = p_table AND w.topic = p_watch ->> 'topic';
  IF v_known.given = p_watch AND v_known.configured >= p_configured AND watch_problem(v_known) IS NULL THEN RETURN; END IF;
  v_watch := resolve_watch(p_table, p_watch);

  IF v_known.definition IS DISTINCT FROM v_watch OR watch_problem(v_known) IS NOT NULL THEN
    FOR v_statement IN
      SELECT format('DROP TRIGGER %I ON %s', l.name, l.relation) FROM existing_watch_triggers(p_table, v_watch ->> 'topic') l
       WHERE (l.relation, l.name) NOT IN (SELECT t.relation, t.name FROM watch_triggers(p_table, v_watch) t)
      UNION ALL SELECT t.statement FROM watch_triggers(p_table, v_watch) t
    LOOP
      BEGIN
        IF NOT p_dry_run THEN EXECUTE v_statement; END IF;
      EXCEPTION WHEN insufficient_privilege THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('%s may not put triggers on %s: %s', current_user, p_table, SQLERRM),
          HINT = format('GRANT TRIGGER ON %s TO %I lets relays make watches; to change or end one takes the owner of the table.', p_table, current_user);
      END;
      RETURN NEXT v_statement;
    END LOOP;
  END IF;
  IF p_dry_run THEN RETURN; END IF;
  -- the table may have taken the place and the name of one that was dropped
  DELETE FROM watches w WHERE w.topic = v_watch ->> 'topic' AND w.table_name = p_table::text
     AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = w.table_id);
  INSERT INTO watches AS w (table_id, topic, table_name, given, definition, configured)
  VALUES (p_table, v_watch ->> 'topic', p_table::text, p_watch, v_watch, p_configured)
  ON CONFLICT (table_id, topic) DO UPDATE
    SET table_name = excluded.table_name, given = excluded.given, definition = excluded.definition,
        configured = w.configured OR excluded.configured, changed_at = clock_timestamp();
  PERFORM record_action(NULL, 'watch', jsonb_build_object('table', p_table::text, 'topic', v_watch ->> 'topic'), 1);
END $$;

-- Makes messages of what happens to a table: topic.created, topic.changed and topic.deleted, or the names given
-- for them (null: none of these). columns are in the payload (default: the primary key); a change of the columns
-- when_changed makes a message (default: of columns, or of any column). key, tenant and aggregate_id name
-- columns, aggregate_type is a word (default: the table's name and its primary key). Returns the statements
-- that it took; dry_run only returns them.
CREATE OR REPLACE FUNCTION watch(
  watched regclass, topic text, key text DEFAULT NULL, tenant text DEFAULT NULL, columns text[] DEFAULT NULL,
  when_changed text[] DEFAULT NULL, old_values boolean DEFAULT false, created text DEFAULT 'created',
  changed text DEFAULT 'changed', deleted text DEFAULT 'deleted', truncate text DEFAULT 'refuse',
  namespace text DEFAULT NULL, aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
  dry_run boolean DEFAULT false) RETURNS SETOF text
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  SELECT define_watch(watched, jsonb_build_object(
    'topic', topic, 'key', key, 'tenant', tenant, 'columns', columns, 'when', when_changed, 'oldValues', old_values,
    'created', created, 'changed', changed, 'deleted', deleted, 'truncate', truncate, 'namespace', namespace,
    'aggregateType', aggregate_type, 'aggregateId', aggregate_id), false, dry_run)
$$;

-- Ends one watch; of a table that is gone there is nothing but the row.
CREATE OR REPLACE FUNCTION end_watch(p_watch watches) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '2s' AS $$
DECLARE
  v_trigger record;
BEGIN
  FOR v_trigger IN SELECT * FROM existing_watch_triggers(p_watch.table_id, p_watch.topic) LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', v_trigger.name, v_trigger.relation);
  END LOOP;
  DELETE FROM watches w WHERE w.table_id = p_watch.table_id AND w.topic = p_watch.topic;
  PERFORM record_action(NULL, 'unwatch', jsonb_build_object('table', p_watch.table_name, 'topic', p_watch.topic), 1);
END $$;

-- Ends the watches of a table, or the one with this topic; the table may be gone. Returns how many it ended.
CREATE OR REPLACE FUNCTION unwatch(watched text, topic text DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
  v_count int;
BEGIN
  SELECT count(*) INTO v_count
    FROM (SELECT end_watch(w) FROM watches w
           WHERE watched IN (w.table_id::text, w.table_name) AND (unwatch.topic IS NULL OR w.topic = unwatch.topic) OFFSET 0) e;
  IF v_count = 0 THEN
    RAISE EXCEPTION USING ERRCODE = 'P0002', MESSAGE = format('"%s" is not watched%s', left(watched, 130), ' with the topic ' || unwatch.topic),
      HINT = 'Watched: ' || coalesce((SELECT string_agg(format('%s (%s)', w.table_name, w.topic), ', ' ORDER BY w.table_name) FROM watches w), 'nothing');
  END IF;
  RETURN v_count;
END $$;

-- Gives new partitions of watched tables their triggers, and returns how many partitions that were: a statement on
-- the table is seen whatever its partitions have, one that names the partition is not. One that is in use, or not
-- this role's to change, is left for the next time. Whatever else is wrong with a watch is for a person to decide.
CREATE OR REPLACE FUNCTION mend_watches() RETURNS int
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT SET lock_timeout = '200ms' AS $$
DECLARE
  v_statements text;
  v_mended     int := 0;
BEGIN
  IF NOT owns_watches() THEN RETURN tend_watches(NULL); END IF;
  IF NOT pg_try_advisory_xact_lock(hashtextextended('waybill watch ' || current_schema(), 0)) THEN RETURN 0; END IF;
  FOR v_statements IN
    SELECT (SELECT string_agg(t.statement, '; ') FROM watch_triggers(w.table_id, w.definition) t WHERE t.relation = p.relation)
      FROM watches w CROSS JOIN LATERAL new_partitions(w.table_id, w.topic) p
  LOOP
    BEGIN
      EXECUTE v_statements;
      v_mended := v_mended + 1;
    EXCEPTION WHEN lock_not_available OR insufficient_privilege OR undefined_table THEN
      NULL;
    END;
  END LOOP;
  RETURN v_mended;
END $$;

-- p_watches: [{table, tableId, topic, key, tenant, columns, when, oldValues, created, changed, deleted, truncate,
-- namespace, aggregateType, aggregateId}]. Watches that an earlier configuration made and this one lacks end;
-- those made by hand stay.
CREATE OR REPLACE FUNCTION sync_watches(p_watches jsonb) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
  IF NOT owns_watches() THEN
    PERFORM tend_watches(p_watches);
    RETURN;
  END IF;
  PERFORM define_watch((w ->> 'tableId')::oid::regclass, w - 'tableId', true, false) FROM jsonb_array_elements(p_watches) w;
  PERFORM end_watch(w) FROM watches w
    WHERE w.configured AND NOT EXISTS (
      SELECT FROM jsonb_array_elements(p_watches) g WHERE (g ->> 'tableId')::oid = w.table_id AND g ->> 'topic' = w.topic);
END $$;

-- Whether the caller has the rights of the owner: then the triggers are made with the caller's own, which may be more.
CREATE OR REPLACE FUNCTION owns_watches() RETURNS boolean
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = 'watches'::regclass
$$;

-- The same for relays that own nothing: with the owner's rights, so on tables only whose TRIGGER right the owner was given.
-- No other role may call watch_event from a trigger of its own making: it believes its arguments. Null: mends.
CREATE OR REPLACE FUNCTION tend_watches(p_watches jsonb) RETURNS int
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path FROM CURRENT AS $$
BEGIN
  IF p_watches IS NULL THEN RETURN mend_watches(); END IF;
  PERFORM sync_watches(p_watches);
  RETURN 0;
END $$;
