-- Storage of alerts: thresholds and notifications.

-- Thresholds of alerts that the configuration overrides; null switches an alert off. See
-- sql/functions/alerts/alerts.sql.
CREATE TABLE alert_thresholds (
  alert     text PRIMARY KEY,
  threshold numeric
);

-- The last notification of each alert, and the one that is being sent; see sql/functions/alerts/alert_states.sql.
CREATE TABLE alert_states (
  alert             text        PRIMARY KEY,
  -- null while the alert does not fire
  firing_since      timestamptz,
  -- the state that the last successful notification reported
  last_notified     text        CHECK (last_notified IN ('firing', 'resolved')),
  -- when it was sent
  last_notified_at  timestamptz,
  -- since when the alert had fired, according to the last notification that it fires
  last_firing_since timestamptz,
  -- stays the same until the notification succeeds, so that a receiver recognises a repeat
  notification_id   uuid,
  -- the state that the notification in progress reports
  sending           text        CHECK (sending IN ('firing', 'resolved')),
  tries             int         NOT NULL DEFAULT 0,
  -- a notification that failed is not sent again before this time
  retry_at          timestamptz NOT NULL DEFAULT '-infinity'
) WITH (fillfactor = 50);

INSERT INTO holds (name) VALUES ('alerts');
