-- Hooks of rollouts: what the core finds by name. See sql/functions/access/hooks.sql.

-- Who may call the functions of rollouts.
CREATE OR REPLACE FUNCTION rights_of_rollouts() RETURNS TABLE (roles text[], functions text[])
LANGUAGE sql IMMUTABLE
AS $$
  VALUES
    ('{producer}'::text[], '{rollout_decision,report_sent}'::text[]),
    ('{relay}', '{record_shadow}'),
    ('{maintenance}', '{prune_shadow_comparisons}'),
    ('{operator}', '{set_rollout,report_sent}'),
    ('{control,auditor}', '{rollout_report,compare_shadow}')
$$;

-- The tables of rollouts.
CREATE OR REPLACE FUNCTION tables_of_rollouts() RETURNS text[]
LANGUAGE sql IMMUTABLE
AS $$
  SELECT '{rollouts,shadow_comparisons,rollout_decisions}'::text[]
$$;

-- Explains a message that a rollout left to the other system.
CREATE OR REPLACE FUNCTION explanations_of_rollouts(p_message_id uuid)
RETURNS TABLE (destination text, status text, reason text, sentence text, remedy text)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
AS $$
  SELECT d.name, 'left', 'left_by_rollout',
         format('The rollout %s left it to the other system when it was enqueued; now it sends %s.', o.name,
                CASE WHEN o.shadow THEN 'nothing, and compares' ELSE trim_scale(o.percent) || ' %' END),
         NULL
    FROM messages m
    JOIN routes r ON route_matches(r.topic, r.namespace, r.tenant_id, m.topic, m.namespace, m.tenant_id)
    JOIN rollouts o ON o.name = r.split_by
    JOIN destinations d ON d.id = o.destination_id
   WHERE m.id = p_message_id
     AND NOT EXISTS (SELECT FROM unrouted_messages u WHERE u.message_id = p_message_id)
$$;
