// Charts of the overview, of a destination and of an endpoint in a browser: the shared moment, the range and the zoom in
// the address, and the messages behind a point.

import type { Locator, Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { expectRows, polling, rowsOf, testBrowser } from '../support/browser.js';
import { addRoute } from '../support/destinations.js';
import { addEndpoint } from '../support/endpoints.js';
import { makeDead, makeRetrying } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';
import { settleDelivered } from '../support/settling.js';
import { accessibilityProblems } from './accessibility.js';

const db = testDatabase();
const browser = testBrowser();

/** The overview with samples of the last 20 minutes. */
async function openOverview(): Promise<Page> {
  await db.query(
    `INSERT INTO ${db.quoted}.samples (slice, enqueued, waiting, retrying, dead, oldest_seconds, average_ms, p50_ms, p99_ms)
     SELECT date_bin('10 seconds', now(), 'epoch') - n * interval '10 seconds', n, n, 0, 1, 1, 1, 1, 1 FROM generate_series(1, 120) n
     ON CONFLICT DO NOTHING`,
  );
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     SELECT date_bin('10 seconds', now(), 'epoch') - n * interval '10 seconds', 1, 5, 1, 1 FROM generate_series(1, 120) n
     ON CONFLICT DO NOTHING`,
  );
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/overview?range=15m`);
  await plotOf(page, 'Waiting').waitFor();
  return page;
}

function plotOf(page: Page, title: string): Locator {
  return page.getByRole('slider', { name: `${title} over time` });
}

/** The moment that each chart shows. */
async function moments(page: Page): Promise<string[]> {
  return page.locator('.chart-time').allTextContents();
}

async function boxOf(plot: Locator) {
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  if (box === null) throw new Error('the chart is not visible');
  return { ...box, middle: box.y + box.height / 2 };
}

/** The filters of the address. */
function queryOf(page: Page): URLSearchParams {
  return new URLSearchParams(new URL(page.url()).hash.split('?')[1]);
}

it('W5 all charts show the moment that the pointer or the keyboard points at in one', async () => {
  const page = await openOverview();
  expect(new Set(await moments(page))).toEqual(new Set(['']));
  const box = await boxOf(plotOf(page, 'Waiting'));
  await page.mouse.move(box.x + box.width / 2, box.middle);
  await expect.poll(async () => new Set(await moments(page)).size, polling).toBe(1);
  const [pointed = ''] = await moments(page);
  expect(pointed).toMatch(/^\d\d:\d\d:\d\d$/);
  expect(await page.locator('.cursor').count()).toBe(6);
  await page.mouse.move(0, 0);
  await expect.poll(() => page.locator('.cursor').count(), polling).toBe(0);
  await plotOf(page, 'Dead letters').focus();
  await page.keyboard.press('ArrowLeft');
  await expect.poll(() => page.locator('.cursor').count(), polling).toBe(6);
  expect(await plotOf(page, 'Waiting').getAttribute('aria-valuetext')).toMatch(
    /^\d\d:\d\d:\d\d: waiting \d+, retrying 0$/,
  );
  expect(await accessibilityProblems(page)).toEqual([]);
});

it('W5 dragging zooms into a time, which is in the address, and Back zooms out', async () => {
  const page = await openOverview();
  const box = await boxOf(plotOf(page, 'Waiting'));
  await page.mouse.move(box.x + box.width * 0.4, box.middle);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.5, box.middle);
  expect(await page.locator('rect.selected').count()).toBe(6);
  await page.mouse.move(box.x + box.width * 0.6, box.middle);
  await page.mouse.up();
  await page.getByRole('link', { name: 'Zoom out' }).waitFor();
  const query = queryOf(page);
  const ms = Date.parse(query.get('to') ?? '') - Date.parse(query.get('from') ?? '');
  expect(ms).toBeGreaterThanOrEqual(170_000);
  expect(ms).toBeLessThanOrEqual(210_000);
  await expect
    .poll(async () => Number(await plotOf(page, 'Waiting').getAttribute('aria-valuemax')), polling)
    .toBe(Math.round(ms / 10_000) - 1);
  await page.reload();
  await page.getByRole('link', { name: 'Zoom out' }).waitFor();
  await page.goBack();
  await page.getByRole('link', { name: 'Zoom out' }).waitFor({ state: 'detached' });
  expect(queryOf(page).get('range')).toBe('15m');
});

it('W5 the keyboard selects a time with Shift, and Enter zooms into it', async () => {
  const page = await openOverview();
  await plotOf(page, 'Waiting').focus();
  for (let n = 0; n < 12; n += 1) await page.keyboard.press('Shift+ArrowLeft');
  expect(await page.locator('rect.selected').count()).toBe(6);
  await page.keyboard.press('Escape');
  expect(await page.locator('rect.selected').count()).toBe(0);
  for (let n = 0; n < 12; n += 1) await page.keyboard.press('Shift+ArrowLeft');
  await page.keyboard.press('Enter');
  await page.getByRole('link', { name: 'Zoom out' }).click();
  await expect.poll(() => queryOf(page).get('range'), polling).toBe('15m');
});

it('W5 a chart says what the pointer can do there', async () => {
  const page = await openOverview();
  const hint = (title: string) =>
    page
      .locator('.chart')
      .filter({ has: plotOf(page, title) })
      .locator('.chart-hint');
  expect(await hint('Failures per second').textContent()).toBe('drag to zoom, click for messages');
  expect(await hint('Waiting').textContent()).toBe('drag to zoom');
});

it('W5 a click on failures lists only the deliveries that failed then', async () => {
  const [failing, other] = [await makeQueue(db), await makeQueue(db)];
  await addRoute(db, other.id, failing.topic);
  await makeRetrying(failing, 1);
  await settleDelivered(db, await other.claim());
  const page = await openOverview();
  const box = await boxOf(plotOf(page, 'Failures per second'));
  await page.mouse.click(box.x + box.width / 2, box.middle);
  await page.getByRole('heading', { name: 'Messages' }).waitFor();
  // the interval of the point, extended until now: the message is created and fails in this test
  const query = queryOf(page);
  query.set('topic', failing.topic);
  await page.goto(`${page.url().split('?')[0]}?${String(query)}`);
  await page.getByText('No message matches.').waitFor();
  query.set('failedTo', new Date(Date.now() + 60_000).toISOString());
  await page.goto(`${page.url().split('?')[0]}?${String(query)}`);
  await expectRows(page, 'Messages', 1);
  expect(await rowsOf(page, 'Messages').textContent()).toContain(failing.name);
});

it('W5 a click or Enter opens the messages that failed or died behind a point', async () => {
  const queue = await makeQueue(db);
  const [dead = ''] = await makeDead(queue, 1, 'gone');
  await makeRetrying(queue, 1);
  const page = await openOverview();
  const plot = plotOf(page, 'Failures per second');
  const box = await boxOf(plot);
  await page.mouse.click(box.x + box.width / 2, box.middle);
  await page.getByRole('heading', { name: 'Messages' }).waitFor();
  const query = queryOf(page);
  expect([...query.keys()]).toEqual(['failedFrom', 'failedTo']);
  const ms = Date.parse(query.get('failedTo') ?? '') - Date.parse(query.get('failedFrom') ?? '');
  expect(ms).toBe(10_000);
  await expectRows(page, 'Messages', 0);
  await page.goBack();
  await plotOf(page, 'Dead letters').focus();
  await page.keyboard.press('ArrowLeft');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Messages' }).waitFor();
  expect([...queryOf(page).keys()]).toEqual(['status', 'failedFrom', 'failedTo']);
  await db.query(`UPDATE ${db.quoted}.dead_letters SET dead_at = $2 WHERE message_id = $1`, [
    dead,
    queryOf(page).get('failedFrom'),
  ]);
  await expectRows(page, 'Messages', 1);
});

/** The screen of a destination with statistics: six deliveries in each slice, and failed tries in the last 5 minutes. */
async function openDestination(queue: Queue, slices: number): Promise<Page> {
  await db.query(
    `INSERT INTO ${db.quoted}.statistics (slice, destination_id, delivered, retried, died)
     SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') - n * interval '10 seconds', $1, 6, (n < 30)::int, 0
       FROM generate_series(0, $2) n`,
    [queue.id, slices],
  );
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/destinations/${queue.name}`);
  await plotOf(page, 'Deliveries').waitFor();
  return page;
}

async function currentRange(page: Page): Promise<string | null> {
  return page.getByLabel('Time range').locator('[aria-current]').textContent();
}

async function pointsOf(page: Page, title: string): Promise<number> {
  return Number(await plotOf(page, title).getAttribute('aria-valuemax')) + 1;
}

it('W5 the chart of a destination begins with a range that fits its data', async () => {
  const fresh = await openDestination(await makeQueue(db), 60);
  expect(await currentRange(fresh)).toBe('15 min');
  expect(await pointsOf(fresh, 'Deliveries')).toBe(90);
  const older = await openDestination(await makeQueue(db), 120);
  expect(await currentRange(older)).toBe('1 h');
});

it('W5 the range and the zoom of a destination are in the address, and Back zooms out', async () => {
  const page = await openDestination(await makeQueue(db), 120);
  await page.getByRole('link', { name: '15 min' }).click();
  await expect.poll(() => pointsOf(page, 'Deliveries'), polling).toBe(90);
  expect(queryOf(page).get('range')).toBe('15m');
  const box = await boxOf(plotOf(page, 'Deliveries'));
  await page.mouse.move(box.x + box.width * 0.4, box.middle);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.6, box.middle, { steps: 3 });
  await page.mouse.up();
  await page.getByRole('link', { name: 'Zoom out' }).waitFor();
  const query = queryOf(page);
  const ms = Date.parse(query.get('to') ?? '') - Date.parse(query.get('from') ?? '');
  expect(ms).toBeGreaterThanOrEqual(170_000);
  expect(ms).toBeLessThanOrEqual(210_000);
  await expect.poll(() => pointsOf(page, 'Deliveries'), polling).toBe(Math.round(ms / 10_000));
  // the totals are those of the zoomed time
  const delivered = (6 * ms) / 10_000;
  await page.getByText(`In this time: ${delivered} delivered`).waitFor();
  await page.reload();
  await page.getByRole('link', { name: 'Zoom out' }).waitFor();
  expect(await accessibilityProblems(page)).toEqual([]);
  await page.goBack();
  await page.getByRole('link', { name: 'Zoom out' }).waitFor({ state: 'detached' });
  expect(await currentRange(page)).toBe('15 min');
  await page.goBack();
  await expect.poll(() => currentRange(page), polling).toBe('1 h');
});

it('W5 a click in the chart of a destination opens what failed, or without failures what was created', async () => {
  const queue = await makeQueue(db);
  const page = await openDestination(queue, 120);
  await page.getByRole('link', { name: '15 min' }).click();
  await expect.poll(() => pointsOf(page, 'Deliveries'), polling).toBe(90);
  for (const [part, names] of [
    [0.9, ['destination', 'failedFrom', 'failedTo']],
    [0.3, ['destination', 'from', 'to']],
  ] as const) {
    const box = await boxOf(plotOf(page, 'Deliveries'));
    await page.mouse.click(box.x + box.width * part, box.middle);
    await page.getByRole('heading', { name: 'Messages' }).waitFor();
    expect([...queryOf(page).keys()]).toEqual(names);
    expect(queryOf(page).get('destination')).toBe(queue.name);
    await page.goBack();
    await plotOf(page, 'Deliveries').waitFor();
  }
});

it('W5 a click in the chart of an endpoint lists the deliveries that were created then', async () => {
  const topic = `clicked.${Math.random()}`;
  const { name } = await addEndpoint(db, { url: 'https://example.com', topics: [topic] });
  await sendOne(db, { topic });
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/endpoints/${name}`);
  await expectRows(page, 'Deliveries', 1);
  expect(await currentRange(page)).toBe('15 min');
  const box = await boxOf(plotOf(page, 'Deliveries'));
  await page.mouse.click(box.x + box.width / 2, box.middle);
  await expectRows(page, 'Deliveries', 0);
  await page.getByText('No delivery matches.').waitFor();
  const query = queryOf(page);
  query.set('createdTo', new Date(Date.now() + 60_000).toISOString());
  await page.goto(`${page.url().split('?')[0]}?${String(query)}`);
  await expectRows(page, 'Deliveries', 1);
  await page.getByRole('link', { name: 'All times' }).click();
  await expectRows(page, 'Deliveries', 1);
  expect([...queryOf(page).keys()]).toEqual([]);
});
