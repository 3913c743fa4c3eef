// Alerts that somebody has to be told about: the database decides who tells them, and remembers what was told.

import type { AlertThresholds } from '../model/alerts.js';
import type { Database } from './connection.js';

export type TakenAlert = {
  alert: string;
  state: 'firing' | 'resolved';
  /** The same until it was told. */
  notificationId: string;
  /** How often it was taken to be told, this time included. */
  tries: number;
  /** Since when it fires, or fired. */
  since: Date;
  value: number | null;
  threshold: number | null;
  severity: 'warning' | 'critical';
  sentence: string;
  remedy: string;
  /** The database whose outbox it is about. */
  database: string;
};

/** What this holder has to tell now; it has it for `heldMs`. */
export async function takeAlerts(
  database: Database,
  holder: string,
  { repeatMs, heldMs }: { repeatMs: number; heldMs: number },
): Promise<TakenAlert[]> {
  return database.query<TakenAlert>(
    'take alerts',
    `SELECT alert, state, notification_id AS "notificationId", tries, since, value::float8 AS value, threshold::float8 AS threshold,
            severity, sentence, remedy, current_database() AS database
       FROM ${database.schema}.take_alerts($1, $2 * interval '1 millisecond', $3 * interval '1 millisecond')`,
    [holder, repeatMs, heldMs],
  );
}

export async function endAlert(
  database: Database,
  holder: string,
  { alert, notificationId }: TakenAlert,
  told: boolean,
): Promise<void> {
  await database.query('end alert', `SELECT ${database.schema}.end_alert($1, $2, $3, $4)`, [
    holder,
    alert,
    notificationId,
    told,
  ]);
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
