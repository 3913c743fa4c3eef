// The alerts by name, so that a configuration is checked before there is a database. What each measures, its default
// threshold and what to say of it stand in sql/functions/alerts.sql; a test compares the names.

export const alertNames = [
  'waiting',
  'oldest_waiting_seconds',
  'average_delivery_seconds',
  'retrying',
  'retry_share',
  'dead_growth',
  'dead_share',
  'stuck_dispatching',
  'no_relay',
  'breaker_open',
  'paused_waiting',
  'partitions_ahead',
] as const;

export type AlertName = (typeof alertNames)[number];

/** Thresholds by the name of the alert; null switches one off. */
export type AlertThresholds = Partial<Record<AlertName, number | null>>;
