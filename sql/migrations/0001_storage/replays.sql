-- Storage of replays.

-- Replays and their progress; see sql/functions/replays/replay.sql. Rows stay as a record. position: the last message
-- that was read. end_id: the replay ends before it. key_ids: the keys that match the requested key. next_at: when the
-- next step may run, to keep the rate per_second. waiting and processing: messages that were skipped because they had
-- not ended.
CREATE TABLE replays (
  id             bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  destination_id int         NOT NULL REFERENCES destinations,
  filter         jsonb       NOT NULL,
  key_ids        bigint[],
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
-- so that two callers that start the same replay at the same time share one
CREATE UNIQUE INDEX replays_unfinished ON replays (destination_id, md5(filter::text)) WHERE state = 'unfinished';
