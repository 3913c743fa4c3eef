// Names of the alerts, so that a configuration can be checked without a database. What each alert measures, its default
// threshold and its text are in sql/functions/alerts/alerts.sql; a test compares the names.

export const alertNames = [
  'waiting',
  'oldest_waiting_seconds',
  'average_delivery_seconds',
  'retrying',
  'retry_share',
  'dead_growth',
  'dead_share',
  'stuck_dispatching',
  'clock_ahead',
  'no_relay',
  'breaker_open',
  'paused_waiting',
  'unrouted',
  'stalled_cursors',
  'partitions_ahead',
] as const;

export type AlertName = (typeof alertNames)[number];

/** Thresholds by the name of the alert; `null` switches an alert off. */
export type AlertThresholds = Partial<Record<AlertName, number | null>>;
