-- Last step of the upgrade (UPGRADE.md): moves the rows of the old table. It fails, and with it the whole transaction,
-- if a row does not fit.

DO $$
DECLARE
  v_problem text;
BEGIN
  SELECT p.problem INTO v_problem
    FROM (SELECT format('the namespace "%s" has no settings: add it to namespaces.sql', o.namespace) AS problem
            FROM public.modkit_outbox_events_old o
           WHERE NOT EXISTS (SELECT FROM outbox.destinations d WHERE d.name = 'modkit.' || o.namespace)
          UNION ALL
          -- the rule of modkit.enqueue, by which the key alone tells the tenant
          SELECT format('the event %s has the dedupe_key "%s" and the tenant_id %s: correct one of them', o.id,
                        left(o.dedupe_key, 120), coalesce(o.tenant_id::text, 'null'))
            FROM public.modkit_outbox_events_old o
           WHERE split_part(o.dedupe_key, '/', 1) <> coalesce(o.tenant_id::text, '')
             AND (o.tenant_id IS NOT NULL
                  OR split_part(o.dedupe_key, '/', 1) ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')) p
   LIMIT 1;
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = v_problem, HINT = 'Nothing was changed.';
  END IF;
END $$;

-- Work that has not ended, and dead events, become messages, the oldest first. Waybill makes the ids, so the old one is
-- kept as the header moved_from. The creation time stays, as the time by which the message is claimed; one in the future
-- counts as now. A row at the maximum of attempts would never have been claimed again: it is dead.
CREATE TEMPORARY TABLE moved ON COMMIT DROP AS
SELECT o.id AS old_id, e.id AS new_id, e.duplicate, o.destination_id, o.status, o.attempts, o.last_error,
       o.updated_at, o.status = 'dead' OR o.attempts >= o.max_attempts AS is_dead,
       CASE o.status WHEN 'processing' THEN coalesce(o.locked_until, now()) ELSE o.next_attempt_at END AS due_at
  -- the only join after the ORDER BY calls the function for each row in turn: another one could change the order
  FROM (SELECT x.*, d.id AS destination_id, d.max_attempts
          FROM public.modkit_outbox_events_old x
          JOIN outbox.destinations d ON d.name = 'modkit.' || x.namespace
         WHERE x.status <> 'delivered'
         ORDER BY x.created_at, x.id) o
 CROSS JOIN LATERAL outbox.enqueue(
         o.topic, o.payload, namespace => o.namespace, tenant_id => o.tenant_id::text, dedupe_key => o.dedupe_key,
         headers => jsonb_build_object('moved_from', o.id), available_at => least(o.created_at, now())) e;

-- Each row has become one new message.
DO $$
BEGIN
  IF EXISTS (SELECT FROM moved m WHERE m.duplicate)
     OR (SELECT count(*) FROM moved)
        <> (SELECT count(*) FROM public.modkit_outbox_events_old o WHERE o.status <> 'delivered') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', HINT = 'Nothing was changed.',
      MESSAGE = 'an event of the old table was already enqueued here: '
                || coalesce((SELECT m.old_id::text FROM moved m WHERE m.duplicate LIMIT 1),
                            'none, but rows are missing');
  END IF;
END $$;

-- All attempts of the old table are one record here: their number, the last error and when it was.
INSERT INTO outbox.attempts (message_id, destination_id, claim_no, tries, state, ended_at, error_code, error_message)
SELECT m.new_id, m.destination_id, 1, m.attempts,
       CASE WHEN m.is_dead THEN 'failed'
            WHEN m.status = 'processing' THEN 'zombie_requeue'
            ELSE 'retryable' END::outbox.attempt_state,
       m.updated_at, 'moved', m.last_error
  FROM moved m
 WHERE m.attempts > 0 OR m.is_dead;

-- An event that an old dispatcher holds is due when its old lease is over. One that was never tried keeps its place by
-- creation, unless it is not due yet.
UPDATE outbox.deliveries d
   SET claim_no = least(m.attempts, 1), tries = m.attempts, delay_ms = NULL, available_at = m.due_at
  FROM moved m
 WHERE d.message_id = m.new_id
   AND d.destination_id = m.destination_id
   AND (m.attempts > 0 OR m.due_at > now());

INSERT INTO outbox.dead_letters (message_id, destination_id, dead_at, claim_no, tries, reason, error_code,
                                 error_message, created_at, bytes, namespace, topic, tenant_id, dedupe_key, headers,
                                 payload)
SELECT x.id, m.destination_id, m.updated_at, 1, m.attempts, 'exhausted', 'moved', m.last_error, x.created_at, x.bytes,
       x.namespace, x.topic, x.tenant_id, x.dedupe_key, x.headers, x.payload
  FROM moved m
  JOIN outbox.messages x ON x.id = m.new_id
 WHERE m.is_dead;
DELETE FROM outbox.deliveries d
 USING moved m
 WHERE d.message_id = m.new_id
   AND d.destination_id = m.destination_id
   AND m.is_dead;

-- The dedupe keys of delivered events, with the old id: a late repeat gets it as its answer. The others were added
-- above. A conflict fails: it would be a second event with the same key.
INSERT INTO outbox.dedupe_keys (message_id, namespace, tenant_id, topic, dedupe_key)
SELECT o.id, o.namespace, coalesce(o.tenant_id::text, ''), o.topic, o.dedupe_key
  FROM public.modkit_outbox_events_old o
 WHERE o.status = 'delivered'
   AND o.dedupe_key IS NOT NULL;
