// Alerts in the database: reads them, assigns each notification to one relay and records whether it was sent.

import type { AlertThresholds } from './names.js';
import type { Database } from '../../database/connection.js';
import type { HealthMetric } from '../../listing/reports.js';

export type Alert = {
  alert: string;
  value: number | null;
  threshold: number | null;
  firing: boolean;
  sentence: string;
  remedy: string;
  severity: 'warning' | 'critical';
  /** The destination that is affected most; null if the alert does not fire, or concerns no destination. */
  destination: string | null;
};

const columns =
  'alert, value::float8 AS value, threshold::float8 AS threshold, firing, sentence, remedy, severity, destination';

/** `thresholds` override the configured ones. */
export async function readAlerts(
  database: Database,
  thresholds: AlertThresholds = {},
): Promise<Alert[]> {
  return database.query<Alert>(
    'read alerts',
    `SELECT ${columns} FROM ${database.schema}.alerts($1::text::jsonb)`,
    [JSON.stringify(thresholds)],
  );
}

/** The alerts that follow from a health that was read already. */
export async function alertsOf(
  database: Database,
  health: readonly HealthMetric[],
): Promise<Alert[]> {
  const metrics = Object.fromEntries(health.map(({ metric, value }) => [metric, value]));
  return database.query<Alert>(
    'read alerts of health',
    `SELECT ${columns} FROM ${database.schema}.alerts_of($1::text::jsonb, '{}')`,
    [JSON.stringify(metrics)],
  );
}

export type TakenAlert = {
  /** The token of the hold `alerts`. */
  token: string;
  alert: string;
  state: 'firing' | 'resolved';
  /** The id of the notification; it stays the same for every try to send it. */
  notificationId: string;
  /** How often a relay has taken this notification, this time included. */
  tries: number;
  /** The time at which the alert began to fire. */
  since: Date;
  value: number | null;
  threshold: number | null;
  severity: 'warning' | 'critical';
  sentence: string;
  remedy: string;
  /** The destination that is affected most. */
  destination: string | null;
  /** The name of the database that the alert is about. */
  database: string;
};

/** Takes the notifications that this relay has to send now, and with them the hold `alerts` for `heldMs`. */
export async function takeAlerts(
  database: Database,
  holder: string,
  { repeatMs, heldMs }: { repeatMs: number; heldMs: number },
): Promise<TakenAlert[]> {
  return database.query<TakenAlert>(
    'take alerts',
    `SELECT token::text, alert, state, notification_id AS "notificationId", tries, since, value::float8 AS value, threshold::float8 AS threshold,
            severity, sentence, remedy, destination, current_database() AS database
       FROM ${database.schema}.take_alerts($1, $2 * interval '1 millisecond', $3 * interval '1 millisecond')`,
    [holder, repeatMs, heldMs],
  );
}

export async function noteNotification(
  database: Database,
  { token, alert, notificationId }: TakenAlert,
  sent: boolean,
): Promise<void> {
  await database.query(
    'note notification',
    `SELECT ${database.schema}.note_notification($1, $2, $3, $4)`,
    [token, alert, notificationId, sent],
  );
}

export async function syncAlertThresholds(
  database: Database,
  thresholds: AlertThresholds,
): Promise<void> {
  await database.query(
    'sync thresholds of alerts',
    `SELECT ${database.schema}.sync_alert_thresholds($1::text::jsonb)`,
    [JSON.stringify(thresholds)],
  );
}
