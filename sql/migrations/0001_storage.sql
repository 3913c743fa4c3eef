-- Storage: the tables of the core. The files of the folder 0001_storage, one for each feature, belong to the same
-- migration and are run after this one. Three kinds of data with three lifetimes are never mixed in one table:
--
--   messages    written once in the producer's transaction, never updated
--   deliveries  small and busy: one row per pending (message, destination), deleted when claimed
--   attempts    the archive: one append-only row per claim and how it ended
--
-- A (message, destination) is always in exactly one place: deliveries (pending), a lease (processing), dead_letters
-- (dead), or ended for good in attempts (delivered, discarded).
--
-- All files under sql/ name their objects without a schema. The caller puts the schema first on the search_path, and
-- functions keep that path (SET search_path FROM CURRENT). So the schema can have any name, and psql can run each file:
--   PGOPTIONS='-c search_path=outbox,pg_temp' psql -f sql/migrations/0001_storage.sql
--
-- Added in Waybill 0.2.0.

-- How a claim ended. Claims in flight have no attempt yet: they are in leases.
CREATE TYPE attempt_state AS ENUM
  ('dispatched', 'retryable', 'failed', 'zombie_requeue', 'released', 'discarded');

-- What the holder of a claim reports. 'pause' is a release that also pauses the destination. 'zombie' is reported by
-- the reaper for a holder whose lease expired. 'discard': the message was not sent, and will not be (it has expired).
CREATE TYPE outcome AS ENUM ('delivered', 'retry', 'reject', 'release', 'pause', 'zombie', 'discard');

-- Size limits of a message, as text: one row, which only the owner of the schema can change. The upper bounds keep
-- every message far below the longest string that a relay can hold: see readable_bytes.
CREATE TABLE message_limits (
  one           boolean PRIMARY KEY DEFAULT true CHECK (one),
  payload_bytes int     NOT NULL DEFAULT 1048576 CHECK (payload_bytes BETWEEN 1 AND 67108864),
  header_bytes  int     NOT NULL DEFAULT 65536 CHECK (header_bytes BETWEEN 1 AND 1048576)
);
INSERT INTO message_limits DEFAULT VALUES;

-- Messages: the log. Partitioned by id: a UUIDv7 contains its time, so the primary key is the partition key, each
-- partition is a day, and retention drops whole partitions. Only the database creates ids. bytes: the size of payload
-- and headers as text, which is what a claim reads. The stored size differs, because values are compressed, and a
-- number such as 1e131071 takes a few bytes. It is not a generated column: preparing its expression takes 40
-- microseconds in every statement, a fifth of an enqueue. available_at: the due time that the producer gave itself;
-- null: none. created_at and the time in the id are always the time of the enqueue.
CREATE TABLE messages (
  id             uuid        NOT NULL,
  created_at     timestamptz NOT NULL,
  available_at   timestamptz,
  transaction_id xid8        NOT NULL,
  key_id         bigint,
  sequence       bigint,
  bytes          int         NOT NULL,
  namespace      text        NOT NULL,
  topic          text        NOT NULL,
  tenant_id      text,
  key            text,
  dedupe_key     text,
  aggregate_type text,
  aggregate_id   text,
  headers        jsonb,
  payload        jsonb       NOT NULL,
  PRIMARY KEY (id)
) PARTITION BY RANGE (id);
-- The filters of lists. Their last column is the slot of the id (id_slot, about a minute), not the id: entries of
-- one value and one slot are equal, so PostgreSQL stores them as one entry with a list of rows, at 6 bytes a row. A
-- list reads whole slots and sorts each of them by id. The expression must be that of id_slot, which the planner
-- inlines. See docs/internals/decisions/0039-filters-are-indexed-by-slots-of-time.md.
CREATE INDEX messages_by_topic ON messages (topic, (('x' || left(id::text, 8))::bit(32)::bigint));
CREATE INDEX messages_by_tenant ON messages (tenant_id, (('x' || left(id::text, 8))::bit(32)::bigint))
  WHERE tenant_id IS NOT NULL;
CREATE INDEX messages_by_aggregate ON messages (aggregate_id, (('x' || left(id::text, 8))::bit(32)::bigint))
  WHERE aggregate_id IS NOT NULL;
CREATE INDEX messages_by_key ON messages (key_id, (('x' || left(id::text, 8))::bit(32)::bigint))
  WHERE key_id IS NOT NULL;
-- for cursors: messages that committed since the last read, whatever the clock said meanwhile
CREATE INDEX messages_by_transaction ON messages (transaction_id);

-- One row per ordering key. Its messages are numbered from 1 without gaps. A producer that takes a number locks the row
-- until the end of its transaction, so the order of the numbers is the order of the commits. Rows are kept for ever, or
-- until forget_keys removes a key that was not used for long.
-- tenant_id is '' for none, because the key has to be unique.
-- last_used_at has no index: the row changes with every message, and its updates must stay within the page.
-- last_transaction: the transaction that took the last number. stepped_from: the one that took the number before it, if
-- the clock has stepped back in between.
CREATE TABLE keys (
  id               bigint      GENERATED ALWAYS AS IDENTITY UNIQUE,
  next_sequence    bigint      NOT NULL,
  namespace        text        NOT NULL,
  tenant_id        text        NOT NULL,
  key              text        NOT NULL,
  last_used_at     timestamptz NOT NULL DEFAULT now(),
  last_transaction xid8        NOT NULL DEFAULT pg_current_xact_id(),
  stepped_from     xid8,
  PRIMARY KEY (namespace, tenant_id, key)
) WITH (fillfactor = 70);
-- for searches by key without a namespace or tenant
CREATE INDEX keys_by_key ON keys (key);

-- Pending deliveries: one row per message and destination, deleted when it is claimed.
-- claim_no grows with every claim and is never reused: it is the fencing token.
-- tries counts attempts in which the message was or may have been sent; max_attempts limits it, and a replay resets it.
-- quarantined: its last lease expired (zombie requeue), so the next claim takes this message alone.
-- key_id and sequence: set for a message with a key, which waits in its lane instead of the queue.
-- tenant_id: the tenant; '' for a message without a tenant at a destination with fairness.
-- delay_ms: the delay from which available_at was computed; null: none; -1: the producer gave the time itself. It shows
-- whether available_at was computed while the clock ran ahead: see sql/functions/upkeep/misdated.sql.
CREATE TABLE deliveries (
  message_id     uuid        NOT NULL,
  available_at   timestamptz NOT NULL,
  key_id         bigint,
  sequence       bigint,
  claim_no       int         NOT NULL DEFAULT 0,
  tries          int         NOT NULL DEFAULT 0,
  bytes          int         NOT NULL,
  destination_id int         NOT NULL,
  quarantined    boolean     NOT NULL DEFAULT false,
  delay_ms       bigint,
  namespace      text        NOT NULL,
  tenant_id      text        COLLATE "C",
  PRIMARY KEY (message_id, destination_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deliveries_due ON deliveries (destination_id, available_at, message_id) WHERE key_id IS NULL;
CREATE INDEX deliveries_due_by_tenant ON deliveries (destination_id, tenant_id, available_at, message_id)
  WHERE tenant_id IS NOT NULL AND key_id IS NULL;
CREATE INDEX deliveries_in_lane ON deliveries (destination_id, key_id, sequence) WHERE key_id IS NOT NULL;
-- the column tries keeps the planner from using another index in its place
CREATE INDEX deliveries_quarantined ON deliveries (destination_id, tries, message_id) WHERE quarantined;
CREATE INDEX deliveries_retrying ON deliveries (destination_id, available_at, message_id) WHERE tries > 0;
-- for claim_in_order: retries, and what an operator has retried or replayed
CREATE INDEX deliveries_requeued ON deliveries (destination_id, available_at) WHERE claim_no > 0;

-- Lanes: one key at one destination, for as long as the key is kept. available_at: when its first message is due; null
-- while it has no pending message or a lease holds it. blocked_by: the dead letter that blocks it. last_sequence: the
-- last sequence that has ended.
CREATE TABLE lanes (
  destination_id int         NOT NULL,
  key_id         bigint      NOT NULL,
  available_at   timestamptz,
  last_sequence  bigint      NOT NULL DEFAULT 0,
  lease_id       uuid,
  blocked_by     uuid,
  namespace      text        NOT NULL,
  tenant_id      text        COLLATE "C",
  PRIMARY KEY (destination_id, key_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lanes_due ON lanes (destination_id, available_at, key_id)
  WHERE available_at IS NOT NULL AND blocked_by IS NULL;
CREATE INDEX lanes_due_by_tenant ON lanes (destination_id, tenant_id, available_at, key_id)
  WHERE available_at IS NOT NULL AND blocked_by IS NULL AND tenant_id IS NOT NULL;
CREATE INDEX lanes_blocked ON lanes (blocked_by, destination_id) WHERE blocked_by IS NOT NULL;

-- Tickets: tell relays to check a lane, so that producers never write to lanes. Relays delete them. recheck: check the
-- lane even if it waits for a retry, because its first message may have changed.
CREATE TABLE lane_tickets (
  id             bigint  GENERATED ALWAYS AS IDENTITY,
  key_id         bigint  NOT NULL,
  destination_id int     NOT NULL,
  recheck        boolean NOT NULL DEFAULT false,
  PRIMARY KEY (destination_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

-- Leases: one row per claimed batch. remaining counts the messages whose claim has not ended. key_ids and sequences are
-- null if no message of the lease has a key.
CREATE TABLE leases (
  id             uuid        PRIMARY KEY,
  relay_id       uuid        NOT NULL,
  claimed_at     timestamptz NOT NULL,
  expires_at     timestamptz NOT NULL,
  duration       interval    NOT NULL,
  remaining      int         NOT NULL,
  destination_id int         NOT NULL,
  quarantined    boolean     NOT NULL,
  message_ids    uuid[]      NOT NULL,
  claim_nos      int[]       NOT NULL,
  tries          int[]       NOT NULL,
  key_ids        bigint[],
  sequences      bigint[]
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 200);
-- ids do not compress, so trying is a waste; the counters do, because they are nearly always the same number
ALTER TABLE leases ALTER message_ids SET STORAGE EXTERNAL;
CREATE INDEX leases_by_relay ON leases (relay_id);

-- The messages that a claim takes: parallel arrays, in the order of the claim.
CREATE TYPE taken AS (
  message_ids        uuid[],
  claim_nos          int[],
  tries              int[],
  available_at       timestamptz[],
  key_ids            bigint[],
  sequences          bigint[],
  previous_sequences bigint[],
  bytes              bigint,
  quarantined        boolean
);

-- Attempts: one append-only row per claim and how it ended. The primary key enforces exactly one ending per claim: the
-- first recorded one wins. response: the beginning of the destination's answer.
CREATE TABLE attempts (
  message_id     uuid          NOT NULL,
  claimed_at     timestamptz,
  ended_at       timestamptz   NOT NULL,
  relay_id       uuid,
  claim_no       int           NOT NULL,
  tries          int           NOT NULL,
  latency_ms     int,
  state          attempt_state NOT NULL,
  destination_id int           NOT NULL,
  error_code     text,
  remote_code    text,
  error_message  text,
  reference      text,
  response       text,
  PRIMARY KEY (message_id, destination_id, claim_no)
) PARTITION BY RANGE (message_id);
CREATE INDEX attempts_by_code ON attempts (error_code, message_id) WHERE error_code IS NOT NULL;
-- for readers that follow what ended recently; a B-tree would make settling slower by a quarter
CREATE INDEX attempts_by_end ON attempts USING brin (ended_at) WITH (pages_per_range = 16, autosummarize = on);

-- Identities: the fields that identify a message, kept for as long as its attempts. They are copied when retention
-- removes the messages of a day, only for topics whose retention floor asks for it (keeps_identity): see
-- sql/functions/upkeep/identities.sql. Partitions are days, and exist only where there is something to keep.
CREATE TABLE message_identities (
  message_id     uuid   NOT NULL,
  sequence       bigint,
  namespace      text   NOT NULL,
  topic          text   NOT NULL,
  tenant_id      text,
  key            text,
  dedupe_key     text,
  aggregate_type text,
  aggregate_id   text,
  PRIMARY KEY (message_id)
) PARTITION BY RANGE (message_id);

-- Dead letters: deliveries that failed for good and need an operator, each with a copy of its message. bytes: copied
-- from messages, because a message can be too large to be converted to text; null if the message is missing.
CREATE TABLE dead_letters (
  message_id     uuid        NOT NULL,
  destination_id int         NOT NULL,
  dead_at        timestamptz NOT NULL,
  claim_no       int         NOT NULL,
  tries          int         NOT NULL,
  -- parked: blocked by an earlier dead letter of its key, and returns with it
  reason         text        NOT NULL CHECK (reason IN ('rejected', 'exhausted', 'parked')),
  error_code     text,
  remote_code    text,
  error_message  text,
  created_at     timestamptz,
  key_id         bigint,
  sequence       bigint,
  bytes          int,
  namespace      text,
  topic          text,
  tenant_id      text,
  key            text,
  dedupe_key     text,
  aggregate_type text,
  aggregate_id   text,
  headers        jsonb,
  payload        jsonb,
  PRIMARY KEY (message_id, destination_id)
);
CREATE INDEX dead_letters_by_code ON dead_letters (destination_id, error_code, dead_at, message_id);
-- by cause: the error code and the code of the other side (cause_of)
CREATE INDEX dead_letters_by_cause
  ON dead_letters ((coalesce(error_code, 'unknown') || coalesce(' ' || remote_code, '')), dead_at, message_id);
CREATE INDEX dead_letters_by_destination ON dead_letters (destination_id, dead_at, message_id);
CREATE INDEX dead_letters_by_topic ON dead_letters (topic, dead_at, message_id);
CREATE INDEX dead_letters_by_tenant ON dead_letters (tenant_id, dead_at, message_id) WHERE tenant_id IS NOT NULL;
CREATE INDEX dead_letters_by_age ON dead_letters (dead_at, message_id);
-- by key: those that are parked, and those that were (block_again)
CREATE INDEX dead_letters_parked ON dead_letters (destination_id, key_id)
  WHERE reason = 'parked' OR error_code = 'parked';

-- Dedupe keys, unique per namespace, tenant and topic; tenant_id is '' for none. A key outlives its message: duplicates
-- are recognised for as long as it is kept. sequence: that of the message, so that a repeat gets it even when the
-- message is gone.
CREATE TABLE dedupe_keys (
  message_id uuid   NOT NULL,
  sequence   bigint,
  namespace  text   NOT NULL,
  topic      text   NOT NULL,
  dedupe_key text   NOT NULL,
  tenant_id  text   NOT NULL DEFAULT '',
  PRIMARY KEY (namespace, tenant_id, topic, dedupe_key)
);
-- For pruning: the topics that a retention floor protects are passed over without reading their keys. The collation
-- keeps a look-up of one key off this index: while the table has no statistics, it would seem as good as the primary
-- key, and would read every key of the topic.
CREATE INDEX dedupe_keys_by_age ON dedupe_keys (
  topic COLLATE "C", namespace COLLATE "C", (('x' || left(message_id::text, 8))::bit(32)::bigint));

-- Inbox: what each consumer has processed. dedupe_key is the id of the message, or a key that the consumer chose.
-- Sorted bytewise, in the order in which batches insert their keys.
CREATE TABLE inbox (
  consumer     text        NOT NULL,
  dedupe_key   text        COLLATE "C" NOT NULL,
  processed_at timestamptz NOT NULL,
  PRIMARY KEY (consumer, dedupe_key)
);
CREATE INDEX inbox_by_age ON inbox (processed_at);

-- Positions of the inbox: the highest sequence that each consumer has processed of each key; 0: none yet. tenant_id is
-- '' for none. made_at: when that message was created, from its id; null if the consumer used a dedupe key of its own.
-- used_at: when the consumer last advanced. It has no index, because the row changes with every message and its updates
-- must stay within the page. Rows are kept for ever, or until forget_positions removes them.
CREATE TABLE inbox_positions (
  consumer  text        NOT NULL,
  namespace text        COLLATE "C" NOT NULL,
  tenant_id text        COLLATE "C" NOT NULL,
  key       text        COLLATE "C" NOT NULL,
  sequence  bigint      NOT NULL,
  made_at   timestamptz DEFAULT now(),
  used_at   timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (consumer, namespace, tenant_id, key)
) WITH (fillfactor = 80);

-- Unrouted messages: no route and no cursor wanted them when they were enqueued. Each stays in the log until it is
-- routed or discarded; only an operator discards it. available_at, delay_ms: as in deliveries, for a delayed
-- message; null: it is due as soon as it is routed.
CREATE TABLE unrouted_messages (
  message_id   uuid        PRIMARY KEY,
  key_id       bigint,
  sequence     bigint,
  available_at timestamptz,
  delay_ms     bigint
);
CREATE INDEX unrouted_messages_key ON unrouted_messages (key_id, sequence) WHERE key_id IS NOT NULL;

-- Destinations. Their owners define the columns kind to configured. The run-time state (paused_at to resumed_at)
-- belongs to the database, and applying a configuration never overwrites it. Rows stay, because attempts refer to them;
-- only removed endpoints are deleted, when nothing of them is left. paused_code: the code of the answer that paused it;
-- null if an operator did. resumed_at: answers to calls that were claimed before this time do not pause it again.
-- rate_per_second, has_breaker: for display; relays use their own configuration. origin: 'database' for the destination
-- of an endpoint, which no configuration defines or changes. filter: a jsonpath that tells which payloads an endpoint
-- wants, of the messages that its routes select (sql/functions/endpoints/endpoint_filter.sql); null: all.
CREATE TABLE destinations (
  id              int         GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name            text        NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$'),
  kind            text        NOT NULL,
  max_attempts    int         NOT NULL CHECK (max_attempts >= 1),
  -- at most ten years, so that a delay always fits an interval
  retry_base_ms   bigint      NOT NULL CHECK (retry_base_ms BETWEEN 0 AND 315360000000),
  retry_max_ms    bigint      NOT NULL CHECK (retry_max_ms BETWEEN retry_base_ms AND 315360000000),
  retry_delays_ms bigint[]    CHECK (cardinality(retry_delays_ms) > 0 AND array_position(retry_delays_ms, NULL) IS NULL
                                     AND 0 <= ALL (retry_delays_ms) AND 315360000000 >= ALL (retry_delays_ms)),
  when_dead       text        NOT NULL DEFAULT 'continue' CHECK (when_dead IN ('continue', 'block', 'park')),
  fairness        text        NOT NULL DEFAULT 'none' CHECK (fairness IN ('none', 'tenant')),
  -- claims are shared between tenants; false while fairness is being switched on, see has_fairness
  is_fair         boolean     NOT NULL DEFAULT false,
  fair_from       xid8,
  configured      boolean     NOT NULL DEFAULT true,
  origin          text        NOT NULL DEFAULT 'file' CHECK (origin IN ('file', 'database')),
  rate_per_second float8,
  has_breaker     boolean     NOT NULL DEFAULT false,
  filter          text        CHECK (filter IS NULL OR filter::jsonpath IS NOT NULL),
  changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  paused_at       timestamptz,
  paused_by       text,
  paused_code     text,
  paused_reason   text,
  resumed_at      timestamptz
);
-- there may be many endpoints beside them
CREATE INDEX destinations_of_files ON destinations (id) WHERE origin = 'file';
-- for the list of destinations, which has those with problems first
CREATE INDEX destinations_at_rest ON destinations (id) WHERE paused_at IS NOT NULL OR NOT configured;

-- Owners of definitions: applications, by the name in their configuration; 'sql' for definitions made in SQL;
-- 'endpoints' for the endpoints of this database. routed_at: when the first routes of the owner were added, and its
-- earlier unrouted messages routed. The row 'sql' is the lock of all definitions; see
-- sql/functions/applications/definitions.sql.
CREATE TABLE owners (
  name      text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$'),
  routed_at timestamptz
);
INSERT INTO owners (name) VALUES ('sql'), ('endpoints');

-- The owners of each destination. Owners that share a destination have the same fingerprint of its settings; with null
-- it cannot be shared.
CREATE TABLE destination_owners (
  destination_id int  NOT NULL REFERENCES destinations,
  owner          text NOT NULL REFERENCES owners,
  fingerprint    text,
  PRIMARY KEY (destination_id, owner)
);

-- Declarations: the definitions that each relay, and waybill apply (relay_id is all zeros), wants for its application.
-- The definitions of an application are the union of its declarations. seen_at: when the relay last confirmed it; a
-- declaration counts for ten minutes after that, one of waybill apply until the next. steady_since: since when the
-- relay has confirmed it without interruption. is_drain: made by a drain, which only adds. signed_off: the relay has
-- stopped.
CREATE TABLE declarations (
  owner        text        NOT NULL REFERENCES owners,
  relay_id     uuid        NOT NULL,
  version      text,
  definitions  jsonb       NOT NULL,
  made_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  steady_since timestamptz NOT NULL DEFAULT clock_timestamp(),
  is_drain     boolean     NOT NULL DEFAULT false,
  signed_off   boolean     NOT NULL DEFAULT false,
  PRIMARY KEY (owner, relay_id)
) WITH (fillfactor = 50);

-- Routes. topic is exact, 'user.*' (everything that begins with 'user.') or '*'. Two owners can have the same route.
-- split_by: null, or the name of what splits the route: another system sends a part of its messages (rollouts).
CREATE TABLE routes (
  destination_id int         NOT NULL REFERENCES destinations,
  topic          text        NOT NULL,
  namespace      text,
  tenant_id      text,
  split_by       text,
  owner          text        NOT NULL DEFAULT 'sql' REFERENCES owners,
  added_at       timestamptz NOT NULL DEFAULT now(),
  UNIQUE NULLS NOT DISTINCT (destination_id, topic, namespace, tenant_id, owner)
);
-- a message is compared only with routes of its own tenant and of all tenants, however many other tenants there are
CREATE INDEX routes_by_tenant ON routes (tenant_id);

-- Cursors: how far each named reader has read the log; see sql/functions/cursors/cursors.sql. Every message visible in
-- seen was read. Between two windows, target and position are null. A cursor has a row for each of its partitions, one
-- by default (sql/functions/cursors/cursor_partitions.sql). The reader with the hold of a row reads; only the current
-- fence can move it. The rows of a cursor have the same destination, filters, began, system_id and closing_since.
CREATE TABLE cursors (
  name              text        NOT NULL CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$' OR kept IS NOT NULL),
  -- it reads messages with these hashes, the first one included: see partition_hash
  hash_from         int         NOT NULL DEFAULT 0 CHECK (hash_from >= 0),
  hash_to           int         NOT NULL DEFAULT 65536 CHECK (hash_to > hash_from AND hash_to <= 65536),
  -- the number of partitions that the cursor should have
  partitions        int         NOT NULL DEFAULT 1,
  -- a row waits until those of older generations with the same hashes are deleted
  generation        int         NOT NULL DEFAULT 0,
  -- the row is deleted when this was read: a newer generation reads on from there
  until             pg_snapshot,
  destination_id    int         NOT NULL REFERENCES destinations,
  topics            text[]      NOT NULL,
  namespaces        text[]      NOT NULL,
  tenant_ids        text[]      NOT NULL,
  -- messages that are visible in it were never read
  began             pg_snapshot NOT NULL,
  seen              pg_snapshot NOT NULL,
  seen_at           timestamptz NOT NULL,
  target            pg_snapshot,
  position          uuid,
  system_id         bigint      NOT NULL,
  -- the token of the hold with which a reader may move it
  fence             bigint      NOT NULL DEFAULT 0,
  -- the last reader
  reader_name       text,
  -- a reader ended without releasing its lease: readers record each batch before they call the handler
  after_crash       boolean     NOT NULL DEFAULT false,
  -- the handler has the recorded batch now
  batch_in_flight   boolean     NOT NULL DEFAULT false,
  -- the position at the end of the recorded batch
  quarantined_until uuid,
  -- the number of messages in the recorded batch
  quarantined_count int         NOT NULL DEFAULT 0,
  -- how many readers died during exactly that batch
  deaths            int         NOT NULL DEFAULT 0,
  -- the fences of the last 100 of these readers
  died_fences       bigint[]    NOT NULL DEFAULT '{}',
  failed_message_id uuid,
  tries             int         NOT NULL DEFAULT 0,
  -- when the failed message may be tried again, and the delay from which that time was computed
  retry_at          timestamptz,
  retry_delay       interval,
  error_code        text,
  error_message     text,
  moved_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
  -- since when its destination gets deliveries instead: see sql/functions/cursors/cursor_modes.sql
  closing_since     timestamptz,
  -- the cursor is deleted when all transactions before this one have ended
  closes_at         xid8,
  -- only for a remainder: see sql/functions/cursors/cursor_remainders.sql
  kept              jsonb,
  PRIMARY KEY (name, generation, hash_from)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- Cursor readers: the processes that share the partitions of a cursor, also those that hold none. A cursor with one
-- partition has none.
CREATE TABLE cursor_readers (
  cursor     text        NOT NULL,
  reader_id  uuid        NOT NULL,
  joined_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at timestamptz NOT NULL,
  duration   interval    NOT NULL,
  PRIMARY KEY (cursor, reader_id)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- Clock steps: the clock stepped back between two messages of a key, so ids from before the step are larger than later
-- ones. Messages visible in the snapshot came before the step, so cursors read them first; see
-- sql/functions/cursors/cursor_windows.sql.
CREATE TABLE clock_steps (
  id       bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  snapshot pg_snapshot NOT NULL,
  ends     xid8        NOT NULL,
  at       timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX clock_steps_by_end ON clock_steps (ends);

-- Listeners: one row per relay and destination says whether it listens for wake-ups, and whether it polls already.
-- Destination 0 stands for all endpoints. See sql/functions/core/wake_up.sql.
CREATE TABLE listeners (
  destination_id  int         NOT NULL,
  relay_id        uuid        NOT NULL,
  listening_until timestamptz NOT NULL,
  active_until    timestamptz NOT NULL,
  PRIMARY KEY (destination_id, relay_id)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- Relays, by their heartbeats. destinations: those that it serves, without endpoints. breakers: its circuit breakers
-- that are not closed. limited: the destinations whose rate limit is used up at this relay.
CREATE TABLE relays (
  id                  uuid        PRIMARY KEY,
  name                text        NOT NULL,
  version             text        NOT NULL,
  application         text        NOT NULL DEFAULT 'default',
  -- the version of the application, if its configuration names one
  application_version text,
  configuration       text        NOT NULL,
  destinations        text[]      NOT NULL,
  -- whether it serves the endpoints, all of them
  endpoints           boolean     NOT NULL DEFAULT false,
  -- current problems, each with a remedy
  problems            text[]      NOT NULL DEFAULT '{}',
  started_at          timestamptz NOT NULL,
  heartbeat_at        timestamptz NOT NULL,
  breakers            jsonb       NOT NULL DEFAULT '{}',
  limited             text[]      NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- Jobs: bulk changes of dead letters by operators, and their progress; see sql/functions/dead-letters/jobs.sql.
-- filter and dead_before select the letters (for a restore, only filter does); tenant_id limits the job to one tenant.
-- The process with the hold 'job ID' runs it: a running job that no process holds was interrupted. moved_at: when its
-- last batch ended. retried_ids, retried_to: the first 1,000 letters that a retry requeued, and their destinations.
CREATE TABLE jobs (
  id          uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  action      text        NOT NULL CHECK (action IN ('retry', 'skip', 'discard', 'restore')),
  filter      jsonb       NOT NULL,
  dead_before timestamptz NOT NULL,
  tenant_id   text,
  actor       text        NOT NULL,
  planned     bigint      NOT NULL CHECK (planned >= 0),
  done        bigint      NOT NULL DEFAULT 0,
  state       text        NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled', 'failed')),
  error       text,
  started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  moved_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at    timestamptz,
  retried_ids uuid[]      NOT NULL DEFAULT '{}',
  retried_to  int[]       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);
-- for the list, which shows the newest first
CREATE INDEX jobs_started ON jobs (started_at);

-- Counts of relays' deliveries in slices of ten seconds, over all relays; see sql/functions/upkeep/statistics.sql.
CREATE TABLE statistics (
  slice          timestamptz NOT NULL,
  destination_id int         NOT NULL,
  delivered      bigint      NOT NULL,
  retried        bigint      NOT NULL,
  died           bigint      NOT NULL,
  expired        bigint      NOT NULL DEFAULT 0,
  PRIMARY KEY (slice, destination_id)
) WITH (fillfactor = 50);
-- for the chart of one destination among many
CREATE INDEX statistics_by_destination ON statistics (destination_id, slice);

-- Samples of pending work, one per slice.
CREATE TABLE samples (
  slice          timestamptz PRIMARY KEY,
  enqueued       bigint      NOT NULL,
  waiting        bigint      NOT NULL,
  retrying       bigint      NOT NULL,
  dead           bigint      NOT NULL,
  oldest_seconds numeric,
  average_ms     numeric,
  p50_ms         numeric,
  p99_ms         numeric
);

-- Up to which time the rows of a table are complete, for each task that asks: when that was last checked, and which
-- transactions were writing then. See sql/functions/upkeep/closed_rows.sql.
CREATE TABLE closed_rows (
  what     text        PRIMARY KEY,
  until    timestamptz NOT NULL DEFAULT '-infinity',
  asked_at timestamptz,
  writers  text[]
);

-- The names of this schema's roles in this cluster; empty until they are installed. See sql/functions/access/roles.sql.
CREATE TABLE roles (
  role text PRIMARY KEY,
  name text NOT NULL
);

-- Retention floors: the shortest time for which data is kept, whatever a configuration or a caller says. Only the owner
-- of the schema changes them. A row concerns messages whose topic and namespace match; if several rows match, the
-- longest time counts. In days, 'infinity' for ever; null: the row has no floor for this kind of data. namespace null:
-- all. Ordering keys belong to no topic, so keys_days is only for rows of all topics. keeps_identity: attempts keep the
-- fields that identify their message. See sql/functions/upkeep/floors.sql.
CREATE TABLE retention_floors (
  topic             text    NOT NULL DEFAULT '*'
                            CHECK (topic ~ '^(\*|[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*(\.\*)?)$'),
  namespace         text,
  messages_days     float8  CHECK (messages_days BETWEEN 1 AND 36500 OR messages_days = 'infinity'),
  attempts_days     float8  CHECK (attempts_days BETWEEN 1 AND 36500 OR attempts_days = 'infinity'),
  dead_letters_days float8  CHECK (dead_letters_days BETWEEN 0 AND 36500 OR dead_letters_days = 'infinity'),
  dedupe_keys_days  float8  CHECK (dedupe_keys_days BETWEEN 30 AND 36500 OR dedupe_keys_days = 'infinity'),
  keys_days         float8  CHECK (keys_days BETWEEN 30 AND 36500 OR keys_days = 'infinity'),
  keeps_identity    boolean NOT NULL DEFAULT false,
  CHECK (keys_days IS NULL OR topic = '*')
);
CREATE UNIQUE INDEX retention_floors_scope ON retention_floors (topic, namespace) NULLS NOT DISTINCT;
INSERT INTO retention_floors (messages_days, attempts_days, dead_letters_days, dedupe_keys_days)
VALUES (1, 1, 7, 30);

-- What each past day of messages holds: every pair of topic and namespace that occurs. It is recorded before retention
-- removes any of it, if there are floors for some topics or namespaces. The attempts of a day outlive its messages, and
-- this record tells which floors protect them. partition: the table that was read; another one is read again.
CREATE TABLE message_days (
  day        date   PRIMARY KEY,
  partition  oid    NOT NULL,
  topics     text[] NOT NULL,
  namespaces text[] NOT NULL
);

-- Thinned partitions: of an expired day, they hold only the messages that are still needed, or their attempts. kept,
-- removed: the number of rows. While a copy of the rows that stay is being made, copied_by is the last transaction that
-- wrote to it, and waits_for are the transactions that may not see it. See sql/functions/upkeep/thinning.sql.
CREATE TABLE thinned_partitions (
  partition  text        PRIMARY KEY,
  day        date        NOT NULL,
  kept       bigint      NOT NULL DEFAULT 0,
  removed    bigint      NOT NULL DEFAULT 0,
  thinned_at timestamptz,
  copied_by  xid8,
  waits_for  text[]
);

-- Locks: functions lock a row here until the end of the transaction, so that one session at a time holds it. This takes
-- the rights of the owner, so no other login can block relays. See sql/functions/core/locks.sql.
CREATE TABLE locks (
  name text PRIMARY KEY
);
INSERT INTO locks (name)
VALUES ('compact'), ('dead letters'), ('move'), ('partitions'), ('sample'), ('unrouted');

-- Limits of tenants: how often each has done something since the beginning of its period. See
-- sql/functions/access/tenant_limits.sql.
CREATE TABLE tenant_limits (
  tenant_id text        NOT NULL,
  action    text        NOT NULL,
  since     timestamptz NOT NULL,
  count     int         NOT NULL,
  PRIMARY KEY (tenant_id, action)
);

-- Holds: one process at a time has a hold, across transactions. token: grows each time the hold is taken or revoked.
-- holder: null if it was released. See sql/functions/core/holds.sql.
CREATE TABLE holds (
  name       text        PRIMARY KEY,
  token      bigint      NOT NULL DEFAULT 0,
  holder     uuid,
  expires_at timestamptz NOT NULL DEFAULT '-infinity',
  duration   interval    NOT NULL DEFAULT '0'
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);
INSERT INTO holds (name) VALUES ('retention');

-- Daily tasks: when retention was last done, and how far the passes through large tables (keys, lanes) have come.
CREATE TABLE maintenance_runs (
  task     text        PRIMARY KEY,
  done_at  timestamptz NOT NULL DEFAULT '-infinity',
  -- how far the tasks that look for unused keys and lanes have come
  position bigint[]
);
INSERT INTO maintenance_runs (task) VALUES ('keys'), ('lanes'), ('retention');
