-- Jobs: what operators do with many dead letters at once, and how far it has come; see functions/jobs.sql.
-- Works with relays of Waybill 0.1.0 and newer.

-- filter and dead_before say which letters; tenant_id is the tenant to which whoever began it is limited. holder runs
-- it, and gives a sign of life before held_until: a job that is running and that nobody holds was interrupted.
CREATE TABLE jobs (
  id          uuid        PRIMARY KEY DEFAULT gen_random_uuid(),
  action      text        NOT NULL CHECK (action IN ('retry', 'skip', 'discard')),
  filter      jsonb       NOT NULL,
  dead_before timestamptz NOT NULL,
  tenant_id   text,
  actor       text        NOT NULL,
  planned     bigint      NOT NULL CHECK (planned >= 0),
  done        bigint      NOT NULL DEFAULT 0,
  state       text        NOT NULL DEFAULT 'running' CHECK (state IN ('running', 'done', 'cancelled', 'failed')),
  error       text,
  holder      uuid        NOT NULL,
  held_until  timestamptz NOT NULL,
  started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
  ended_at    timestamptz
) WITH (fillfactor = 50);
-- for the list, which is of the newest
CREATE INDEX jobs_started ON jobs (started_at);
