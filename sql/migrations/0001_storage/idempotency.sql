-- Storage of idempotency keys.

-- Answers to requests of the HTTP API that came with an Idempotency-Key. owner: the token, or the tenant that it is
-- limited to. key: the SHA-256 of the key. answer: encrypted (sealed), because it may have a secret; null while the
-- request's transaction runs.
CREATE TABLE kept_answers (
  owner   text        NOT NULL,
  key     bytea       NOT NULL,
  answer  text,
  made_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  PRIMARY KEY (owner, key)
);
CREATE INDEX kept_answers_by_age ON kept_answers (made_at);
