-- Endpoints without their secrets. failing_since: the first failure since the last success; null: none. fingerprints
-- identify the secrets that sign, the newest first. Counts stop at 100,000.
CREATE OR REPLACE VIEW endpoint_status WITH (security_invoker = true) AS
SELECT d.name, e.url, e.topics, e.tenant_id, e.namespace, e.description, e.body, e.auth - 'sealed' AS auth, e.filter,
       e.expire_after_ms, e.rate, e.concurrency, e.timeout_ms, coalesce(e.labels, '{}') AS labels,
       d.paused_at IS NULL AS enabled, d.paused_at, d.paused_by, d.paused_code, d.paused_reason, f.failing_since,
       ARRAY (
         SELECT s.value ->> 'fingerprint'
           FROM jsonb_array_elements(e.secrets) WITH ORDINALITY s
          ORDER BY s.ordinality) AS fingerprints,
       -- The orders are those of indexes. Without them, the planner reads whole tables when most deliveries belong to
       -- one destination.
       (SELECT count(*)
          FROM ((SELECT FROM deliveries w
                  WHERE w.destination_id = d.id
                    AND w.key_id IS NULL
                  ORDER BY w.available_at, w.message_id
                  LIMIT 100000)
                UNION ALL
                (SELECT FROM deliveries w
                  WHERE w.destination_id = d.id
                    AND w.key_id IS NOT NULL
                  ORDER BY w.key_id, w.sequence
                  LIMIT 100000)
                LIMIT 100000) x) AS waiting,
       (SELECT count(*)
          FROM (SELECT FROM dead_letters l
                 WHERE l.destination_id = d.id
                 ORDER BY l.dead_at, l.message_id
                 LIMIT 100000) x) AS dead,
       e.created_at, e.changed_at, e.removed_at
  FROM endpoints e
  JOIN destinations d ON d.id = e.destination_id
  LEFT JOIN endpoint_failures f ON f.destination_id = e.destination_id;
