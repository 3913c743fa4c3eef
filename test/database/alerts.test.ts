// Alerts: what each measures, that the Prometheus rules agree, and that the thresholds of one configuration apply
// everywhere. Alerts on waiting, retrying, times and shares are in statistics.test.ts.

import { randomUUID } from 'node:crypto';

import { describe, expect, it } from 'vitest';

import { syncAlertThresholds } from '../../src/features/alerts/database.js';
import { readAlerts } from '../../src/features/alerts/database.js';
import { handler } from '../../src/destinations/handler.js';
import { alertNames } from '../../src/features/alerts/names.js';
import { readRules } from '../support/monitoring.js';
import { makeDead, makeRetrying } from '../support/letters.js';
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

/** Removes the activity of earlier tests. */
const forgetActivity = () =>
  db.query(
    `DELETE FROM ${db.quoted}.statistics; DELETE FROM ${db.quoted}.dead_letters; DELETE FROM ${db.quoted}.leases`,
  );

const tried = (queue: Queue, delivered: number, retried: number, died: number) =>
  db.query(
    `SELECT ${db.quoted}.add_statistics(ARRAY[$1::int], ARRAY[$2::bigint], ARRAY[$3::bigint], ARRAY[$4::bigint])`,
    [queue.id, delivered, retried, died],
  );

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
              extract(epoch FROM notify_after)::int AS hold, severity,
              CASE WHEN singular IS NULL THEN format(sentence, shown, place)
                   ELSE '{{ if eq $value 1.0 }}' || format(singular, shown, place) || '{{ else }}' || format(sentence, shown, place) || '{{ end }}' END
                || format(' (alert %s %s)', CASE WHEN below THEN 'below' ELSE 'above' END, ${db.quoted}.alert_number(unit, threshold)) AS summary,
              remedy
         FROM ${db.quoted}.alert_definitions()
         JOIN (VALUES ('count', '{{ $value }}'), ('seconds', '{{ $value | humanizeDuration }}'), ('share', '{{ $value | humanizePercentage }}')) u(unit, shown) USING (unit),
              (VALUES ('{{ with $labels.destination }} to {{ . }}{{ end }}')) p(place)
        ORDER BY array_position($1::text[], alert)`,
      [alertNames],
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

describe('the sentence of an alert', () => {
  it('P14 W5 names the destination that is affected most, and counts the others', async () => {
    const [first, second, third] = [await makeQueue(db), await makeQueue(db), await makeQueue(db)];
    for (const queue of [first, second, third]) await pause(queue, true);
    await second.enqueue(1);
    expect(await alert('paused_waiting')).toMatchObject({
      destination: second.name,
      sentence: `1 delivery to ${second.name} waits because of a pause (alert above 0)`,
    });
    await first.enqueue(3);
    expect(await alert('paused_waiting')).toMatchObject({
      destination: first.name,
      sentence: `4 deliveries to ${first.name} and 1 other destination wait because of a pause (alert above 0)`,
    });
    await third.enqueue(2);
    expect((await alert('paused_waiting')).sentence).toContain(
      `6 deliveries to ${first.name} and 2 other destinations wait`,
    );
    for (const queue of [first, second, third]) await empty(queue);
    expect(await alert('paused_waiting')).toMatchObject({ firing: false, destination: null });
  });

  it('P14 W5 has the share of the destination with the most failures, and then that of all', async () => {
    await forgetActivity();
    const [fails, works] = [await makeQueue(db), await makeQueue(db)];
    await tried(fails, 5, 95, 0);
    expect(await alert('retry_share')).toMatchObject({
      firing: true,
      value: 0.95,
      destination: fails.name,
      sentence: `95 % of the tries to ${fails.name} failed in the last 5 minutes and are repeated (alert above 50 %)`,
    });
    // its only try failed, but it is not the worst
    await tried(works, 0, 1, 0);
    await tried(await makeQueue(db), 49, 0, 0);
    expect(await alert('retry_share')).toMatchObject({
      value: 0.64,
      destination: fails.name,
      sentence: `95 % of the tries to ${fails.name} failed in the last 5 minutes and are repeated; with 2 other destinations, 64 % (alert above 50 %)`,
    });
    await tried(works, 0, 0, 1);
    expect(await alert('dead_share')).toMatchObject({
      destination: works.name,
      sentence: `100 % of the deliveries to ${works.name} died in the last 5 minutes; with 2 other destinations, 1.82 % (alert above 0.1 %)`,
    });
    await forgetActivity();
  });

  it('P14 W5 of deliveries that wait, are retried, are stuck, die or are late has their destination', async () => {
    await forgetActivity();
    const [many, few] = [await makeQueue(db), await makeQueue(db)];
    const sentenceOf = async (name: string, threshold: number) => {
      const alerts = await readAlerts(openDatabase(db), { [name]: threshold });
      return only(alerts.filter((each) => each.alert === name)).sentence;
    };
    await many.enqueue(2);
    await few.enqueue(1);
    await age(many, 7300);
    await age(few, 400);
    const both = `to ${many.name} and 1 other destination`;
    expect(await sentenceOf('waiting', 2)).toBe(`3 deliveries ${both} wait (alert above 2)`);
    expect(await sentenceOf('no_relay', 0)).toBe(
      `3 deliveries ${both} have waited for more than a minute, and no running relay serves them (alert above 0)`,
    );
    expect(await sentenceOf('oldest_waiting_seconds', 300)).toBe(
      `deliveries ${both} have been due for up to 2 hours (alert above 5 minutes)`,
    );
    expect(await sentenceOf('oldest_waiting_seconds', 1000)).toContain(
      `deliveries to ${many.name} have been due for up to 2 hours`,
    );
    await empty(many);
    await empty(few);
    await makeRetrying(few, 1);
    expect(await sentenceOf('retrying', 0)).toBe(
      `1 delivery to ${few.name} waits for another try (alert above 0)`,
    );
    await makeDead(many, 1, 'no');
    expect(await sentenceOf('dead_growth', 0)).toBe(
      `1 delivery to ${many.name} died in the last 10 minutes (alert above 0)`,
    );
    await many.enqueue(1);
    const { leaseId } = await many.claim();
    await db.query(
      `UPDATE ${db.quoted}.leases SET expires_at = clock_timestamp() - interval '61 seconds' WHERE id = $1`,
      [leaseId],
    );
    expect(await sentenceOf('stuck_dispatching', 0)).toBe(
      `1 delivery to ${many.name} is held by a lease that expired more than a minute ago (alert above 0)`,
    );
    await empty(few);
    await forgetActivity();
  });

  it.each([
    ['seconds', 0.94, '0.9 seconds'],
    ['seconds', 1, '1 second'],
    ['seconds', 119, '119 seconds'],
    ['seconds', 120, '2 minutes'],
    ['seconds', 7200, '2 hours'],
    ['seconds', 172_800, '2 days'],
    ['share', 0.001, '0.1 %'],
    ['share', 1, '100 %'],
    ['count', 1001, '1001'],
  ])('P14 shows the %s %s as %s', async (unit, value, shown) => {
    const { rows } = await db.query<{ shown: string }>(
      `SELECT ${db.quoted}.alert_number($1, $2) AS shown`,
      [unit, value],
    );
    expect(only(rows).shown).toBe(shown);
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
