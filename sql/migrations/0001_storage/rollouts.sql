-- Storage of rollouts: their share of the traffic, and the comparisons of shadows.

-- Rollouts: send a share of some routes' messages, by key; the other system sends the rest. In shadow, all of them go
-- to a destination that renders and compares, and sends nothing. changed_by null: as the configuration created it.
CREATE TABLE rollouts (
  name                  text         PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_-]{0,49}$'),
  destination_id        int          NOT NULL REFERENCES destinations,
  shadow_destination_id int          NOT NULL UNIQUE REFERENCES destinations,
  percent               numeric(5,2) NOT NULL DEFAULT 0 CHECK (percent BETWEEN 0 AND 100),
  shadow                boolean      NOT NULL DEFAULT false CHECK (NOT shadow OR percent = 0),
  changed_at            timestamptz  NOT NULL DEFAULT clock_timestamp(),
  changed_by            text
);

-- Comparisons of a shadow: what Waybill would have sent and what the other system sent, matched by their reference.
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

-- Always empty: decisions by a rollout and changes of a rollout lock this table to exclude each other. See
-- sql/functions/rollouts/rollouts.sql.
CREATE TABLE rollout_decisions ();

ALTER TABLE routes ADD FOREIGN KEY (split_by) REFERENCES rollouts;
