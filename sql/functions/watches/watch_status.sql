-- Watches, and whether they see every change: problem says why not, and what to do.
CREATE OR REPLACE VIEW watch_status WITH (security_invoker = true) AS
SELECT CASE WHEN c.oid IS NULL THEN w.table_name ELSE format('%I.%I', n.nspname, c.relname) END AS watched,
       w.topic,
       w.definition ->> 'created' AS created,
       w.definition ->> 'changed' AS changed,
       w.definition ->> 'deleted' AS deleted,
       w.definition ->> 'truncate' AS truncate,
       w.definition -> 'columns' AS columns,
       w.definition -> 'when' AS when_changed,
       w.definition ->> 'key' AS key,
       w.definition ->> 'tenant' AS tenant,
       w.owners,
       w.changed_at,
       watch_problem(w) AS problem
  FROM watches w
  LEFT JOIN pg_class c ON c.oid = w.table_id
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace;
