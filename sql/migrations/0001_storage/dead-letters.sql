-- Storage of dead letters: what undoing a discard needs.

-- Discarded letters: each dead letter that an operator discarded, without its message, which is in the log. A restore
-- moves it back. Retention removes the row after the message. See restore_dead_letters.
CREATE TABLE discarded_letters (
  message_id     uuid        NOT NULL,
  destination_id int         NOT NULL,
  discarded_at   timestamptz NOT NULL,
  dead_at        timestamptz NOT NULL,
  -- that of the attempt with the state discarded
  claim_no       int         NOT NULL,
  tries          int         NOT NULL,
  reason         text        NOT NULL,
  error_code     text,
  remote_code    text,
  error_message  text,
  -- the last sequence that had ended in the lane that it blocked; null: it blocked none
  lane_sequence  bigint,
  -- the job that discarded it
  job_id         uuid,
  PRIMARY KEY (message_id, destination_id)
);
CREATE INDEX discarded_letters_by_job ON discarded_letters (job_id, message_id, destination_id)
  WHERE job_id IS NOT NULL;
