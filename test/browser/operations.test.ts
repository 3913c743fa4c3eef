// Blocked keys, destinations, relays, the database, the audit and the overview in a browser.

import { expect, it, onTestFinished } from 'vitest';

import { takeSample } from '../../src/listing/statistics.js';
import {
  answer,
  expectLoaded,
  expectNoDialog,
  expectRows,
  polling,
  rowsOf,
  testBrowser,
} from '../support/browser.js';
import { makeBlocked, makeDead, makeRetrying } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { otherDatabase, testDatabase } from '../support/postgres.js';
import { openDatabase } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

async function show(place: string) {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  return browser.open(`${url}/#/${place}`);
}

it('W5 blocked keys are retried, skipped and discarded', async () => {
  const queue = await makeQueue(db, { whenDead: 'block' });
  const [retried = ''] = await makeBlocked(queue, 'retried', 0);
  const [skipped = ''] = await makeBlocked(queue, 'skipped', 0);
  const [discarded = ''] = await makeBlocked(queue, 'discarded', 1);
  const page = await show(`keys?destination=${queue.name}`);
  await expectRows(page, 'Blocked keys', 3);
  const row = (key: string) => rowsOf(page, 'Blocked keys').filter({ hasText: key });
  expect(await row('discarded').locator('[data-label="Behind it"]').textContent()).toBe('1');
  await row('retried').getByRole('button', { name: 'Retry' }).click();
  await expectRows(page, 'Blocked keys', 2);
  expect(await queue.status(retried)).toMatchObject({ status: 'pending' });
  await row('skipped').getByRole('button', { name: 'Skip' }).click();
  await answer(page, 'Skip');
  await expectRows(page, 'Blocked keys', 1);
  expect(await queue.status(skipped)).toMatchObject({ status: 'dead' });
  await row('discarded').getByRole('button', { name: 'Discard' }).click();
  await answer(page, 'Discard');
  await page.getByText('No key is blocked.').waitFor();
  await page.getByText('A key is blocked while it waits at a destination').waitFor();
  await expectNoDialog(page);
  expect(await queue.status(discarded)).toMatchObject({ status: 'discarded' });
  const results = page.getByRole('region', { name: 'Discarded' });
  await results.getByRole('link', { name: 'discarded' }).waitFor();
  await results.getByRole('button', { name: 'Undo' }).click();
  await page.getByText('it is a dead letter again').waitFor();
  expect(await queue.status(discarded)).toMatchObject({ status: 'dead' });
  await expectRows(page, 'Blocked keys', 1);
});

it('W5 without endpoints, their screen says what an endpoint is', async () => {
  const page = await show('endpoints');
  await page.getByText('An endpoint is a webhook of a customer').waitFor();
  const tenant = page.getByLabel('Tenant', { exact: true });
  await tenant.fill('acme');
  await tenant.press('Enter');
  await page.getByText('No endpoint matches.').waitFor();
});

it('N13 unrouted messages raise an alert on the overview, which links to them', async () => {
  await db.query(`SELECT ${db.quoted}.enqueue('not.routed')`);
  const page = await show('overview');
  const alert = page.getByLabel('Alerts').getByRole('listitem').filter({ hasText: 'no route' });
  await alert.getByText('1 message has no route and is not delivered (alert above 0).').waitFor();
  // the alarm of the health view says the same, and is left out
  expect(await alert.count()).toBe(1);
  expect(await page.getByLabel('Alerts').textContent()).not.toContain('waybill');
  await alert.getByRole('link', { name: 'Show messages' }).click();
  await expectRows(page, 'Messages', 1);
  expect(await rowsOf(page, 'Messages').textContent()).toContain('not.routed');
  await db.query(`SELECT ${db.quoted}.discard_unrouted()`);
});

it('W5 P14 the alert about a paused destination has a button that resumes it, for operators only', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
  const isPaused = async () =>
    (
      await db.query(
        `SELECT FROM ${db.quoted}.destinations WHERE name = $1 AND paused_at IS NOT NULL`,
        [queue.name],
      )
    ).rowCount;
  const server = await serveDatabase(db);
  const shown = async (scope: 'read' | 'operate') => {
    const token = await server.token(scope);
    const page = await browser.open(`${server.url}/#/overview`, { token });
    const text = `1 delivery to ${queue.name} waits because of a pause`;
    const alert = page.getByLabel('Alerts').getByRole('listitem').filter({ hasText: text });
    await alert.waitFor();
    return alert;
  };
  const read = await shown('read');
  await read.getByRole('link', { name: 'Show messages' }).waitFor();
  expect(await read.getByRole('button').count()).toBe(0);
  const alert = await shown('operate');
  await alert.getByRole('button', { name: `Resume ${queue.name}` }).click();
  await alert.waitFor({ state: 'detached' });
  expect(await isPaused()).toBe(0);
  await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [queue.name]);
});

it('W5 P14 the alert about retries makes them due after a question, and only at its destination', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  await makeRetrying(queue, 101);
  await makeRetrying(other, 1);
  const page = await show('overview');
  const alert = page.getByLabel('Alerts').getByRole('listitem').filter({ hasText: 'another try' });
  await alert.getByText(`102 deliveries to ${queue.name} and 1 other destination wait`).waitFor();
  await alert.getByRole('button', { name: 'Retry now' }).click();
  await answer(page, 'Retry now');
  await expectNoDialog(page);
  const due = async ({ id }: { id: number }) =>
    (
      await db.query(
        `SELECT FROM ${db.quoted}.deliveries WHERE destination_id = $1 AND available_at <= clock_timestamp()`,
        [id],
      )
    ).rowCount;
  expect([await due(queue), await due(other)]).toEqual([101, 0]);
  for (const { name } of [queue, other])
    await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [name]);
});

it('W5 a destination is paused and resumed, and the page shows by whom', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(2);
  const page = await show('destinations');
  const row = rowsOf(page, 'Destinations').filter({
    has: page.getByRole('link', { name: queue.name, exact: true }),
  });
  await row.getByRole('button', { name: 'Pause' }).click();
  await row.getByText(/paused .* ago by api:local/).waitFor();
  expect((await queue.claim()).ids).toEqual([]);
  expect(await row.locator('[data-label=Waiting]').textContent()).toBe('2');
  await row.getByRole('button', { name: 'Resume' }).click();
  await row.getByText('delivering').waitFor();
  expect((await queue.claim()).ids).toHaveLength(2);
});

it('M13 W5 breakers, rates, successes and the reason of a pause are shown', async () => {
  const [open, limited] = [await makeQueue(db), await makeQueue(db)];
  await db.query(
    `INSERT INTO ${db.quoted}.relays (id, name, version, configuration, destinations, started_at, heartbeat_at, breakers)
     VALUES (gen_random_uuid(), 'r1', '1', 'c', $1, now(), now(), $2)`,
    [
      [open.name],
      JSON.stringify({ [open.name]: { state: 'open', since: new Date(), failures: 12 } }),
    ],
  );
  await db.query(
    `UPDATE ${db.quoted}.destinations SET rate_per_second = 25, has_breaker = true WHERE id = $1`,
    [limited.id],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     SELECT date_bin('10 seconds', now(), 'epoch') - n * interval '10 seconds', $1, 150, 49, 1 FROM generate_series(0, 12) n`,
    [limited.id],
  );
  await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'ann', 'they migrate')`, [limited.name]);
  const refused = await makeQueue(db);
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     VALUES (date_bin('10 seconds', now(), 'epoch') - interval '10 seconds', $1, 0, 1, 0)`,
    [refused.id],
  );
  const page = await show('destinations');
  const cell = (name: string, head: string) =>
    rowsOf(page, 'Destinations')
      .filter({ has: page.getByRole('link', { name, exact: true }) })
      .locator(`[data-label="${head}"]`);
  await cell(open.name, 'Breaker').getByText('open').waitFor();
  expect(await cell(limited.name, 'Breaker').textContent()).toBe('closed');
  expect(await cell(limited.name, 'Tries/s').textContent()).toBe('20.0 of 25');
  expect(await cell(limited.name, 'Success rate').textContent()).toBe('75.0 %');
  expect(await cell(limited.name, 'Delivery rate').textContent()).toBe('99.3 %');
  expect(await cell(open.name, 'Delivery rate').textContent()).toBe('–');
  expect(await cell(limited.name, 'State').textContent()).toContain('they migrate');
  expect(await cell(open.name, 'State').locator('.bad-text').textContent()).toBe('breaker open');
  expect(await cell(refused.name, 'State').locator('.bad-text').textContent()).toBe(
    'every try fails',
  );
});

it('W5 a destination that left the configuration is red while deliveries wait, then grey', async () => {
  const left = await makeQueue(db);
  await left.enqueue(1);
  await db.query(`UPDATE ${db.quoted}.destinations SET configured = false WHERE id = $1`, [
    left.id,
  ]);
  const page = await show('destinations');
  const state = rowsOf(page, 'Destinations')
    .filter({ has: page.getByRole('link', { name: left.name, exact: true }) })
    .locator('[data-label="State"]');
  await state.locator('.bad-text').getByText('in no configuration').waitFor();
  await db.query(`SELECT ${db.quoted}.discard_deliveries($1)`, [left.name]);
  await state.locator('.muted').getByText('in no configuration').waitFor();
});

it('W5 relays, the database and the audit are shown', async () => {
  await db.query(
    `INSERT INTO ${db.quoted}.relays (id, name, version, configuration, destinations, started_at, heartbeat_at)
     VALUES (gen_random_uuid(), 'alive', '9.9.9', 'abc', '{crm}', now(), now() + interval '1 hour'),
            (gen_random_uuid(), 'gone', '9.9.8', 'abc', '{crm}', now(), now() - interval '10 minutes')`,
  );
  const queue = await makeQueue(db);
  await queue.enqueue(3);
  const held = await queue.claim({ limit: 3 });
  await db.query(`UPDATE ${db.quoted}.relays SET id = $1 WHERE name = 'alive'`, [held.relayId]);
  const page = await show('relays');
  const alive = rowsOf(page, 'Relays').filter({ hasText: 'alive' });
  await alive.getByText(/1, oldest .* ago/).waitFor();
  expect(await alive.locator('[data-label="Processing"]').textContent()).toBe('3');
  expect(await rowsOf(page, 'Relays').filter({ hasText: 'gone' }).textContent()).toContain(
    '10 min ago',
  );
  await page.getByRole('link', { name: 'Database' }).click();
  await rowsOf(page, 'Tables').getByText('dead_letters').waitFor();
  await page.getByText('60 d').waitFor();
  const today = new Date().toISOString().slice(0, 10);
  await rowsOf(page, 'Partitions').getByText(today).waitFor();
  await db.query(`SELECT ${db.quoted}.set_paused($1, true, 'ann')`, [queue.name]);
  await page.getByRole('link', { name: 'Audit' }).click();
  const first = rowsOf(page, 'Actions').first();
  await first.getByText('ann').waitFor();
  expect(await first.textContent()).toContain(queue.name);
  await db.query(`SELECT ${db.quoted}.set_paused($1, false, 'bob')`, [queue.name]);
  await rowsOf(page, 'Actions').first().getByText('bob').waitFor();
  await rowsOf(page, 'Actions').getByRole('link', { name: 'ann' }).first().click();
  await rowsOf(page, 'Actions').getByText('bob').waitFor({ state: 'detached' });
  await page.getByLabel('What', { exact: true }).fill('resume');
  await page.keyboard.press('Enter');
  await page.getByText('No action matches.').waitFor();
  await page.getByRole('link', { name: 'Clear 2' }).click();
  await rowsOf(page, 'Actions').first().getByText('bob').waitFor();
  const time = first.locator('time');
  expect(await time.getAttribute('title')).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+\S+ \S+$/);
});

it('W5 the overview says where nothing was measured, and shows no zero', async () => {
  const empty = await otherDatabase('migrated');
  const { url } = await serveDatabase({ ...db, url: empty.url }, { authentication: 'none' });
  const page = await browser.open(`${url}/#/`);
  await page.getByText('No alert is firing').waitFor();
  const without = [
    'In',
    'Out',
    'Average',
    'p50',
    'p99',
    'Delivered today',
    'Success rate',
    'Delivery rate',
  ];
  for (const name of without)
    expect(await page.locator(`[data-tile="${name}"]`).textContent(), name).toContain(
      'no data yet',
    );
  expect(await page.locator('[data-tile=Waiting] .tile-value').textContent()).toBe('0');
  expect(await page.locator('.no-data').count()).toBe(6);
});

it('W5 W7 W10 N14 the overview shows numbers, charts, firing alerts and the state of destinations', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 12, 'no');
  await db.query(
    `INSERT INTO ${db.quoted}.samples (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
     SELECT date_bin('10 seconds', now(), 'epoch') - n * interval '10 seconds', 50, 7, 3, 12, 1.5, 40, 20, 300 FROM generate_series(1, 60) n`,
  );
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     SELECT date_bin('10 seconds', now(), 'epoch') - n * interval '10 seconds', $1, 1998, 664, 2 FROM generate_series(1, 60) n`,
    [queue.id],
  );
  await takeSample(openDatabase(db));
  const page = await show('overview?range=1h');
  const tile = (name: string) => page.locator(`[data-tile="${name}"] .tile-value`);
  await expect.poll(() => tile('In').textContent(), polling).toBe('5.00');
  expect(await tile('Success rate').textContent()).toBe('75.0 %');
  expect(await tile('p99').textContent()).toBe('300 ms');
  expect(await tile('Average').textContent()).toBe('40 ms');
  expect(await tile('Delivery rate').textContent()).toBe('99.9 %');
  expect(await page.locator('[data-tile="Delivery rate"] .tile-note').textContent()).toBe(
    'dead rate 0.1 %, 5 min',
  );
  expect(await tile('Delivered today').count()).toBe(1);
  await page.getByText(/1\d deliveries to .+ died in the last 10 minutes/).waitFor();
  expect(await page.locator('.plot svg').count()).toBe(6);
  await page.getByRole('link', { name: queue.name, exact: true }).waitFor();
  await page.getByRole('link', { name: '24 h' }).click();
  await page.waitForURL(/range=24h/);
  await page.reload();
  await page.locator('[aria-current=true]').getByText('24 h').waitFor();
});

it('W5 N13 the remedy of an alert says how many deliveries it made due', async () => {
  const queue = await makeQueue(db);
  await makeRetrying(queue, 2);
  const limit = (of: object) =>
    db.query(`SELECT ${db.quoted}.sync_alert_thresholds($1)`, [JSON.stringify(of)]);
  await limit({ retrying: 0 });
  onTestFinished(async () => {
    await limit({});
  });
  const page = await show('overview');
  await page.getByRole('button', { name: 'Retry now' }).first().click();
  await answer(page, 'Retry now');
  const result = page.getByRole('region', { name: 'Retry failed' });
  await result.getByText(/^\d+ deliveries made due\.$/).waitFor();
  expect((await queue.claim()).ids).toHaveLength(2);
});

it('N13 W7 the age of the oldest due message counts at a paused destination, and the tile says so', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(3, { key: 'k' });
  await db.query(
    `UPDATE ${db.quoted}.deliveries SET available_at = now() - interval '3 hours' WHERE destination_id = $1`,
    [queue.id],
  );
  await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
  const page = await show('overview');
  const tile = page.locator('[data-tile="Oldest due"]');
  await tile.getByText('its destination is paused').waitFor();
  expect(await tile.locator('.tile-value').textContent()).toBe('3 h');
  await db.query(`SELECT ${db.quoted}.set_paused($1, false)`, [queue.name]);
  await tile.getByText('since it was due').waitFor();
});

it('W7 W10 tiles have the rates of the last minutes, and a new outbox has charts of 15 minutes', async () => {
  const other = await otherDatabase('migrated');
  const { url } = await serveDatabase({ ...db, url: other.url }, { authentication: 'none' });
  const page = await browser.open(`${url}/#/overview`);
  const chosen = page.locator('.segments [aria-current=true]');
  await chosen.getByText('15 min').waitFor();
  // all is well for a day, and nothing in the last minutes
  await other.client.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     SELECT date_bin('1 minute', now(), 'epoch') - n * interval '1 minute', 1, CASE WHEN n > 5 THEN 1000 ELSE 0 END, 10, CASE WHEN n > 5 THEN 0 ELSE 5 END
       FROM generate_series(1, 1000) n`,
  );
  await other.client.query(
    `INSERT INTO ${db.quoted}.samples (slice, enqueued, waiting, retrying, dead)
     SELECT date_bin('10 seconds', now(), 'epoch') - n * interval '10 seconds', 50, 7, 3, 12 FROM generate_series(1, 360) n`,
  );
  await page.reload();
  await chosen.getByText('1 h').waitFor();
  await page.getByRole('link', { name: '24 h' }).click();
  await chosen.getByText('24 h').waitFor();
  const tile = (name: string) => page.locator(`[data-tile="${name}"] .tile-value`);
  await expect.poll(() => tile('Success rate').textContent(), polling).toBe('0 %');
  expect(await tile('Delivery rate').textContent()).toBe('0 %');
});

it('W5 a failed request is shown where it happened, with a button to try again', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open('about:blank', { expected: /ERR_FAILED/ });
  await page.clock.install();
  await page.route('**/api/audit*', (route) => route.abort());
  await page.goto(`${url}/#/audit`);
  await page.getByRole('alert').getByText('The server cannot be reached.').waitFor();
  // the page would retry by itself
  await page.clock.pauseAt(Date.now() + 1000);
  await page.unroute('**/api/audit*');
  await page.getByRole('button', { name: 'Try again' }).click();
  await page.clock.runFor(500);
  await page.getByRole('alert').waitFor({ state: 'detached' });
});

it('W5 an outage is shown once, also on a screen that asks seldom, and goes soon after it', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open('about:blank', { expected: /ERR_FAILED/ });
  await page.clock.install();
  const answered = page.waitForResponse('**/api/health');
  await page.goto(`${url}/#/reports`);
  await answered;
  await page.getByRole('heading', { name: 'Reports' }).waitFor();
  await expectLoaded(page);
  await page.route('**/api/**', (route) => route.abort());
  // the report itself is asked for after 30 seconds
  await page.clock.fastForward(16_000);
  const problem = page.getByRole('alert').getByText('The server cannot be reached.');
  await problem.waitFor();
  await page.clock.fastForward(20_000);
  await page.locator('.outage ~ .problem').waitFor();
  await expect.poll(() => page.getByRole('alert').count(), polling).toBe(1);
  await page.unroute('**/api/**');
  await page.clock.fastForward(6000);
  await expect.poll(() => page.getByRole('alert').count(), polling).toBe(0);
});

it('W6 a rollout is changed after a question, and shadow differences are shown', async () => {
  const queue = await makeQueue(db);
  await db.query(
    `WITH shadow AS (INSERT INTO ${db.quoted}.destinations (name, kind, max_attempts, retry_base_ms, retry_max_ms)
       VALUES ('signups.shadow', 'shadow', 1, 1, 1) RETURNING id)
     INSERT INTO ${db.quoted}.rollouts (name, destination_id, shadow_destination_id, shadow)
     SELECT 'signups', $1, id, true FROM shadow`,
    [queue.id],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.routes (destination_id, topic, split_by) VALUES ($1, 'signups', 'signups')`,
    [queue.id],
  );
  await db.query(
    `INSERT INTO ${db.quoted}.shadow_comparisons (rollout, reference, first_at, rendered, rendered_at, sent, sent_at)
     VALUES ('signups', 'a/1', now(), '{"n": 1}', now(), '{"n": 2}', now())`,
  );
  const page = await show('rollouts?rollout=signups');
  const row = rowsOf(page, 'Rollouts').filter({ hasText: 'signups' });
  await row.getByText('nothing (shadow)').waitFor();
  await page.getByText('1 different').waitFor();
  await rowsOf(page, 'Differences').filter({ hasText: 'a/1' }).getByText('{"n":2}').waitFor();
  await row.getByRole('button', { name: '10 %' }).click();
  await answer(page, 'Change to 10 %');
  await row.getByText(/by api:local/).waitFor();
  await expectNoDialog(page);
  const { rows } = await db.query(
    `SELECT percent::float8 AS percent, shadow, changed_by FROM ${db.quoted}.rollouts WHERE name = 'signups'`,
  );
  expect(rows).toEqual([{ percent: 10, shadow: false, changed_by: 'api:local' }]);
});
