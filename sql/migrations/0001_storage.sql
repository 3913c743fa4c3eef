-- Storage: three kinds of data with three lifetimes, never mixed in one table.
--
--   messages    written once in the producer's transaction, never updated
--   deliveries  hot and tiny: one row per waiting (message, destination), deleted when claimed
--   attempts    the archive: one append-only row per claim and how it ended
--
-- A (message, destination) is always in exactly one place: deliveries (pending), a lease
-- (processing), dead_letters (dead), or ended for good in attempts (delivered, discarded).
--
-- Every file under sql/ names its objects without a schema: the caller puts the schema first on the
-- search_path, and functions keep that path (SET search_path FROM CURRENT). So the schema's name is
-- free, and psql can run each file as it is:
--   PGOPTIONS='-c search_path=outbox,pg_temp' psql -f sql/migrations/0001_storage.sql

CREATE TYPE attempt_state AS ENUM
  ('dispatched', 'retryable', 'failed', 'zombie_requeue', 'released', 'discarded');

-- What the holder of a claim reports. 'pause' is a release that also pauses the destination. 'abandoned' is
-- reported by the reaper in a dead holder's place.
CREATE TYPE outcome AS ENUM ('delivered', 'retry', 'reject', 'release', 'pause', 'abandoned');

-- Partitioned by id: a UUIDv7 carries its time, so the primary key is the partition key, partitions
-- are days, and retention is dropping a partition. Only the database makes ids.
CREATE TABLE messages (
  id             uuid        NOT NULL,
  created_at     timestamptz NOT NULL,
  transaction_id xid8        NOT NULL,
  stream_id      bigint,
  sequence       bigint,
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
CREATE INDEX messages_by_topic ON messages (topic, id);
CREATE INDEX messages_by_tenant ON messages (tenant_id, id) WHERE tenant_id IS NOT NULL;
CREATE INDEX messages_by_aggregate ON messages (aggregate_type, aggregate_id, id) WHERE aggregate_id IS NOT NULL;
CREATE INDEX messages_by_stream ON messages (stream_id, id) WHERE stream_id IS NOT NULL;
-- for cursors: what committed since they last looked, whatever the clock said meanwhile
CREATE INDEX messages_by_transaction ON messages (transaction_id);

-- One row per ordering key, for ever: its messages are numbered from 1 without a gap, and whoever takes a number
-- holds the row until the end of the transaction, so the order of the numbers is the order of the commits.
-- tenant_id is '' for none: a key has to be unique.
CREATE TABLE streams (
  id            bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
  next_sequence bigint NOT NULL,
  namespace     text   NOT NULL,
  tenant_id     text   NOT NULL,
  key           text   NOT NULL,
  PRIMARY KEY (namespace, tenant_id, key)
) WITH (fillfactor = 70);
-- for whoever looks for a key without knowing whose it is
CREATE INDEX streams_by_key ON streams (key);

-- claim_no goes up at every claim and is never reused: it is the fence.
-- tries counts what was really sent, and zombies: it is the budget; a replay resets it.
-- alone: the last holder died; the next claim takes this message by itself.
-- stream_id and sequence: a message with a key, which waits in its lane and not in the queue.
-- tenant_id: '' where tenants take turns and the message has none, for then that is a turn too.
CREATE TABLE deliveries (
  message_id     uuid        NOT NULL,
  available_at   timestamptz NOT NULL,
  stream_id      bigint,
  sequence       bigint,
  claim_no       int         NOT NULL DEFAULT 0,
  tries          int         NOT NULL DEFAULT 0,
  bytes          int         NOT NULL,
  destination_id smallint    NOT NULL,
  alone          boolean     NOT NULL DEFAULT false,
  namespace      text        NOT NULL,
  tenant_id      text        COLLATE "C",
  PRIMARY KEY (message_id, destination_id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deliveries_due ON deliveries (destination_id, available_at, message_id) WHERE stream_id IS NULL;
CREATE INDEX deliveries_due_by_tenant ON deliveries (destination_id, tenant_id, available_at, message_id)
  WHERE tenant_id IS NOT NULL AND stream_id IS NULL;
CREATE INDEX deliveries_in_lane ON deliveries (destination_id, stream_id, sequence) WHERE stream_id IS NOT NULL;
CREATE INDEX deliveries_retrying ON deliveries (destination_id, available_at) WHERE tries > 0;

-- One key at one destination, for ever. available_at: when its head is due; null while nothing waits in it or a
-- lease holds it. blocked_by: the dead head that it waits behind. last_sequence: the last that has ended.
CREATE TABLE lanes (
  destination_id smallint    NOT NULL,
  stream_id      bigint      NOT NULL,
  available_at   timestamptz,
  last_sequence  bigint      NOT NULL DEFAULT 0,
  lease_id       uuid,
  blocked_by     uuid,
  namespace      text        NOT NULL,
  tenant_id      text        COLLATE "C",
  PRIMARY KEY (destination_id, stream_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lanes_due ON lanes (destination_id, available_at, stream_id)
  WHERE available_at IS NOT NULL AND blocked_by IS NULL;
CREATE INDEX lanes_due_by_tenant ON lanes (destination_id, tenant_id, available_at, stream_id)
  WHERE available_at IS NOT NULL AND blocked_by IS NULL AND tenant_id IS NOT NULL;
CREATE INDEX lanes_blocked ON lanes (blocked_by, destination_id) WHERE blocked_by IS NOT NULL;

-- How producers wake a lane without touching it: "look into this lane". Relays eat them. recheck: also if the
-- lane waits for a retry, because its head was changed by an operator.
CREATE TABLE lane_tickets (
  id             bigint   GENERATED ALWAYS AS IDENTITY,
  stream_id      bigint   NOT NULL,
  destination_id smallint NOT NULL,
  recheck        boolean  NOT NULL DEFAULT false,
  PRIMARY KEY (destination_id, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000,
        autovacuum_vacuum_cost_delay = 0);

-- One row per claimed batch. remaining counts the messages whose claim has not ended yet. stream_ids and
-- sequences are null for a lease without any message that has a key.
CREATE TABLE leases (
  id             uuid        PRIMARY KEY,
  relay_id       uuid        NOT NULL,
  claimed_at     timestamptz NOT NULL,
  expires_at     timestamptz NOT NULL,
  duration       interval    NOT NULL,
  remaining      int         NOT NULL,
  destination_id smallint    NOT NULL,
  alone          boolean     NOT NULL,
  message_ids    uuid[]      NOT NULL,
  claim_nos      int[]       NOT NULL,
  tries          int[]       NOT NULL,
  stream_ids     bigint[],
  sequences      bigint[]
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 200);
-- ids do not compress, and trying costs; the counters are nearly always the same number, and do
ALTER TABLE leases ALTER message_ids SET STORAGE EXTERNAL;
CREATE INDEX leases_by_relay ON leases (relay_id);

-- What a claim takes: parallel arrays, in the order of the claim.
CREATE TYPE taken AS (
  message_ids        uuid[],
  claim_nos          int[],
  tries              int[],
  available_at       timestamptz[],
  stream_ids         bigint[],
  sequences          bigint[],
  previous_sequences bigint[],
  bytes              bigint,
  alone              boolean
);

-- The primary key is the rule "exactly one ending per claim": whoever records it first wins. response: the
-- beginning of what the other side answered.
CREATE TABLE attempts (
  message_id     uuid          NOT NULL,
  claimed_at     timestamptz,
  ended_at       timestamptz   NOT NULL,
  relay_id       uuid,
  claim_no       int           NOT NULL,
  tries          int           NOT NULL,
  latency_ms     int,
  state          attempt_state NOT NULL,
  destination_id smallint      NOT NULL,
  error_code     text,
  remote_code    text,
  error_message  text,
  reference      text,
  response       text,
  PRIMARY KEY (message_id, destination_id, claim_no)
) PARTITION BY RANGE (message_id);
CREATE INDEX attempts_by_code ON attempts (error_code, message_id) WHERE error_code IS NOT NULL;
-- what ended lately, for those who follow it; a plain index would make settling slower by a quarter
CREATE INDEX attempts_by_end ON attempts USING brin (ended_at) WITH (pages_per_range = 16, autosummarize = on);

-- A delivery that needs a person, with a copy of its message.
CREATE TABLE dead_letters (
  message_id     uuid        NOT NULL,
  destination_id smallint    NOT NULL,
  dead_at        timestamptz NOT NULL,
  claim_no       int         NOT NULL,
  tries          int         NOT NULL,
  -- parked: it stands behind a dead head, and comes back with it
  reason         text        NOT NULL CHECK (reason IN ('rejected', 'exhausted', 'parked')),
  error_code     text,
  remote_code    text,
  error_message  text,
  created_at     timestamptz,
  stream_id      bigint,
  sequence       bigint,
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
CREATE INDEX dead_letters_by_destination ON dead_letters (destination_id, dead_at, message_id);
CREATE INDEX dead_letters_by_topic ON dead_letters (topic, dead_at, message_id);
CREATE INDEX dead_letters_by_tenant ON dead_letters (tenant_id, dead_at, message_id) WHERE tenant_id IS NOT NULL;
CREATE INDEX dead_letters_by_age ON dead_letters (dead_at, message_id);
CREATE INDEX dead_letters_parked ON dead_letters (destination_id, stream_id) WHERE reason = 'parked';

-- Outlives the message: a key is refused for as long as it is kept. message_id serves pruning by age.
CREATE TABLE dedupe_keys (
  message_id uuid NOT NULL,
  namespace  text NOT NULL,
  topic      text NOT NULL,
  dedupe_key text NOT NULL,
  PRIMARY KEY (namespace, topic, dedupe_key)
);
CREATE INDEX dedupe_keys_by_age ON dedupe_keys (message_id);

-- The consumer's side: what each consumer has processed. dedupe_key is the message's id, or a key that the
-- consumer chose. Sorted bytewise, as batches take their keys.
CREATE TABLE inbox (
  consumer     text        NOT NULL,
  dedupe_key   text        COLLATE "C" NOT NULL,
  processed_at timestamptz NOT NULL,
  PRIMARY KEY (consumer, dedupe_key)
);
CREATE INDEX inbox_by_age ON inbox (processed_at);

-- The highest sequence that each consumer has processed of each stream; 0: none yet. tenant_id is '' for none.
-- Kept for good: how far a consumer has got does not age.
CREATE TABLE inbox_positions (
  consumer  text   NOT NULL,
  namespace text   COLLATE "C" NOT NULL,
  tenant_id text   COLLATE "C" NOT NULL,
  key       text   COLLATE "C" NOT NULL,
  sequence  bigint NOT NULL,
  PRIMARY KEY (consumer, namespace, tenant_id, key)
) WITH (fillfactor = 80);

-- Messages that no route wanted when they were enqueued: kept and counted.
CREATE TABLE unrouted_messages (
  message_id uuid PRIMARY KEY
);

-- The configuration file owns the definition (kind to configured); the database owns the run-time
-- state (paused_at to resumed_at), which a sync never overwrites. Rows are never deleted: attempts name them.
-- paused_code: of the answer that paused it; null if an operator did. resumed_at: an answer to what was claimed
-- before it pauses nothing.
-- rate_per_second, has_breaker: for people to see; relays go by their own configuration.
-- origin: 'database' for the destination of an endpoint, which no file defines and no sync touches.
CREATE TABLE destinations (
  id              smallint    GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name            text        NOT NULL UNIQUE CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$'),
  kind            text        NOT NULL,
  max_attempts    int         NOT NULL CHECK (max_attempts >= 1),
  -- no delay is longer than ten years: it must be an interval, whatever it is multiplied with
  retry_base_ms   bigint      NOT NULL CHECK (retry_base_ms BETWEEN 0 AND 315360000000),
  retry_max_ms    bigint      NOT NULL CHECK (retry_max_ms BETWEEN retry_base_ms AND 315360000000),
  retry_delays_ms bigint[]    CHECK (cardinality(retry_delays_ms) > 0 AND array_position(retry_delays_ms, NULL) IS NULL
                                     AND 0 <= ALL (retry_delays_ms) AND 315360000000 >= ALL (retry_delays_ms)),
  when_dead       text        NOT NULL DEFAULT 'continue' CHECK (when_dead IN ('continue', 'block', 'park')),
  fairness        text        NOT NULL DEFAULT 'none' CHECK (fairness IN ('none', 'tenant')),
  configured      boolean     NOT NULL DEFAULT true,
  origin          text        NOT NULL DEFAULT 'file' CHECK (origin IN ('file', 'database')),
  rate_per_second float8,
  has_breaker     boolean     NOT NULL DEFAULT false,
  changed_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
  paused_at       timestamptz,
  paused_by       text,
  paused_code     text,
  paused_reason   text,
  resumed_at      timestamptz
);

-- A share of some routes' messages, by key; the rest is left to the system that sent them before. In shadow all
-- of them go to a destination that renders and compares, and sends nothing. changed_by null: as the file made it.
CREATE TABLE rollouts (
  name                  text         PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,49}$'),
  destination_id        smallint     NOT NULL REFERENCES destinations,
  shadow_destination_id smallint     NOT NULL UNIQUE REFERENCES destinations,
  percent               numeric(5,2) NOT NULL DEFAULT 0 CHECK (percent BETWEEN 0 AND 100),
  shadow                boolean      NOT NULL DEFAULT false CHECK (NOT shadow OR percent = 0),
  changed_at            timestamptz  NOT NULL DEFAULT clock_timestamp(),
  changed_by            text
);

-- What Waybill would have sent, and what the other system says it sent, side by side by what both call the same.
CREATE TABLE shadow_comparisons (
  rollout     text        NOT NULL REFERENCES rollouts,
  reference   text        NOT NULL CHECK (octet_length(reference) BETWEEN 1 AND 1024),
  first_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  message_id  uuid,
  rendered    jsonb,
  refused     text,
  rendered_at timestamptz,
  sent        jsonb,
  sent_at     timestamptz,
  PRIMARY KEY (rollout, reference)
);
CREATE INDEX shadow_comparisons_by_time ON shadow_comparisons (rollout, first_at);
CREATE INDEX shadow_comparisons_by_age ON shadow_comparisons (first_at);

-- topic is exact, 'user.*' (everything that begins with 'user.') or '*'.
CREATE TABLE routes (
  destination_id smallint NOT NULL REFERENCES destinations,
  topic          text     NOT NULL,
  namespace      text,
  tenant_id      text,
  rollout        text     REFERENCES rollouts,
  UNIQUE NULLS NOT DISTINCT (destination_id, topic, namespace, tenant_id)
);
-- a message meets only the routes of its own tenant and those of all, however many other tenants have
CREATE INDEX routes_by_tenant ON routes (tenant_id);

-- Webhook endpoints that are defined here instead of in a file: each is a destination of its own. secrets:
-- [{"sealed", "fingerprint", "since"}], the newest first; what is sealed only a relay with the key can open.
-- version counts the changes; changed_in is the transaction of the last one, by which relays find it.
CREATE TABLE endpoints (
  destination_id smallint    PRIMARY KEY REFERENCES destinations,
  url            text        NOT NULL,
  topics         text[]      NOT NULL,
  namespace      text,
  tenant_id      text,
  description    text,
  body           text,
  secrets        jsonb       NOT NULL,
  sealed_headers text,
  created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  changed_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  removed_at     timestamptz,
  version        int         NOT NULL DEFAULT 1,
  changed_in     xid8        NOT NULL DEFAULT pg_current_xact_id()
);
CREATE INDEX endpoints_by_change ON endpoints (changed_in);
CREATE INDEX endpoints_by_tenant ON endpoints (tenant_id) WHERE removed_at IS NULL;

-- What all endpoints share, as the last relay that was started said: one row. The delays are those that the
-- Standard Webhooks specification proposes.
CREATE TABLE endpoint_settings (
  one             boolean  PRIMARY KEY DEFAULT true CHECK (one),
  max_attempts    int      NOT NULL DEFAULT 10,
  retry_base_ms   bigint   NOT NULL DEFAULT 0,
  retry_max_ms    bigint   NOT NULL DEFAULT 0,
  retry_delays_ms bigint[] DEFAULT '{5000,300000,1800000,7200000,18000000,36000000,50400000,72000000,86400000}',
  when_dead       text     NOT NULL DEFAULT 'continue'
);
INSERT INTO endpoint_settings DEFAULT VALUES;

-- How far each named processor has read the log; see functions/cursors.sql. Everything visible in seen was
-- read; between two windows, target and position are null. The lease says who may read, the fence who may
-- move the cursor. deaths counts the readers that died since the cursor last moved.
CREATE TABLE cursors (
  name           text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$'),
  destination_id smallint    NOT NULL REFERENCES destinations,
  topics         text[]      NOT NULL,
  namespaces     text[]      NOT NULL,
  tenant_ids     text[]      NOT NULL,
  seen           pg_snapshot NOT NULL,
  seen_at        timestamptz NOT NULL,
  target         pg_snapshot,
  position       uuid,
  system_id      bigint      NOT NULL,
  fence          bigint      NOT NULL DEFAULT 0,
  reader_id      uuid,
  reader_name    text,
  leased_until   timestamptz NOT NULL DEFAULT '-infinity',
  lease          interval    NOT NULL DEFAULT '0',
  deaths         int         NOT NULL DEFAULT 0,
  failed_message_id uuid,
  tries          int         NOT NULL DEFAULT 0,
  error_code     text,
  error_message  text,
  moved_at       timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- One row per relay and destination: may producers ring, and need they? See functions/wake_up.sql.
CREATE TABLE doorbells (
  destination_id  smallint    NOT NULL,
  relay_id        uuid        NOT NULL,
  listening_until timestamptz NOT NULL,
  awake_until     timestamptz NOT NULL,
  PRIMARY KEY (destination_id, relay_id)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 50, autovacuum_vacuum_scale_factor = 0);

-- breakers: what each destination's circuit breaker at this relay says, for those that are not closed.
CREATE TABLE relays (
  id            uuid        PRIMARY KEY,
  name          text        NOT NULL,
  version       text        NOT NULL,
  configuration text        NOT NULL,
  destinations  text[]      NOT NULL,
  -- what it cannot do at present, each with the remedy
  problems      text[]      NOT NULL DEFAULT '{}',
  started_at    timestamptz NOT NULL,
  heartbeat_at  timestamptz NOT NULL,
  breakers      jsonb       NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- What operators did: append-only, see functions/audit.sql. actor is who it was by their own account, database_user
-- the login that the server knows.
CREATE TABLE operator_actions (
  id            bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at            timestamptz NOT NULL DEFAULT clock_timestamp(),
  actor         text        NOT NULL,
  action        text        NOT NULL,
  subject       jsonb       NOT NULL,
  count         bigint      NOT NULL,
  database_user text        NOT NULL DEFAULT session_user
);
CREATE INDEX operator_actions_by_time ON operator_actions (at);

-- The hash chain over closed stretches of attempts and of operator_actions: append-only, see functions/seal.sql.
-- attempts: those of messages from from_id to before to_id that ended from since to before until. actions: those
-- from since to before until. expired: retention has removed the attempts of this range of messages.
-- digest: of the rows; head: of everything here and of previous, the head before.
CREATE TABLE seals (
  number    bigint      PRIMARY KEY,
  kind      text        NOT NULL CHECK (kind IN ('attempts', 'actions', 'expired')),
  from_id   uuid,
  to_id     uuid,
  since     timestamptz,
  until     timestamptz,
  row_count bigint      NOT NULL,
  digest    bytea       NOT NULL,
  details   jsonb       NOT NULL,
  sealed_at timestamptz NOT NULL,
  previous  bytea       NOT NULL,
  head      bytea       NOT NULL
);
CREATE INDEX seals_of_attempts ON seals (from_id, until) WHERE kind = 'attempts';

-- The first eight bytes of each row's digest, in the order of the keys: they prove nothing, and tell which row of a
-- stretch was touched. They go with the rows.
CREATE TABLE seal_leaves (
  number bigint PRIMARY KEY,
  leaves bytea  NOT NULL
);
ALTER TABLE seal_leaves ALTER leaves SET STORAGE EXTERNAL;

-- Up to which time a table's rows are complete: what was asked last, and who was writing then.
CREATE TABLE seal_cuts (
  what     text        PRIMARY KEY,
  until    timestamptz NOT NULL DEFAULT '-infinity',
  asked_at timestamptz,
  writers  text[]
);

-- How far each day of attempts has been sealed, and when it was last searched for rows that came late. inserted: the
-- server's count of rows at that time; quiet: nothing had come since the search before.
CREATE TABLE seal_days (
  day         date        PRIMARY KEY,
  sealed_to   uuid        NOT NULL,
  searched_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  searched_to uuid,
  inserted    bigint,
  quiet       boolean     NOT NULL DEFAULT false
);

-- How many of the chain's heads each place outside has, and what is wrong if it does not get more. tried_at: a place
-- that nobody tries any more is nobody's concern.
CREATE TABLE seal_exports (
  sink        text        PRIMARY KEY,
  number      bigint      NOT NULL DEFAULT 0,
  tried_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  exported_at timestamptz,
  failed_at   timestamptz,
  error       text
);

-- What operators replay from history, and how far it has come; see functions/replay.sql. Rows stay: they are the
-- record. position is the last message that was looked at, end_id the bound before which it ends; stream_ids are
-- those of the key that was asked for. next_at: no sooner, or it would be faster than per_second. waiting and
-- processing count what was passed over because it had yet to end.
CREATE TABLE replays (
  id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  destination_id smallint    NOT NULL REFERENCES destinations,
  filter         jsonb       NOT NULL,
  stream_ids     bigint[],
  per_second     int         NOT NULL CHECK (per_second >= 1),
  state          text        NOT NULL DEFAULT 'unfinished' CHECK (state IN ('unfinished', 'done', 'cancelled')),
  position       uuid        NOT NULL,
  end_id         uuid        NOT NULL,
  replayed       bigint      NOT NULL DEFAULT 0,
  waiting        bigint      NOT NULL DEFAULT 0,
  processing     bigint      NOT NULL DEFAULT 0,
  actor          text        NOT NULL,
  started_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
  moved_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
  next_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at       timestamptz
) WITH (fillfactor = 50);
-- so that two who begin the same replay at once share one
CREATE UNIQUE INDEX replays_unfinished ON replays (destination_id, md5(filter::text)) WHERE state = 'unfinished';

-- What relays did, in slices of ten seconds, summed over all of them; see functions/statistics.sql.
CREATE TABLE statistics (
  slice          timestamptz NOT NULL,
  destination_id smallint    NOT NULL,
  delivered      bigint      NOT NULL,
  retried        bigint      NOT NULL,
  died           bigint      NOT NULL,
  PRIMARY KEY (slice, destination_id)
) WITH (fillfactor = 50);

-- What waited, by slice.
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

-- Thresholds of alerts that the configuration file sets anew; null switches one off. See functions/alerts.sql.
CREATE TABLE alert_thresholds (
  alert     text PRIMARY KEY,
  threshold numeric
);

-- What has been told of each alert, and who is telling it at this moment; see functions/alert_states.sql.
CREATE TABLE alert_states (
  alert           text        PRIMARY KEY,
  -- null while it does not fire
  firing_since    timestamptz,
  told            text        CHECK (told IN ('firing', 'resolved')),
  told_at         timestamptz,
  -- since when that fired which was told last
  told_since      timestamptz,
  -- the same until it was told, so that a receiver knows a repeat
  notification_id uuid,
  telling         text        CHECK (telling IN ('firing', 'resolved')),
  tries           int         NOT NULL DEFAULT 0,
  holder          uuid,
  held_until      timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

-- Who may use the HTTP API: only hashes are kept. A token that names a tenant sees that tenant alone.
CREATE TABLE tokens (
  name         text        PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.@-]{0,62}$'),
  hash         bytea       NOT NULL UNIQUE,
  scope        text        NOT NULL CHECK (scope IN ('read', 'operate', 'admin')),
  tenant_id    text,
  created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
  expires_at   timestamptz NOT NULL DEFAULT 'infinity',
  last_used_at timestamptz
);

-- Logins of the page, each by a token and gone with it.
CREATE TABLE sessions (
  hash       bytea       PRIMARY KEY,
  token      text        NOT NULL REFERENCES tokens ON DELETE CASCADE,
  expires_at timestamptz NOT NULL
);

-- What the roles of this schema are called in this cluster; none until they are installed. See functions/roles.sql.
CREATE TABLE roles (
  role text PRIMARY KEY,
  name text NOT NULL
);

-- For how long things are kept at least, whatever a relay's configuration says: one row, which only the owner changes.
CREATE TABLE retention_floor (
  one          boolean  PRIMARY KEY DEFAULT true CHECK (one),
  messages_for interval NOT NULL DEFAULT '1 day' CHECK (messages_for >= '1 day'),
  attempts_for interval NOT NULL DEFAULT '1 day' CHECK (attempts_for >= messages_for)
);
INSERT INTO retention_floor DEFAULT VALUES;

-- When each daily task was last done, and who is at it: whichever relay gets there first does it for all.
CREATE TABLE maintenance_runs (
  task       text        PRIMARY KEY,
  done_at    timestamptz NOT NULL DEFAULT '-infinity',
  holder     uuid,
  held_until timestamptz NOT NULL DEFAULT '-infinity'
);

-- One row per watched table and topic. The triggers carry the definition and do the work; this row remembers
-- that they should be there, so that a table that was dropped or rebuilt without them is noticed. given is
-- what was asked for: the same again changes nothing. configured: the configuration file asked for it.
CREATE TABLE watches (
  table_id   regclass    NOT NULL,
  topic      text        NOT NULL,
  table_name text        NOT NULL,
  given      jsonb       NOT NULL,
  definition jsonb       NOT NULL,
  configured boolean     NOT NULL,
  changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (table_id, topic)
);
