-- The chat platform's own objects over Waybill: its outbox table is a view, its calls are functions, its logins have
-- the rights of these calls and no others. Run as an administrator after `waybill migrate up`; it can be run again.
-- Afterwards define the namespaces (namespaces.sql). The tables of turns and billing are in domain.sql.

-- Waybill's roles, under the prefix that this database has for them.
DO $$
BEGIN
  IF NOT EXISTS (SELECT FROM outbox.roles) THEN PERFORM outbox.install_roles(); END IF;
END $$;

-- chat_owner owns the functions below and cannot log in. chat_producer and chat_dispatcher are members of no role of
-- Waybill: the functions that they may call have the rights that these need.
DO $$
DECLARE
  v_login record;
  v_role  text;
BEGIN
  FOR v_login IN SELECT * FROM (VALUES
    ('chat_owner', 'NOLOGIN', '{producer,relay,auditor}'::text[]),
    ('chat_producer', 'LOGIN', '{}'),
    ('chat_dispatcher', 'LOGIN', '{}'),
    ('chat_billing', 'LOGIN', '{}'),
    ('chat_reader', 'LOGIN', '{auditor}'),
    ('chat_maintenance', 'LOGIN', '{relay,maintenance}')) l(name, kind, roles)
  LOOP
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = v_login.name) THEN
      EXECUTE format('CREATE ROLE %I %s', v_login.name, v_login.kind);
    END IF;
    FOR v_role IN
      SELECT r.name FROM outbox.roles r
       WHERE r.role = ANY (v_login.roles)
         AND NOT EXISTS (SELECT FROM pg_auth_members m
                          WHERE m.roleid = r.name::regrole AND m.member = v_login.name::regrole)
    LOOP
      EXECUTE format('GRANT %I TO %I', v_role, v_login.name);
    END LOOP;
  END LOOP;
END $$;

CREATE SCHEMA IF NOT EXISTS modkit;

-- Defines a namespace: its own destination with its own settings, a route, and dedupe keys that are kept for ever.
-- Its settings are fixed: the same call again changes nothing, and other settings are refused. Only administrators call
-- it, because it needs the rights of the owner of Waybill's schema.
CREATE OR REPLACE FUNCTION modkit.define_namespace(
  namespace text, max_attempts int, base_delay interval, max_delay interval)
RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_name    text := 'modkit.' || define_namespace.namespace;
  v_base_ms bigint := extract(epoch FROM base_delay) * 1000;
  v_max_ms  bigint := extract(epoch FROM max_delay) * 1000;
  v_fixed   outbox.destinations;
BEGIN
  IF v_name IS NULL OR v_name !~ '^modkit\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$' OR length(v_name) > 63 THEN
    RAISE EXCEPTION USING ERRCODE = '22023', MESSAGE = format(
      'namespace is %s: use words of letters, digits, _ and -, joined by ., at most 56 characters',
      coalesce('"' || left(define_namespace.namespace, 60) || '"', 'null'));
  END IF;
  SELECT * INTO v_fixed FROM outbox.destinations d WHERE d.name = v_name;
  IF NOT FOUND THEN
    PERFORM outbox.define_destination(v_name, p_max_attempts => define_namespace.max_attempts,
                                      p_retry_base_ms => v_base_ms, p_retry_max_ms => v_max_ms);
  ELSIF (v_fixed.max_attempts, v_fixed.retry_base_ms, v_fixed.retry_max_ms)
        IS DISTINCT FROM (define_namespace.max_attempts, v_base_ms, v_max_ms) THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('the settings of the namespace "%s" are fixed: max_attempts %s, base_delay %s ms, '
                       'max_delay %s ms',
                       define_namespace.namespace, v_fixed.max_attempts, v_fixed.retry_base_ms, v_fixed.retry_max_ms),
      HINT = 'Stop its dispatchers first, then change them as the README says.';
  END IF;
  PERFORM outbox.define_route('*', v_name, namespace => define_namespace.namespace);
  INSERT INTO outbox.retention_floors (namespace, dedupe_keys_days)
  VALUES (define_namespace.namespace, 'infinity')
  ON CONFLICT (topic, namespace) DO UPDATE SET dedupe_keys_days = 'infinity';
END $$;

-- The workers that have claimed something, by the token that Waybill knows them by. seen_at: when it claimed, within an
-- hour. One that was not seen for a day and holds nothing is forgotten; its next claim adds it again.
CREATE TABLE IF NOT EXISTS modkit.workers (
  token     uuid        PRIMARY KEY,
  worker_id text        NOT NULL,
  seen_at   timestamptz NOT NULL DEFAULT now()
);

-- The token of a worker, whose id may be any text.
CREATE OR REPLACE FUNCTION modkit.token_of(worker_id text) RETURNS uuid
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
  SELECT left(encode(sha256(convert_to(worker_id, 'UTF8')), 'hex'), 32)::uuid
$$;

-- The last failure of a message. A function, because its plan is cached: the view is planned with every query.
CREATE OR REPLACE FUNCTION modkit.last_error(p_message_id uuid, p_destination_id int) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  RETURN (
    SELECT coalesce(a.error_message, a.error_code)
      FROM outbox.attempts a
     WHERE a.message_id = p_message_id
       AND a.destination_id = p_destination_id
       AND (a.state IN ('retryable', 'failed', 'zombie_requeue')
            OR (a.state = 'released' AND a.error_code IS NOT NULL))
     ORDER BY a.claim_no DESC
     LIMIT 1);
END $$;

-- The platform's table. Its rows are the deliveries of the namespaces: pending, held, dead (from the copy of the dead
-- letter), and ended. Each part begins with the table that holds its state, so that a query for one status reads
-- nothing of the others. A message whose holder died is due at once, whatever ended its lease.
CREATE OR REPLACE VIEW public.modkit_outbox_events WITH (security_invoker = true) AS
SELECT e.id, e.namespace, e.topic,
       -- only the platform's own functions guarantee that it is a uuid
       CASE WHEN e.tenant_id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN e.tenant_id::uuid END AS tenant_id,
       e.dedupe_key, e.payload, e.status, e.attempts, e.next_attempt_at,
       coalesce((SELECT w.worker_id FROM modkit.workers w WHERE w.token = e.locked_by), e.locked_by::text) AS locked_by,
       e.locked_until,
       -- here and not in the parts: only for the rows of a list with a limit
       CASE WHEN e.may_have_failed THEN modkit.last_error(e.id, e.destination_id) END AS last_error,
       e.created_at, e.updated_at
  FROM (
    SELECT m.id, m.namespace, m.topic, m.tenant_id, m.dedupe_key, m.payload, 'pending' AS status, d.tries AS attempts,
           CASE WHEN f.error_code = 'zombie' THEN least(f.ended_at, d.available_at) ELSE d.available_at END
             AS next_attempt_at,
           NULL::uuid AS locked_by, NULL::timestamptz AS locked_until,
           d.destination_id, d.claim_no > 0 AS may_have_failed,
           coalesce(m.available_at, outbox.id_time(m.id)) AS created_at,
           coalesce(f.ended_at, outbox.id_time(m.id)) AS updated_at
      FROM outbox.deliveries d
      JOIN outbox.destinations t ON t.id = d.destination_id
      JOIN outbox.messages m ON m.id = d.message_id
      LEFT JOIN LATERAL (
             SELECT a.error_code, a.ended_at
               FROM outbox.attempts a
              WHERE a.message_id = d.message_id
                AND a.destination_id = d.destination_id
                AND (a.state IN ('retryable', 'failed', 'zombie_requeue')
                     OR (a.state = 'released' AND a.error_code IS NOT NULL))
              ORDER BY a.claim_no DESC
              LIMIT 1) f ON true
     WHERE t.name ^@ 'modkit.'
    UNION ALL
    SELECT m.id, m.namespace, m.topic, m.tenant_id, m.dedupe_key, m.payload, 'processing', c.tries, NULL, l.relay_id,
           -- the first claim has no failure before it
           l.expires_at, l.destination_id, c.claim_no > 1, coalesce(m.available_at, outbox.id_time(m.id)), l.claimed_at
      FROM outbox.leases l
      JOIN outbox.destinations t ON t.id = l.destination_id
     CROSS JOIN unnest(l.message_ids, l.claim_nos, l.tries) c(message_id, claim_no, tries)
      JOIN outbox.messages m ON m.id = c.message_id
     WHERE t.name ^@ 'modkit.'
       AND NOT EXISTS (
             SELECT FROM outbox.attempts a
              WHERE a.message_id = c.message_id
                AND a.destination_id = l.destination_id
                AND a.claim_no = c.claim_no)
    UNION ALL
    SELECT d.message_id, d.namespace, d.topic, d.tenant_id, d.dedupe_key, d.payload, 'dead', d.tries, NULL, NULL, NULL,
           d.destination_id, true,
           coalesce((SELECT m.available_at FROM outbox.messages m WHERE m.id = d.message_id),
                    outbox.id_time(d.message_id)), d.dead_at
      FROM outbox.dead_letters d
      JOIN outbox.destinations t ON t.id = d.destination_id
     WHERE t.name ^@ 'modkit.'
    UNION ALL
    SELECT m.id, m.namespace, m.topic, m.tenant_id, m.dedupe_key, m.payload, s.status, a.tries, NULL, NULL, NULL,
           a.destination_id, a.claim_no > 1, coalesce(m.available_at, outbox.id_time(m.id)), a.ended_at
      FROM outbox.attempts a
      JOIN (VALUES ('dispatched'::outbox.attempt_state, 'delivered'), ('discarded', 'discarded')) s(state, status)
        ON s.state = a.state
      JOIN outbox.destinations t ON t.id = a.destination_id
      JOIN outbox.messages m ON m.id = a.message_id
     WHERE t.name ^@ 'modkit.'
       -- after a replay it is pending, held or dead, or has ended again
       AND NOT EXISTS (
             SELECT FROM outbox.attempts n
              WHERE n.message_id = a.message_id
                AND n.destination_id = a.destination_id
                AND n.claim_no > a.claim_no)
       AND NOT EXISTS (
             SELECT FROM outbox.deliveries d
              WHERE d.message_id = a.message_id
                AND d.destination_id = a.destination_id)
       AND NOT EXISTS (
             SELECT FROM outbox.dead_letters d
              WHERE d.message_id = a.message_id
                AND d.destination_id = a.destination_id)
       AND NOT EXISTS (
             SELECT FROM outbox.leases l, unnest(l.message_ids, l.claim_nos) c(message_id, claim_no)
              WHERE l.destination_id = a.destination_id
                AND c.message_id = a.message_id
                AND c.claim_no > a.claim_no)
  ) e;

-- For lookups in the view by the dedupe key. A hash index, because the keys are long.
CREATE INDEX IF NOT EXISTS messages_by_dedupe_key ON outbox.messages USING hash (dedupe_key);

-- The destination of a namespace; refuses one that is not defined.
CREATE OR REPLACE FUNCTION modkit.destination_of(namespace text) RETURNS outbox.destinations
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  v_found outbox.destinations;
BEGIN
  SELECT * INTO v_found FROM outbox.destinations d WHERE d.name = 'modkit.' || destination_of.namespace;
  IF NOT FOUND THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('namespace is %s: give one that modkit.define_namespace has defined: %s',
                       coalesce('"' || left(destination_of.namespace, 60) || '"', 'null'),
                       coalesce((SELECT string_agg(substr(d.name, 8), ', ' ORDER BY d.name)
                                   FROM outbox.destinations d WHERE d.name LIKE 'modkit.%'), 'there is none yet'));
  END IF;
  RETURN v_found;
END $$;

-- Writes a message in the caller's transaction. For a repeat, duplicate is true and id is that of the first message.
-- There is no argument for an ordering key, so all messages of the platform are in one queue, by creation.
-- The first component of a dedupe key is a tenant if it is a uuid, so the key alone tells the tenant. Waybill's primary
-- key (namespace, tenant, topic, dedupe key) therefore is unique (namespace, topic, dedupe_key) here.
-- available_at: the creation time, which is also the place in the queue.
CREATE OR REPLACE FUNCTION modkit.enqueue(
  namespace text, topic text, tenant_id uuid, dedupe_key text, payload jsonb, OUT id uuid, OUT duplicate boolean)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_first text := split_part(enqueue.dedupe_key, '/', 1);
BEGIN
  PERFORM modkit.destination_of(enqueue.namespace);
  IF v_first <> coalesce(enqueue.tenant_id::text, '')
     AND (enqueue.tenant_id IS NOT NULL OR v_first ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$') THEN
    RAISE EXCEPTION USING ERRCODE = '22023', HINT = 'Nothing was enqueued.',
      MESSAGE = format('dedupe_key is "%s" and tenant_id is %s: the tenant must be the first component of the key, '
                       '{tenant_id}/{turn_id}/{request_id}',
                       left(enqueue.dedupe_key, 120), coalesce('"' || enqueue.tenant_id::text || '"', 'null'));
  END IF;
  SELECT e.id, e.duplicate INTO id, duplicate
    FROM outbox.enqueue(enqueue.topic, enqueue.payload, namespace => enqueue.namespace,
                        tenant_id => enqueue.tenant_id::text, dedupe_key => enqueue.dedupe_key,
                        available_at => clock_timestamp()) e;
END $$;

-- The settings of a namespace, which its dispatchers have in common.
CREATE OR REPLACE FUNCTION modkit.settings(
  namespace text, OUT max_attempts int, OUT base_delay_ms bigint, OUT max_delay_ms bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT d.max_attempts, d.retry_base_ms, d.retry_max_ms FROM modkit.destination_of(namespace) d
$$;

-- Claims due and quarantined messages of one namespace, the oldest first, and ends expired leases. attempt: the number of
-- this claim, for ack and nack. attempts: how often it was tried, this time included.
CREATE OR REPLACE FUNCTION modkit.claim_batch(
  namespace text, worker_id text, batch_size int, lease_duration interval, max_attempts int)
RETURNS TABLE (id uuid, attempt int, topic text, tenant_id uuid, dedupe_key text, payload jsonb, attempts int,
               created_at timestamptz)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
  v_destination outbox.destinations := modkit.destination_of(claim_batch.namespace);
BEGIN
  IF claim_batch.max_attempts IS DISTINCT FROM v_destination.max_attempts THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('max_attempts is %s: the namespace "%s" has %s, for all of its dispatchers',
                       coalesce(claim_batch.max_attempts::text, 'null'), claim_batch.namespace,
                       v_destination.max_attempts);
  END IF;
  IF claim_batch.worker_id IS NULL OR claim_batch.worker_id = '' OR length(claim_batch.worker_id) > 255 THEN
    RAISE EXCEPTION USING ERRCODE = '22023',
      MESSAGE = format('worker_id is %s: give a name of this worker, 1 to 255 characters, that no other worker has',
                       coalesce('"' || left(claim_batch.worker_id, 60) || '"', 'null'));
  END IF;
  INSERT INTO modkit.workers AS w (token, worker_id)
  VALUES (modkit.token_of(claim_batch.worker_id), claim_batch.worker_id)
  ON CONFLICT (token) DO UPDATE SET seen_at = now() WHERE w.seen_at < now() - interval '1 hour';
  -- a new worker, or an hour later
  IF FOUND THEN
    DELETE FROM modkit.workers w
     WHERE w.token IN (
             SELECT o.token
               FROM modkit.workers o
              WHERE o.seen_at < now() - interval '1 day'
                AND NOT EXISTS (SELECT FROM outbox.leases l WHERE l.relay_id = o.token)
                FOR UPDATE SKIP LOCKED);
  END IF;
  RETURN QUERY
    SELECT c.message_id, c.claim_no, c.topic, c.tenant_id::uuid, c.dedupe_key, c.payload, c.tries,
           coalesce((SELECT m.available_at FROM outbox.messages m WHERE m.id = c.message_id), c.created_at)
      FROM outbox.claim_in_order(v_destination.name, modkit.token_of(claim_batch.worker_id), batch_size,
                                 lease_duration) c;
END $$;

-- Whether this worker holds this attempt of the message now: its lease has not expired.
CREATE OR REPLACE FUNCTION modkit.holds(namespace text, worker_id text, id uuid, attempt int) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
  SELECT EXISTS (SELECT FROM outbox.active_claims c
                  WHERE c.relay_id = modkit.token_of(holds.worker_id)
                    AND c.message_id = holds.id
                    AND c.claim_no = holds.attempt
                    AND c.destination_id = (modkit.destination_of(holds.namespace)).id
                    AND c.expires_at > clock_timestamp())
$$;

-- Delivered. False: the worker has lost the lease, and nothing was changed.
CREATE OR REPLACE FUNCTION modkit.ack(namespace text, worker_id text, id uuid, attempt int) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN modkit.holds(ack.namespace, ack.worker_id, ack.id, ack.attempt) THEN
    outbox.ack(modkit.token_of(ack.worker_id), ack.id, attempt => ack.attempt,
               destination => 'modkit.' || ack.namespace) ELSE false END
$$;

-- Failed: it is tried again after the delay of its namespace, or is dead after the last attempt. False: as above.
CREATE OR REPLACE FUNCTION modkit.nack(namespace text, worker_id text, id uuid, attempt int, error text) RETURNS boolean
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT CASE WHEN modkit.holds(nack.namespace, nack.worker_id, nack.id, nack.attempt) THEN
    outbox.nack(modkit.token_of(nack.worker_id), nack.id, nack.error, attempt => nack.attempt,
                destination => 'modkit.' || nack.namespace) ELSE false END
$$;

-- Gives back what was claimed and never sent: no attempt is spent.
CREATE OR REPLACE FUNCTION modkit.release(namespace text, worker_id text, ids uuid[]) RETURNS int
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT coalesce(sum((outbox.settle(h.lease_id, modkit.token_of(release.worker_id), h.ids, h.attempts,
                                     array_fill('release'::outbox.outcome, ARRAY[cardinality(h.ids)]))).settled),
                  0)::int
    FROM (SELECT c.lease_id, array_agg(c.message_id) AS ids, array_agg(c.claim_no) AS attempts
            FROM outbox.active_claims c
           WHERE c.relay_id = modkit.token_of(release.worker_id)
             AND c.message_id = ANY (release.ids)
             AND c.destination_id = (modkit.destination_of(release.namespace)).id
           GROUP BY c.lease_id) h
$$;

ALTER TABLE modkit.workers OWNER TO chat_owner;
ALTER FUNCTION modkit.token_of OWNER TO chat_owner;
ALTER FUNCTION modkit.last_error OWNER TO chat_owner;
ALTER FUNCTION modkit.destination_of OWNER TO chat_owner;
ALTER FUNCTION modkit.enqueue OWNER TO chat_owner;
ALTER FUNCTION modkit.settings OWNER TO chat_owner;
ALTER FUNCTION modkit.claim_batch OWNER TO chat_owner;
ALTER FUNCTION modkit.holds OWNER TO chat_owner;
ALTER FUNCTION modkit.ack OWNER TO chat_owner;
ALTER FUNCTION modkit.nack OWNER TO chat_owner;
ALTER FUNCTION modkit.release OWNER TO chat_owner;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA modkit FROM PUBLIC;
REVOKE ALL ON modkit.workers, public.modkit_outbox_events FROM PUBLIC;
GRANT USAGE ON SCHEMA modkit TO chat_owner, chat_producer, chat_dispatcher, chat_reader;
GRANT EXECUTE ON FUNCTION modkit.enqueue TO chat_producer;
GRANT EXECUTE ON FUNCTION modkit.settings, modkit.claim_batch, modkit.ack, modkit.nack, modkit.release
  TO chat_dispatcher;
GRANT SELECT ON public.modkit_outbox_events, modkit.workers TO chat_reader;
GRANT EXECUTE ON FUNCTION modkit.last_error TO chat_reader;
