-- Watches: create and check the triggers that turn changes of a table into messages. A watch is one table and one
-- topic. Every table of a partition tree gets its own triggers, because a statement that names a partition fires only
-- those of the partition:
--
--   …_insert, …_update, …_delete   AFTER, for each statement, with transition tables: call watch_event
--   …_truncate                     AFTER TRUNCATE: refuses or reports
--   …_columns                      never fires; its UPDATE OF list ties the columns to the watch, and its argument
--                                  shows that it was made for this definition
--
-- Because of the last one, PostgreSQL refuses to drop a watched column or to change its type, and follows a renamed
-- column, also through a dump. watch_problem finds everything else that can happen to the triggers.

-- The name of a trigger. It begins with the name of the schema, so that two outboxes can watch one table.
CREATE OR REPLACE FUNCTION watch_trigger_name(p_topic text, p_kind text) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_name text := format('%s_%s', current_schema(), p_topic);
BEGIN
  RETURN CASE WHEN octet_length(v_name) <= 54 THEN v_name ELSE md5(v_name) END || '_' || p_kind;
END $$;

-- The table of this name on the caller's search_path, or null. Also null for a malformed name, for which to_regclass
-- fails, and for a number, which newer versions of to_regclass take for an object id.
CREATE OR REPLACE FUNCTION named_table(p_name text) RETURNS regclass
LANGUAGE plpgsql STABLE
AS $$
BEGIN
  RETURN CASE WHEN p_name !~ '^([0-9]+|-)$' THEN to_regclass(p_name) END;
EXCEPTION WHEN syntax_error OR invalid_name OR feature_not_supported THEN
  RETURN NULL;
END $$;

-- The columns of a table's primary key, in order, or null if it has none.
CREATE OR REPLACE FUNCTION primary_key(p_table regclass) RETURNS text[]
LANGUAGE sql STABLE
AS $$
  SELECT array_agg(a.attname::text ORDER BY k.position)
    FROM pg_index i
   CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY k(number, position)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
   WHERE i.indrelid = p_table
     AND i.indisprimary
     AND k.position <= i.indnkeyatts
$$;

-- Whether a type came with PostgreSQL; for a domain, whether its base type did.
CREATE OR REPLACE FUNCTION is_own_type(p_type oid) RETURNS boolean
LANGUAGE sql STABLE
AS $$
  WITH RECURSIVE base AS (
    SELECT t.oid, t.typtype, t.typbasetype
      FROM pg_type t
     WHERE t.oid = p_type
    UNION ALL
    SELECT t.oid, t.typtype, t.typbasetype
      FROM base b
      JOIN pg_type t ON t.oid = b.typbasetype
     WHERE b.typtype = 'd')
  SELECT b.oid < 16384 FROM base b WHERE b.typtype <> 'd'
$$;

-- Why this table cannot be watched, or null.
CREATE OR REPLACE FUNCTION unwatchable(p_table regclass) RETURNS text
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT CASE
    WHEN c.relnamespace = quote_ident(current_schema())::regnamespace THEN
      format('%s is a table of Waybill itself, whose changes are no events: watch a table of the application', p_table)
    WHEN c.relkind NOT IN ('r', 'p') THEN format('%s is not a table: watch the table behind it', p_table)
    WHEN c.relpersistence = 't' THEN format('%s is a temporary table: watch one that stays', p_table)
    WHEN c.relispartition THEN
      format('%s is a partition, and statements on %2$s would go unseen: watch %2$s',
             p_table, pg_partition_root(p_table))
    WHEN c.relkind = 'r'
         AND EXISTS (SELECT FROM pg_inherits i WHERE p_table IN (i.inhrelid, i.inhparent)) THEN
      format('%s takes part in table inheritance, where statements on one table change another unseen: '
             'use a partitioned table', p_table)
    WHEN primary_key(p_table) IS NULL THEN
      format('table %s has no primary key, which is needed to tell its rows apart: '
             'add one (ALTER TABLE %1$s ADD PRIMARY KEY …)', p_table)
  END
    FROM pg_class c
   WHERE c.oid = p_table
$$;

-- Completes the definition of a watch with its defaults, or raises an error that names the problem. uses: every column
-- that the messages need, with its position; the primary key comes first.
CREATE OR REPLACE FUNCTION resolve_watch(p_table regclass, p_watch jsonb) RETURNS jsonb
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_given     jsonb := jsonb_strip_nulls(p_watch);
  v_id        jsonb := to_jsonb(primary_key(p_table));
  v_watch     jsonb;
  v_uses      text[];
  v_positions jsonb;
  v_problem   text := unwatchable(p_table);
BEGIN
  IF v_problem IS NULL THEN
    v_watch := jsonb_strip_nulls(jsonb_build_object(
      'topic', coalesce(v_given ->> 'topic', ''),
      'namespace', v_given -> 'namespace',
      'created', v_given -> 'created',
      'changed', v_given -> 'changed',
      'deleted', v_given -> 'deleted',
      'truncate', coalesce(v_given ->> 'truncate', 'refuse'),
      'oldValues', coalesce(v_given -> 'oldValues', 'false'),
      'id', v_id,
      'key', v_given -> 'key',
      'tenant', v_given -> 'tenant',
      'aggregateType', coalesce(v_given ->> 'aggregateType',
                                (SELECT c.relname FROM pg_class c WHERE c.oid = p_table)),
      'aggregateId', v_given -> 'aggregateId',
      'columns', coalesce(v_given -> 'columns', v_id),
      'when', coalesce(v_given -> 'when', v_given -> 'columns')));
    v_uses := ARRAY (
      SELECT u.name
        FROM jsonb_array_elements_text(
               v_id || jsonb_build_array(v_watch -> 'key', v_watch -> 'tenant', v_watch -> 'aggregateId')
                    || (v_watch -> 'columns') || coalesce(v_watch -> 'when', '[]'))
             WITH ORDINALITY u(name, position)
       WHERE u.name IS NOT NULL
       GROUP BY u.name
       ORDER BY min(u.position));
    v_problem := watch_refusal(p_table, v_watch, v_uses);
  END IF;
  IF v_problem IS NOT NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was changed.';
  END IF;
  SELECT jsonb_object_agg(u.name, u.position) INTO v_positions FROM unnest(v_uses) WITH ORDINALITY u(name, position);
  RETURN v_watch || jsonb_build_object(
    'uses', v_positions,
    'foreignTypes', watch_foreign_types(p_table, v_positions));
END $$;

-- Validates a watch: returns the first problem, or null.
CREATE OR REPLACE FUNCTION watch_refusal(p_table regclass, p_watch jsonb, p_uses text[]) RETURNS text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_events text[] := ARRAY[p_watch ->> 'created', p_watch ->> 'changed', p_watch ->> 'deleted'];
BEGIN
  RETURN coalesce(
    message_problem(p_watch ->> 'topic', p_watch ->> 'namespace', NULL, NULL, NULL, p_watch ->> 'aggregateType', 'id',
                    NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (SELECT message_problem(format('%s.%s', p_watch ->> 'topic', e), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
                            NULL, NULL, NULL, NULL, NULL)
       FROM unnest(v_events) e
      WHERE e IS NOT NULL
      ORDER BY 1
      LIMIT 1),
    CASE WHEN num_nonnulls(VARIADIC v_events) = 0 THEN
      'created, changed and deleted are all null: name at least one event' END,
    CASE WHEN p_watch ->> 'truncate' NOT IN ('refuse', 'report') THEN
      format('truncate "%s" must be "refuse" or "report"', left(p_watch ->> 'truncate', 60)) END,
    CASE WHEN jsonb_array_length(p_watch -> 'columns') = 0 OR jsonb_array_length(p_watch -> 'when') = 0 THEN
      'columns and when must not be empty: leave them out, or name columns' END,
    (SELECT format('column "%s" of %s does not exist: use %s', u.name, p_table,
                   (SELECT string_agg(c.attname, ', ' ORDER BY c.attnum)
                      FROM pg_attribute c
                     WHERE c.attrelid = p_table
                       AND c.attnum > 0
                       AND NOT c.attisdropped))
       FROM unnest(p_uses) WITH ORDINALITY u(name, position)
       LEFT JOIN pg_attribute a
         ON a.attrelid = p_table
        AND a.attname = u.name
        AND a.attnum > 0
        AND NOT a.attisdropped
      WHERE a.attnum IS NULL
      ORDER BY u.position
      LIMIT 1),
    (SELECT format('column "%s" of %s is generated whenever it is read, so triggers never see its value: '
                   'make it STORED, or use the columns that it is made from', a.attname, p_table)
       FROM pg_attribute a
      WHERE a.attrelid = p_table
        AND a.attname = ANY (p_uses)
        AND a.attgenerated = 'v'
      ORDER BY a.attnum
      LIMIT 1));
END $$;

-- The triggers that a watch needs, with the statements that create them. TRUNCATE of a partitioned table fires the
-- triggers of its partitions, so the partitions have that trigger and the table itself does not.
CREATE OR REPLACE FUNCTION watch_triggers(p_table regclass, p_watch jsonb)
RETURNS TABLE (relation regclass, name text, statement text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT t.relation, n.name,
         format('CREATE OR REPLACE TRIGGER %I %s ON %s %sFOR EACH STATEMENT %sEXECUTE FUNCTION %I.watch_event(%s)',
                n.name, k.event, t.relation, k.rows, k.condition, current_schema(),
                (SELECT string_agg(quote_literal(a), ', ')
                   FROM unnest(CASE k.kind
                          WHEN 'columns' THEN ARRAY[u.mark]
                          WHEN 'truncate' THEN ARRAY[p_watch::text, n.place]
                          ELSE ARRAY[p_watch::text, n.place,
                                     format(watch_row(p_watch, upper(k.kind)), VARIADIC u.names),
                                     watch_columns_trigger(p_watch ->> 'topic', u.names, quote_literal(u.mark))]
                        END) a))
    FROM (SELECT p_table AS relation UNION SELECT p.relid FROM pg_partition_tree(p_table) p) t
    JOIN pg_class c ON c.oid = t.relation
    JOIN (VALUES
           (1, 'insert', 'AFTER INSERT', 'REFERENCING NEW TABLE AS new_rows ', '', p_watch ? 'created'),
           (2, 'update', 'AFTER UPDATE', 'REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows ', '', true),
           (3, 'delete', 'AFTER DELETE', 'REFERENCING OLD TABLE AS old_rows ', '', p_watch ? 'deleted'),
           (4, 'truncate', 'AFTER TRUNCATE', '', '', p_watch ? 'deleted'),
           (5, 'columns',
            'BEFORE UPDATE OF ' || (SELECT string_agg(quote_ident(u.key), ', ' ORDER BY u.value::int)
                                      FROM jsonb_each_text(p_watch -> 'uses') u),
            '', 'WHEN (false) ', true)) k(position, kind, event, rows, condition, wanted)
      ON k.wanted
     AND NOT (k.kind = 'truncate' AND c.relkind = 'p')
     AND NOT (k.kind = 'columns' AND t.relation <> p_table)
   CROSS JOIN LATERAL (SELECT watch_trigger_name(p_watch ->> 'topic', k.kind) AS name,
                              CASE WHEN t.relation = p_table THEN 'table' ELSE 'partition' END AS place) n
   CROSS JOIN (SELECT array_agg(e.key ORDER BY e.value::int) AS names, md5(p_watch::text) AS mark
                 FROM jsonb_each_text(p_watch -> 'uses') e) u
   ORDER BY t.relation <> p_table, t.relation, k.position
$$;

-- The triggers that a watch has, needed or not.
CREATE OR REPLACE FUNCTION existing_watch_triggers(p_table regclass, p_topic text)
RETURNS TABLE (relation regclass, name text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT t.tgrelid::regclass, t.tgname
    FROM (SELECT p_table AS relation UNION SELECT p.relid FROM pg_partition_tree(p_table) p) r
    JOIN pg_trigger t
      ON t.tgrelid = r.relation
     AND t.tgfoid = 'watch_event'::regproc
     AND t.tgname IN (SELECT watch_trigger_name(p_topic, k)
                        FROM unnest('{insert,update,delete,truncate,columns}'::text[]) k)
   ORDER BY 1, 2
$$;

-- The partitions that were added since the table was watched; they have no triggers yet.
CREATE OR REPLACE FUNCTION new_partitions(p_table regclass, p_topic text)
RETURNS TABLE (relation regclass)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT p.relid
    FROM pg_partition_tree(p_table) p
   WHERE p.relid <> p_table
     AND p.relid NOT IN (SELECT e.relation FROM existing_watch_triggers(p_table, p_topic) e)
   ORDER BY p.relid
$$;

-- Why a watch misses changes, and what to do; null if it sees all of them.
CREATE OR REPLACE FUNCTION watch_problem(p_watch watches) RETURNS text
LANGUAGE plpgsql STABLE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  IF NOT EXISTS (SELECT FROM pg_class WHERE oid = p_watch.table_id) THEN
    RETURN 'the table was dropped: unwatch it, or watch the one in its place';
  END IF;
  RETURN coalesce(
    unwatchable(p_watch.table_id),
    (SELECT format('partition %s is new, and statements that name it are not seen: '
                   'the next maintenance adds its triggers, or watch the table again', p.relation)
       FROM new_partitions(p_watch.table_id, p_watch.topic) p
      LIMIT 1),
    (SELECT format('trigger %s on %s is %s: watch the table again', w.name, w.relation,
                   CASE
                     WHEN t.oid IS NULL THEN 'missing'
                     WHEN t.tgfoid <> 'watch_event'::regproc THEN 'not ours'
                     ELSE 'disabled'
                   END)
       FROM watch_triggers(p_watch.table_id, p_watch.definition) w
       LEFT JOIN pg_trigger t ON t.tgrelid = w.relation AND t.tgname = w.name
      WHERE t.oid IS NULL
         OR t.tgfoid <> 'watch_event'::regproc
         OR t.tgenabled NOT IN ('O', 'A')
      LIMIT 1),
    CASE WHEN primary_key(p_watch.table_id)
              <> (watch_names(p_watch.table_id, p_watch.topic))[1:jsonb_array_length(p_watch.definition -> 'id')]
         THEN 'the primary key is another one now: watch the table again' END);
END $$;

-- Creates or changes a watch; returns the statements that it ran. It does nothing if the watch is as given, so it can
-- be repeated at every start. It waits at most two seconds for transactions that write to the table, because other
-- sessions would wait behind it. Several owners can have the same watch.
CREATE OR REPLACE FUNCTION define_watch(p_table regclass, p_watch jsonb, p_owner text, p_dry_run boolean)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET lock_timeout = '2s'
AS $$
DECLARE
  v_known     watches;
  v_watch     jsonb;
  v_statement text;
  v_other     text;
BEGIN
  IF p_table IS NULL THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('table "%s" does not exist: write it as schema.table', left(p_watch ->> 'table', 130));
  END IF;
  PERFORM take_lock('watch');
  SELECT * INTO v_known FROM watches w WHERE w.table_id = p_table AND w.topic = p_watch ->> 'topic';
  IF v_known.given = p_watch AND p_owner = ANY (v_known.owners) AND watch_problem(v_known) IS NULL THEN
    RETURN;
  END IF;
  v_watch := resolve_watch(p_table, p_watch);
  v_other := (array_remove(v_known.owners, p_owner))[1];
  IF v_other IS NOT NULL AND v_known.definition <> v_watch THEN
    RAISE EXCEPTION USING ERRCODE = '22023', HINT = 'Nothing was changed.',
      MESSAGE = format('the watch "%s" of %s is defined by %s and by %s, with different settings: '
                       'give it another topic in one of them, or make both the same',
                       v_watch ->> 'topic', p_table, shown_owner(v_other), shown_owner(p_owner));
  END IF;

  IF v_known.definition IS DISTINCT FROM v_watch OR watch_problem(v_known) IS NOT NULL THEN
    FOR v_statement IN
      SELECT format('DROP TRIGGER %I ON %s', l.name, l.relation)
        FROM existing_watch_triggers(p_table, v_watch ->> 'topic') l
       WHERE (l.relation, l.name) NOT IN (SELECT t.relation, t.name FROM watch_triggers(p_table, v_watch) t)
      UNION ALL
      SELECT t.statement FROM watch_triggers(p_table, v_watch) t
    LOOP
      BEGIN
        IF NOT p_dry_run THEN EXECUTE v_statement; END IF;
      EXCEPTION WHEN insufficient_privilege THEN
        RAISE EXCEPTION USING ERRCODE = '42501',
          MESSAGE = format('%s may not put triggers on %s: %s', current_user, p_table, SQLERRM),
          HINT = format('GRANT TRIGGER ON %s TO %I lets relays make watches; '
                        'to change or end one takes the owner of the table.', p_table, current_user);
      END;
      RETURN NEXT v_statement;
    END LOOP;
  END IF;
  IF p_dry_run THEN RETURN; END IF;
  -- the table may have replaced a dropped table of the same name
  DELETE FROM watches w
   WHERE w.topic = v_watch ->> 'topic'
     AND w.table_name = p_table::text
     AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = w.table_id);
  INSERT INTO watches AS w (table_id, topic, table_name, given, definition, owners)
  VALUES (p_table, v_watch ->> 'topic', p_table::text, p_watch, v_watch, ARRAY[p_owner])
  ON CONFLICT (table_id, topic) DO UPDATE
    SET table_name = excluded.table_name, given = excluded.given, definition = excluded.definition,
        owners = array_remove(w.owners, p_owner) || p_owner, changed_at = clock_timestamp();
  PERFORM record_action(NULL, 'watch', jsonb_build_object('table', p_table::text, 'topic', v_watch ->> 'topic'), 1);
END $$;

-- Watches a table: its changes become messages with the topics topic.created, topic.changed and topic.deleted. created,
-- changed and deleted rename them; null switches one off. columns: the columns in the payload (default: the primary
-- key). when_changed: an update of these columns makes a message (default: columns, or any column). key, tenant and
-- aggregate_id name columns. aggregate_type is a word. The aggregate is by default the table's name and primary key.
-- Returns the statements that it ran; dry_run only returns them.
CREATE OR REPLACE FUNCTION watch(
  watched        regclass,
  topic          text,
  key            text DEFAULT NULL,
  tenant         text DEFAULT NULL,
  columns        text[] DEFAULT NULL,
  when_changed   text[] DEFAULT NULL,
  old_values     boolean DEFAULT false,
  created        text DEFAULT 'created',
  changed        text DEFAULT 'changed',
  deleted        text DEFAULT 'deleted',
  truncate       text DEFAULT 'refuse',
  namespace      text DEFAULT NULL,
  aggregate_type text DEFAULT NULL,
  aggregate_id   text DEFAULT NULL,
  dry_run        boolean DEFAULT false)
RETURNS SETOF text
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
AS $$
  SELECT define_watch(
    watched,
    jsonb_build_object(
      'topic', topic, 'key', key, 'tenant', tenant, 'columns', columns, 'when', when_changed, 'oldValues', old_values,
      'created', created, 'changed', changed, 'deleted', deleted, 'truncate', truncate, 'namespace', namespace,
      'aggregateType', aggregate_type, 'aggregateId', aggregate_id),
    'sql',
    dry_run)
$$;

-- Ends one watch. If the table is gone, only the row is deleted.
CREATE OR REPLACE FUNCTION end_watch(p_watch watches) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET lock_timeout = '2s'
AS $$
DECLARE
  v_trigger record;
BEGIN
  FOR v_trigger IN SELECT * FROM existing_watch_triggers(p_watch.table_id, p_watch.topic) LOOP
    EXECUTE format('DROP TRIGGER %I ON %s', v_trigger.name, v_trigger.relation);
  END LOOP;
  DELETE FROM watches w WHERE w.table_id = p_watch.table_id AND w.topic = p_watch.topic;
  PERFORM record_action(NULL, 'unwatch', jsonb_build_object('table', p_watch.table_name, 'topic', p_watch.topic), 1);
END $$;

-- Ends the watches of a table, or the one with this topic. The table may be gone. Returns how many it ended.
CREATE OR REPLACE FUNCTION unwatch(watched text, topic text DEFAULT NULL) RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_count int;
BEGIN
  SELECT count(*)
    INTO v_count
    FROM (SELECT end_watch(w)
            FROM watches w
           WHERE watched IN (w.table_id::text, w.table_name)
             AND (unwatch.topic IS NULL OR w.topic = unwatch.topic)
          OFFSET 0) e;
  IF v_count = 0 THEN
    RAISE EXCEPTION USING ERRCODE = 'P0002',
      MESSAGE = format('"%s" is not watched%s', left(watched, 130), ' with the topic ' || unwatch.topic),
      HINT = 'Watched: ' || coalesce(
        (SELECT string_agg(format('%s (%s)', w.table_name, w.topic), ', ' ORDER BY w.table_name) FROM watches w),
        'nothing');
  END IF;
  RETURN v_count;
END $$;

-- Adds missing triggers to new partitions of watched tables; returns the number of partitions. Without them, statements
-- on the table are seen, but statements that name the partition are not. A partition that is locked, or that this role
-- may not change, is left to the next call. Other problems of a watch need an operator.
CREATE OR REPLACE FUNCTION mend_watches() RETURNS int
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT SET lock_timeout = '200ms'
AS $$
DECLARE
  v_statements text;
  v_mended     int := 0;
BEGIN
  IF NOT owns_watches() THEN RETURN tend_watches(NULL, NULL, NULL, false, false); END IF;
  IF NOT try_lock('watch') THEN RETURN 0; END IF;
  FOR v_statements IN
    SELECT (SELECT string_agg(t.statement, '; ')
              FROM watch_triggers(w.table_id, w.definition) t
             WHERE t.relation = p.relation)
      FROM watches w
     CROSS JOIN LATERAL new_partitions(w.table_id, w.topic) p
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

-- The watches that an owner declares. Where its declarations differ, the newest of a living relay or of waybill apply
-- counts; without one, the newest of all.
CREATE OR REPLACE FUNCTION declared_watches(p_owner text, p_relay_id uuid) RETURNS SETOF jsonb
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT DISTINCT ON (w.value -> 'tableId', w.value -> 'topic') w.value
    FROM declarations d
   CROSS JOIN LATERAL jsonb_array_elements(d.watches) w
   WHERE d.owner = p_owner
     AND (d.seen_at > clock_timestamp() - declared_for() OR is_living(d.relay_id))
   ORDER BY w.value -> 'tableId', w.value -> 'topic', has_last_word(d, p_relay_id) DESC, d.made_at DESC
$$;

-- Declares the watches of a relay or of waybill apply, and creates the missing ones. Call it after sync_definitions,
-- which stores the declaration; apply_definitions calls it itself.
-- p_watches: [{table, tableId, topic, key, tenant, columns, when, oldValues, created, changed, deleted, truncate,
-- namespace, aggregateType, aggregateId}]. p_prune: ends at once watches that are not declared. p_dry_run: changes
-- nothing. Returns what changed or would change, as [{"change": "add" | "change" | "remove" | "leave", "watch": "table
-- topic"}].
CREATE OR REPLACE FUNCTION sync_watches(
  p_watches     jsonb,
  p_application text,
  p_relay_id    uuid,
  p_prune       boolean DEFAULT false,
  p_dry_run     boolean DEFAULT false)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_changes jsonb;
BEGIN
  IF NOT owns_watches() THEN
    RETURN tend_watches(p_watches, p_application, p_relay_id, p_prune, p_dry_run);
  END IF;
  SELECT coalesce(jsonb_agg(jsonb_build_object('change', CASE WHEN x.known THEN 'change' ELSE 'add' END,
                                               'watch', x.shown)), '[]')
    INTO v_changes
    FROM (SELECT format('%s %s', w ->> 'table', w ->> 'topic') AS shown,
                 EXISTS (
                   SELECT FROM watches k
                    WHERE k.table_id = (w ->> 'tableId')::oid
                      AND k.topic = w ->> 'topic') AS known,
                 (SELECT count(*)
                    FROM define_watch((w ->> 'tableId')::oid::regclass, w - 'tableId', p_application,
                                      p_dry_run)) AS statements
            FROM jsonb_array_elements(p_watches) w
          OFFSET 0) x
   WHERE x.statements > 0;
  BEGIN
    UPDATE declarations d
       SET watches = p_watches
     WHERE d.owner = p_application
       AND d.relay_id = p_relay_id;
    v_changes := v_changes || end_watches(p_application, p_relay_id, p_prune);
    IF p_dry_run THEN RAISE SQLSTATE 'WB001'; END IF;
  EXCEPTION WHEN SQLSTATE 'WB001' THEN
    NULL;
  END;
  RETURN v_changes;
END $$;

-- Ends the watches that an owner no longer declares. A watch of another owner stays. Without p_remove they are only
-- returned, as "leave".
CREATE OR REPLACE FUNCTION end_watches(p_owner text, p_relay_id uuid, p_remove boolean) RETURNS jsonb
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_watch   watches;
  v_changes jsonb := '[]';
BEGIN
  FOR v_watch IN
    SELECT w.*
      FROM watches w
     WHERE p_owner = ANY (w.owners)
       AND NOT EXISTS (
             SELECT FROM declared_watches(p_owner, p_relay_id) g
              WHERE (g ->> 'tableId')::oid = w.table_id
                AND g ->> 'topic' = w.topic)
  LOOP
    v_changes := v_changes || jsonb_build_object(
      'change', CASE WHEN p_remove THEN 'remove' ELSE 'leave' END,
      'watch', format('%s %s', v_watch.table_name, v_watch.topic));
    CONTINUE WHEN NOT p_remove;
    IF v_watch.owners = ARRAY[p_owner] THEN
      PERFORM end_watch(v_watch);
    ELSE
      UPDATE watches w
         SET owners = array_remove(w.owners, p_owner)
       WHERE w.table_id = v_watch.table_id
         AND w.topic = v_watch.topic;
    END IF;
  END LOOP;
  RETURN v_changes;
END $$;

-- Reconciles the watches of a running relay's application; relays call it every minute. It makes them match the newest
-- living declaration. If the calling relay has run for ten minutes, it ends watches that were not declared for ten
-- minutes. It does not repair a watch that is declared but broken: that needs an operator.
CREATE OR REPLACE FUNCTION reconcile_watches(p_relay_id uuid) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
  v_own declarations;
BEGIN
  IF NOT owns_watches() THEN
    PERFORM tend_watches(NULL, NULL, p_relay_id, false, false);
    RETURN;
  END IF;
  SELECT *
    INTO v_own
    FROM declarations d
   WHERE d.relay_id = p_relay_id
     AND d.seen_at > clock_timestamp() - declared_for()
     AND d.watches IS NOT NULL;
  IF NOT FOUND THEN RETURN; END IF;
  PERFORM define_watch((g ->> 'tableId')::oid::regclass, g - 'tableId', v_own.owner, false)
     FROM declared_watches(v_own.owner, p_relay_id) g
    WHERE EXISTS (SELECT FROM pg_class c WHERE c.oid = (g ->> 'tableId')::oid)
      AND NOT EXISTS (
            SELECT FROM watches w
             WHERE w.table_id = (g ->> 'tableId')::oid
               AND w.given = g - 'tableId'
               AND v_own.owner = ANY (w.owners));
  IF v_own.steady_since < clock_timestamp() - declared_for() THEN
    PERFORM end_watches(v_own.owner, p_relay_id, true);
  END IF;
END $$;

-- Whether the caller has the rights of the owner. If so, triggers are created with the caller's rights, which may be
-- wider.
CREATE OR REPLACE FUNCTION owns_watches() RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = 'watches'::regclass
$$;

-- Runs the functions above for relays without the owner's rights, with the rights of the owner: it works on tables for
-- which the owner has the TRIGGER right. Other roles may not call watch_event from their own triggers, because it
-- trusts its arguments. p_relay_id null: calls mend_watches. p_watches null: calls reconcile_watches.
CREATE OR REPLACE FUNCTION tend_watches(
  p_watches     jsonb,
  p_application text,
  p_relay_id    uuid,
  p_prune       boolean,
  p_dry_run     boolean)
RETURNS jsonb
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path FROM CURRENT
AS $$
BEGIN
  IF p_relay_id IS NULL THEN RETURN to_jsonb(mend_watches()); END IF;
  IF p_watches IS NOT NULL THEN
    RETURN sync_watches(p_watches, p_application, p_relay_id, p_prune, p_dry_run);
  END IF;
  PERFORM reconcile_watches(p_relay_id);
  RETURN '[]';
END $$;
