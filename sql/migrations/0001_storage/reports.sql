-- Storage of reports: counts by topic, tenant and destination. All of it is derived from messages and attempts; see
-- sql/functions/reports/fill_reports.sql.

-- Counts in slices of 10 minutes, an hour and a day (step, in seconds), in UTC. name: the topic, the tenant ('' for
-- messages without one) or the id of the destination; null: all others together, because a slice has a limited number
-- of names. count: the messages, or of a destination, the tries. failed: tries that failed, also the last one of a dead
-- letter. histogram: the times to delivery, as one number whose digits are the counts of the buckets, so that a sum
-- adds them all (see delivery_bucket).
CREATE TABLE report_counts (
  kind      text        NOT NULL CHECK (kind IN ('topic', 'tenant', 'destination')),
  step      int         NOT NULL CHECK (step IN (600, 3600, 86400)),
  slice     timestamptz NOT NULL,
  name      text,
  count     bigint      NOT NULL,
  delivered bigint      NOT NULL DEFAULT 0,
  failed    bigint      NOT NULL DEFAULT 0,
  dead      bigint      NOT NULL DEFAULT 0,
  histogram numeric     NOT NULL DEFAULT 0,
  UNIQUE NULLS NOT DISTINCT (kind, step, slice, name)
) WITH (fillfactor = 70);

-- How far messages and attempts are counted. counted_to: everything before it is. position: the last message that was
-- counted. span: the time that the next piece of attempts should have. hours_to, days_to: the slices of an hour and of
-- a day before these times are made.
CREATE TABLE report_progress (
  what       text        PRIMARY KEY CHECK (what IN ('messages', 'attempts')),
  counted_to timestamptz NOT NULL DEFAULT '-infinity',
  position   uuid        NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  span       interval    NOT NULL DEFAULT '1 minute',
  hours_to   timestamptz NOT NULL DEFAULT '-infinity',
  days_to    timestamptz NOT NULL DEFAULT '-infinity'
);
INSERT INTO report_progress (what) VALUES ('messages'), ('attempts');

INSERT INTO locks (name) VALUES ('reports');
