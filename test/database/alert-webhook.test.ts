// The webhook for alerts, on a real receiver: each alert is sent when it begins and when it ends, once over all relays.
// It is sent again when the receiver failed or a relay died, and repeated while the alert lasts.

import { randomUUID } from 'node:crypto';

import { Webhook } from 'standardwebhooks';
import { describe, expect, it, onTestFinished } from 'vitest';

import {
  noteNotification,
  syncAlertThresholds,
  takeAlerts,
} from '../../src/features/alerts/database.js';
import { handler } from '../../src/destinations/handler.js';
import { resolveAlertOptions } from '../../src/features/alerts/options.js';
import type { AlertWebhookOptions } from '../../src/features/alerts/options.js';
import { AlertNotifier } from '../../src/features/alerts/notifier.js';
import type { RelayEvent } from '../../src/telemetry/events.js';
import { startReceiver } from '../support/endpoints.js';
import type { Received, Receiver } from '../support/endpoints.js';
import { expireHold, freeHold } from '../support/holds.js';
import { only } from '../support/only.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serve } from '../support/relay-partner.js';
import { makeRelay, openDatabase, waitLimitMs, startRelay, untilCount } from '../support/relay.js';
import { waitFor } from '../support/wait.js';

const db = testDatabase();
const secret = `whsec_${Buffer.from('a secret of the tests, long enough').toString('base64')}`;
const allowedNetworks = ['127.0.0.0/8'];
const hour = 3_600_000;

/** There are 60 days of partitions, so this alert fires at once and stays. */
const begin = () => syncAlertThresholds(openDatabase(db), { partitions_ahead: 1000 });
const end = () => syncAlertThresholds(openDatabase(db), {});

/** Resets: nothing fires, and nothing was ever sent. */
async function forget(): Promise<void> {
  await end();
  await db.query(`DELETE FROM ${db.quoted}.alert_states`);
  await freeHold(db, 'alerts');
}

async function tellerOf(webhook: AlertWebhookOptions) {
  const options = resolveAlertOptions({ webhook });
  if (options.webhook === null) throw new Error('no webhook');
  const events: RelayEvent[] = [];
  const emit = (event: RelayEvent) => void events.push(event);
  const teller = new AlertNotifier(
    openDatabase(db),
    randomUUID(),
    options.webhook,
    options.repeatMs,
    emit,
  );
  await teller.open();
  onTestFinished(() => teller.close());
  return { check: () => teller.check(), stop: () => teller.stop(), events };
}

const toldOf = ({ requests }: Receiver) => requests.map(({ headers }) => headers['webhook-topic']);

const bodyOf = ({ body }: Received) =>
  JSON.parse(body) as { event: string; data: Record<string, unknown>; timestamp: string };

async function backdate(column: string, ms: number): Promise<void> {
  await db.query(
    `UPDATE ${db.quoted}.alert_states SET ${column} = ${column} - $1 * interval '1 millisecond' WHERE isfinite(${column})`,
    [ms],
  );
}

describe('an alert', () => {
  it('N14 P14 W8 is sent once by two relays when it begins and once when it ends, signed', async () => {
    await forget();
    const receiver = await startReceiver();
    const alerts = {
      thresholds: { partitions_ahead: 1000 },
      webhook: { url: receiver.url, secrets: secret, allowedNetworks },
      checkMs: 100,
    };
    const settings = { destinations: { nowhere: handler(() => {}) }, alerts };
    const relays = [await startRelay(db, settings), await startRelay(db, settings)];
    await untilCount(receiver.requests, 1, 'requests');
    const firing = only(receiver.requests);
    const verify = () =>
      new Webhook(secret).verify(firing.body, firing.headers as Record<string, string>);
    expect(verify).not.toThrow();
    expect(bodyOf(firing)).toMatchObject({
      event: 'alert.firing',
      data: {
        alert: 'partitions_ahead',
        state: 'firing',
        severity: 'critical',
        threshold: 1000,
        sentence: expect.stringMatching(/^partitions exist for \d+ days ahead/) as string,
        remedy: expect.stringContaining('waybill maintain') as string,
        database: new URL(db.url).pathname.slice(1),
        schema: db.schema,
      },
    });
    await waitFor(() => relays.some((relay) => relay.of('alert_firing').length > 0), {
      what: 'the event',
      timeoutMs: waitLimitMs,
    });
    await end();
    await untilCount(receiver.requests, 2, 'requests');
    await waitFor(() => relays.some((relay) => relay.of('alert_resolved').length > 0), {
      what: 'the event',
      timeoutMs: waitLimitMs,
    });
    expect(toldOf(receiver)).toEqual(['alert.firing', 'alert.resolved']);
    const resolved = bodyOf(receiver.requests[1] ?? firing);
    expect(resolved.data).toMatchObject({ alert: 'partitions_ahead', state: 'resolved' });
    expect(resolved.data['since']).toBe(bodyOf(firing).data['since']);
    expect(relays.flatMap((relay) => relay.of('alert_firing'))).toHaveLength(1);
  });

  it('P14 is sent once, however many relays check it at the same moment', async () => {
    await forget();
    await begin();
    const receiver = await startReceiver();
    const tellers = await Promise.all(
      Array.from({ length: 5 }, () => tellerOf({ url: receiver.url, allowedNetworks })),
    );
    for (let round = 0; round < 4; round += 1)
      await Promise.all(tellers.map((teller) => teller.check()));
    expect(toldOf(receiver)).toEqual(['alert.firing']);
    await end();
    for (let round = 0; round < 4; round += 1)
      await Promise.all(tellers.map((teller) => teller.check()));
    expect(toldOf(receiver)).toEqual(['alert.firing', 'alert.resolved']);
  });

  it('P14 is not sent by a second relay while one is sending it, and the second does not wait', async () => {
    await forget();
    await begin();
    const busy = await db.connect();
    await busy.query('BEGIN');
    const take = `SELECT alert FROM ${db.quoted}.take_alerts($1, '4 hours', '1 minute')`;
    expect((await busy.query(take, [randomUUID()])).rowCount).toBe(1);
    const other = await db.connect();
    await other.query("SET lock_timeout = '100ms'");
    expect((await other.query(take, [randomUUID()])).rowCount).toBe(0);
    await busy.query('ROLLBACK');
    expect((await other.query(take, [randomUUID()])).rowCount).toBe(1);
  });

  it('P14 is sent again, with the same id, when the receiver failed', async () => {
    await forget();
    await begin();
    const receiver = await startReceiver();
    receiver.status = 500;
    const teller = await tellerOf({ url: receiver.url, allowedNetworks });
    await teller.check();
    expect(teller.events).toMatchObject([
      {
        name: 'alert_untold',
        alert: 'partitions_ahead',
        state: 'firing',
        outcome: { kind: 'retry', code: 'http_status', remoteCode: '500' },
      },
    ]);
    receiver.status = 204;
    // not at once, because the receiver is failing
    await teller.check();
    expect(receiver.requests).toHaveLength(1);
    await backdate('retry_at', 5000);
    await teller.check();
    expect(receiver.requests).toHaveLength(2);
    expect(new Set(receiver.ids).size).toBe(1);
    expect(teller.events.at(-1)).toMatchObject({ name: 'alert_firing', threshold: 1000 });
    await backdate('retry_at', hour);
    await teller.check();
    expect(receiver.requests).toHaveLength(2);
  });

  it('P14 is sent by another relay, with the same id, when one died before it could record it', async () => {
    await forget();
    await begin();
    const receiver = await startReceiver();
    const other = await tellerOf({ url: receiver.url, allowedNetworks });
    const taking = { repeatMs: hour, heldMs: 40_000 };
    const taken = only(await takeAlerts(openDatabase(db), randomUUID(), taking));
    await other.check();
    expect(receiver.requests).toHaveLength(0);
    await expireHold(db, 'alerts');
    await other.check();
    expect(receiver.ids).toEqual([taken.notificationId]);
    // a late record changes nothing
    await noteNotification(openDatabase(db), taken, true);
    await other.check();
    expect(receiver.requests).toHaveLength(1);
  });

  it('P14 is not sent again after a restart, but every four hours while it lasts', async () => {
    await forget();
    await begin();
    const receiver = await startReceiver();
    const webhook = { url: receiver.url, allowedNetworks };
    const before = await tellerOf(webhook);
    await before.check();
    before.stop();
    const after = await tellerOf(webhook);
    await after.check();
    expect(receiver.requests).toHaveLength(1);
    await backdate('last_notified_at', 4 * hour - 60_000);
    await after.check();
    expect(receiver.requests).toHaveLength(1);
    await backdate('last_notified_at', 60_000);
    await after.check();
    expect(toldOf(receiver)).toEqual(['alert.firing', 'alert.firing']);
    expect(new Set(receiver.ids).size).toBe(2);
    await after.check();
    expect(receiver.requests).toHaveLength(2);
  });

  it('P14 is sent when it has lasted for its duration, and not if it ended before', async () => {
    await forget();
    const receiver = await startReceiver();
    const teller = await tellerOf({ url: receiver.url, allowedNetworks });
    const queue = await makeQueue(db);
    await queue.enqueue(1);
    const brief = () => syncAlertThresholds(openDatabase(db), { waiting: 0 });
    await brief();
    await teller.check();
    await backdate('firing_since', 59_000);
    await teller.check();
    await end();
    await teller.check();
    await brief();
    await teller.check();
    expect(receiver.requests).toHaveLength(0);
    await backdate('firing_since', 60_000);
    await teller.check();
    const { data } = bodyOf(only(receiver.requests));
    expect(data).toMatchObject({ alert: 'waiting', value: 1, threshold: 0, severity: 'warning' });
  });

  it('P14 is also sent by a drain, which does not fail when the receiver is away', async () => {
    await forget();
    const receiver = await startReceiver();
    const drain = async (url: string) => {
      const alerts = {
        thresholds: { partitions_ahead: 1000 },
        webhook: { url, allowedNetworks },
      };
      const made = makeRelay(db, { destinations: { drained: handler(() => {}) }, alerts });
      const report = await made.relay.drain({ maxMs: 20_000, maxMessages: 10, maintain: false });
      return { report, made };
    };
    const { report, made } = await drain('http://127.0.0.1:1/');
    expect(report).toMatchObject({ finished: true });
    expect(made.of('alert_untold')).toMatchObject([{ outcome: { code: 'connection_failed' } }]);
    await backdate('retry_at', 5000);
    await drain(receiver.url);
    expect(toldOf(receiver)).toEqual(['alert.firing']);
  });
});

describe('the receiver', () => {
  it('P14 must have a public address, unless its network is allowed', async () => {
    expect(() => resolveAlertOptions({ webhook: { url: 'http://10.1.2.3/hook' } })).toThrow(
      'alerts.webhook.url is "http://10.1.2.3/…": 10.1.2.3 is not a public address, and in none of allowedNetworks',
    );
    await forget();
    await begin();
    const receiver = await startReceiver();
    // a name is checked when it is resolved
    const url = receiver.url.replace('127.0.0.1', 'localhost');
    const teller = await tellerOf({ url });
    await teller.check();
    expect(teller.events).toMatchObject([
      { name: 'alert_untold', outcome: { code: 'target_refused' } },
    ]);
    expect(receiver.requests).toHaveLength(0);
  });

  it.each([
    [200, 'alert_firing'],
    [500, 'alert_untold'],
  ])(
    'P14 that sends the status %i and never ends its response is aborted at the timeout, and the status decides',
    async (status, event) => {
      await forget();
      await begin();
      let drips = 0;
      const { url } = await serve((_request, response) => {
        response.writeHead(status);
        const dripping = setInterval(() => response.write('.'), 20);
        response.on('close', () => clearInterval(dripping));
        drips += 1;
      });
      const teller = await tellerOf({ url, allowedNetworks, timeoutMs: 2000 });
      await teller.check();
      expect(teller.events).toMatchObject([{ name: event }]);
      expect(drips).toBe(1);
    },
  );

  it('P14 has options that are checked, and a secret that is never shown', () => {
    const refusal = (webhook: object) => {
      try {
        resolveAlertOptions({ webhook: { url: 'https://example.com', ...webhook } });
        return '';
      } catch (error) {
        return (error as Error).message;
      }
    };
    expect(refusal({ urls: 1 })).toMatch(/^alerts\.webhook\.urls is not an option: use url, /);
    expect(refusal({ secrets: 'my-own-secret' })).toMatch(/^alerts\.webhook\.secrets is "…"/);
    expect(refusal({ secrets: undefined })).toMatch(/^alerts\.webhook\.secrets is undefined: give/);
    expect(refusal({ timeoutMs: 0 })).toMatch(/^alerts\.webhook\.timeoutMs is 0: give a whole/);
    expect(() => resolveAlertOptions({ repeatMs: 1 })).toThrow('alerts.repeatMs is 1: give a');
    expect(resolveAlertOptions({})).toMatchObject({ webhook: null, repeatMs: 4 * hour });
  });
});
