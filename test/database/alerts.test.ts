// Alerts: what each measures, that the Prometheus rules agree, and that the thresholds of one configuration apply
// everywhere. Alerts on waiting, retrying, times and shares are in statistics.test.ts.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { syncAlertThresholds } from '../../src/features/alerts/database.js';
import { readAlerts } from '../../src/features/alerts/database.js';
import { handler } from '../../src/destinations/handler.js';
import { alertNames } from '../../src/features/alerts/names.js';
import { readRules } from '../support/monitoring.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { openDatabase, startRelay } from '../support/relay.js';

const db = testDatabase();

async function alert(name: string) {
  const alerts = await readAlerts(openDatabase(db));
  return only(alerts.filter((each) => each.alert === name));
}

/** Makes pending deliveries look as if they had been due for this long. */
async function age(queue: Queue, seconds: number): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.deliveries SET available_at = available_at - $2 * interval '1 second' WHERE destination_id = $1`,
    [queue.id, seconds],
  );
}

async function beat(queue: Queue, breakers: object = {}): Promise<string> {
  const relay = randomUUID();
  await db.query(`SELECT ${db.quoted}.heartbeat($1, 'one', '0.1.0', 'same', $2, $3)`, [
    relay,
    [queue.name],
    JSON.stringify(breakers),
  ]);
  return relay;
}

async function silence(relay: string): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.relays SET heartbeat_at = heartbeat_at - interval '61 seconds' WHERE id = $1`,
    [relay],
  );
}

const pause = (queue: Queue, paused: boolean) =>
  db.query(`SELECT ${db.quoted}.set_paused($1, $2)`, [queue.name, paused]);

async function empty(queue: Queue): Promise<void> {
  await pause(queue, false);
  await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [queue.name]);
}

describe('the rules for Prometheus', () => {
  it('N14 P14 W8 have the names, thresholds, durations and descriptions of the alerts', async () => {
    const { rows } = await db.query<Record<string, string>>(
      `SELECT 'outbox_' || alert AS alert, CASE WHEN below THEN '< ' ELSE '> ' END || threshold AS condition,
              extract(epoch FROM notify_after)::int AS hold, severity, format(sentence, '{{ $value }}', threshold) AS summary, remedy
         FROM ${db.quoted}.alert_definitions()`,
    );
    const seconds = { s: 1, m: 60, h: 3600 };
    const rules = readRules().map((rule) => ({
      alert: rule.alert,
      condition: /[<>] [\d.]+$/.exec(rule.expr)?.[0],
      hold: Number.parseInt(rule.for, 10) * seconds[rule.for.at(-1) as keyof typeof seconds],
      severity: rule.severity,
      summary: rule.summary,
      remedy: rule.remedy,
    }));
    // alerts that only Prometheus can evaluate
    const unseen = ['outbox_no_scrape', 'outbox_replica_unused'];
    expect(rules.filter((rule) => !unseen.includes(rule.alert))).toEqual(rows);
    expect(rows.map((row) => row['alert'])).toEqual(alertNames.map((name) => `outbox_${name}`));
  });
});

describe('an alert', () => {
  it('P14 fires for deliveries that no living relay serves, once they have been due for a minute', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(2);
    await age(queue, 50);
    expect(await alert('no_relay')).toMatchObject({ firing: false, value: 0 });
    await age(queue, 20);
    expect(await alert('no_relay')).toMatchObject({ firing: true, value: 2, severity: 'critical' });
    const relay = await beat(queue);
    expect(await alert('no_relay')).toMatchObject({ firing: false });
    await silence(relay);
    expect(await alert('no_relay')).toMatchObject({ firing: true });
    await pause(queue, true);
    expect(await alert('no_relay')).toMatchObject({ firing: false });
    await empty(queue);
  });

  it('P14 fires for pending deliveries of a paused destination, but not for their age', async () => {
    const queue = await makeQueue(db);
    await pause(queue, true);
    expect(await alert('paused_waiting')).toMatchObject({ firing: false });
    await queue.enqueue(3);
    expect(await alert('paused_waiting')).toMatchObject({ firing: true, value: 3 });
    await age(queue, 400);
    expect(await alert('oldest_waiting_seconds')).toMatchObject({ firing: false });
    await pause(queue, false);
    expect(await alert('oldest_waiting_seconds')).toMatchObject({ firing: true });
    expect(await alert('paused_waiting')).toMatchObject({ firing: false });
    await empty(queue);
  });

  it('P14 fires for pending deliveries behind an open breaker of a living relay', async () => {
    const queue = await makeQueue(db);
    await queue.enqueue(4);
    const open = { [queue.name]: { state: 'open', since: new Date().toISOString(), failures: 5 } };
    const relay = await beat(queue, open);
    expect(await alert('breaker_open')).toMatchObject({ firing: true, value: 4 });
    await silence(relay);
    expect(await alert('breaker_open')).toMatchObject({ firing: false });
    await empty(queue);
    await beat(queue, open);
    expect(await alert('breaker_open')).toMatchObject({ firing: false, value: 0 });
  });

  it('P14 fires for partitions that run out: below its threshold, not at it', async () => {
    const { value } = await alert('partitions_ahead');
    const asked = async (threshold: number) => {
      const alerts = await readAlerts(openDatabase(db), { partitions_ahead: threshold });
      return only(alerts.filter((each) => each.alert === 'partitions_ahead')).firing;
    };
    expect(await asked(value ?? 0)).toBe(false);
    expect(await asked((value ?? 0) + 1)).toBe(true);
    expect(await alert('partitions_ahead')).toMatchObject({ firing: false, threshold: 30 });
  });
});

describe('thresholds', () => {
  it('N14 P14 of a configuration apply everywhere, until another one changes them', async () => {
    const settings = { destinations: { nowhere: handler(() => {}) }, routes: [] };
    const first = await startRelay(db, {
      ...settings,
      alerts: { thresholds: { waiting: 7, retrying: null } },
    });
    expect(await alert('waiting')).toMatchObject({ threshold: 7 });
    expect(await alert('retrying')).toMatchObject({ threshold: null, firing: false });
    expect((await alert('waiting')).sentence).toContain('alert above 7');
    // a configuration without alerts leaves them unchanged
    await startRelay(db, settings);
    expect(await alert('waiting')).toMatchObject({ threshold: 7 });
    await first.stop();
    await startRelay(db, { ...settings, alerts: { thresholds: { retry_share: 0.25 } } });
    expect(await alert('waiting')).toMatchObject({ threshold: 1000 });
    expect(await alert('retry_share')).toMatchObject({ threshold: 0.25 });
    await syncAlertThresholds(openDatabase(db), {});
    expect(await alert('retry_share')).toMatchObject({ threshold: 0.5 });
  });

  it('P14 for an unknown alert are refused', async () => {
    const wrong = { wating: 1 } as object;
    await expect(syncAlertThresholds(openDatabase(db), wrong)).rejects.toThrow(
      '"wating" is not an alert: use waiting,',
    );
    await expect(
      startRelay(db, { destinations: {}, alerts: { thresholds: wrong } }),
    ).rejects.toThrow('alerts.thresholds.wating is not an option: use waiting,');
  });
});
