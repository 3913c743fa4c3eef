-- Storage of the audit: operators' actions, and the seals over them and over attempts.

-- The audit of operators' actions: append-only, see sql/functions/audit/audit.sql. actor is the name that the caller
-- gave; database_user is the login, which the server knows.
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

-- Seals: the hash chain over closed ranges of attempts and operator_actions; append-only, see
-- sql/functions/audit/seal.sql. kind attempts: the attempts of messages from from_id to before to_id that ended from
-- since to before until. actions: the actions from since to before until. expired: retention has removed the attempts
-- of this range of messages. thinned: it has removed them except these, which ended before until. digest: the hash of
-- the rows. head: the hash of all fields here and of previous, the head before.
CREATE TABLE seals (
  number    bigint      PRIMARY KEY,
  kind      text        NOT NULL CHECK (kind IN ('attempts', 'actions', 'expired', 'thinned')),
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

-- The first eight bytes of each row's digest, in the order of the rows. They prove nothing, but show which row of a
-- sealed range was changed. They are deleted with the rows. If retention keeps some rows of a range, all 32 bytes:
-- these prove that what is left belongs to the range.
CREATE TABLE seal_leaves (
  number bigint PRIMARY KEY,
  leaves bytea  NOT NULL
);
ALTER TABLE seal_leaves ALTER leaves SET STORAGE EXTERNAL;

-- How far each day of attempts is sealed, and when it was last searched for late rows. inserted: the server's count of
-- rows at that time. quiet: no rows had come since the search before. search_until: up to which time the running search
-- seals. sealed_until: all attempts that ended before it are sealed. kept_days: retention may thin the day, which was
-- kept for this long.
CREATE TABLE seal_days (
  day          date        PRIMARY KEY,
  sealed_to    uuid        NOT NULL,
  searched_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  searched_to  uuid,
  inserted     bigint,
  quiet        boolean     NOT NULL DEFAULT false,
  search_until timestamptz,
  sealed_until timestamptz,
  kept_days    float8
);

-- The last head of the chain that each sink outside the database has, and why it does not get more. tried_at: a sink
-- that was not tried for an hour is no longer reported.
CREATE TABLE seal_exports (
  sink        text        PRIMARY KEY,
  number      bigint      NOT NULL DEFAULT 0,
  tried_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
  exported_at timestamptz,
  failed_at   timestamptz,
  error       text
);

INSERT INTO locks (name) VALUES ('seal');
