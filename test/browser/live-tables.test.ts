// Live tables: what holds their updates, how a failed action is reported, and what they show while they load.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { expectRows, polling, rowsOf, testBrowser } from '../support/browser.js';
import { makeDead, makeRetrying } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const browser = testBrowser();

async function serve(): Promise<string> {
  return `${(await serveDatabase(db, { authentication: 'none' })).url}/`;
}

/** Holds the requests that match until the returned function is called. */
async function holdRequests(page: Page, pattern: RegExp): Promise<() => void> {
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route(pattern, async (route) => {
    await released;
    await route.continue();
  });
  return release;
}

/** A function that says how many matching requests the page has sent from now on. */
function requestsOf(page: Page, pattern: RegExp): () => number {
  let sent = 0;
  page.on('request', (request) => {
    if (pattern.test(request.url())) sent += 1;
  });
  return () => sent;
}

it('W5 live updates wait while the keyboard is in the table, so that the focus stays', async () => {
  const queue = await makeQueue(db);
  const ids = await queue.enqueue(3);
  const address = await serve();
  const page = await browser.open('about:blank');
  await page.clock.install();
  await page.goto(`${address}#/messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 3);
  await rowsOf(page, 'Messages').first().locator('a').focus();
  await page.keyboard.press('ArrowDown');
  await page.getByRole('status').getByText('held').waitFor();
  await queue.enqueue(60);
  await page.clock.runFor(10_000);
  expect(await page.evaluate(() => document.activeElement?.getAttribute('href'))).toBe(
    `#/messages/${ids[1] ?? ''}`,
  );
  await page.getByLabel('Topic').focus();
  await page.getByRole('status').getByText('live').waitFor();
  await page.clock.runFor(5000);
  await expectRows(page, 'Messages', 50);
});

it('W5 M13 dead letters and their groups wait while the pointer is on a row, except for the own action', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 2, 'first');
  const address = await serve();
  const page = await browser.open('about:blank');
  await page.clock.install();
  await page.goto(`${address}#/dead-letters?destination=${queue.name}`);
  await expectRows(page, 'Dead letters', 2);
  await expectRows(page, 'Groups', 1);
  await rowsOf(page, 'Dead letters').last().hover();
  const asked = requestsOf(page, /api\/(dead-letters|messages)/);
  await makeDead(queue, 1, 'second');
  await page.clock.runFor(20_000);
  expect(asked()).toBe(0);
  expect(await rowsOf(page, 'Dead letters').count()).toBe(2);
  expect(await rowsOf(page, 'Groups').count()).toBe(1);
  await rowsOf(page, 'Dead letters').last().getByRole('button', { name: 'Retry' }).click();
  await page.getByRole('region', { name: 'Retried' }).waitFor();
  // one is gone, and the other cause is there
  await expectRows(page, 'Groups', 2);
  await expectRows(page, 'Dead letters', 2);
});

it('W5 destinations wait while the keyboard is on a row, and go on afterwards', async () => {
  const queue = await makeQueue(db);
  const address = await serve();
  const page = await browser.open('about:blank');
  await page.clock.install();
  await page.goto(`${address}#/destinations?search=${queue.name}`);
  await expectRows(page, 'Destinations', 1);
  const mark = () =>
    page
      .getByRole('heading', { name: 'Destinations' })
      .evaluate((heading) => getComputedStyle(heading, '::after').content);
  expect(await mark()).toBe('none');
  await page.keyboard.press('j');
  await expect.poll(mark, polling).toContain('held');
  const dead = rowsOf(page, 'Destinations').locator('a[href*="status=dead"]');
  const asked = requestsOf(page, /api\/destinations/);
  await makeDead(queue, 1, 'no');
  await page.clock.runFor(20_000);
  expect(asked()).toBe(0);
  await page.getByLabel('Text in the name').focus();
  await page.clock.runFor(6000);
  await expect.poll(() => dead.textContent(), polling).toBe('1');
});

it('W5 a click in the table does not hold updates once the pointer has left', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  await page.getByRole('button', { name: 'Payload' }).click();
  await page.getByRole('button', { name: 'Close' }).click();
  await page.getByRole('heading', { name: 'Messages' }).hover();
  await page.getByRole('status').getByText('live').waitFor();
});

it('W5 the error of a row action is readable, moves no button, and goes with the next success', async () => {
  const queue = await makeQueue(db);
  const page = await browser.open(`${await serve()}#/destinations`, { expected: /503/ });
  const row = rowsOf(page, 'Destinations').filter({
    has: page.getByRole('link', { name: queue.name, exact: true }),
  });
  const text = `the database is not reachable: ${'a long reason, '.repeat(10)}try later`;
  await page.route(/\/(pause|test)$/, (route) =>
    route.fulfill({ status: 503, json: { error: text } }),
  );
  const test = row.getByRole('button', { name: 'Send a test' });
  const before = await test.boundingBox();
  await row.getByRole('button', { name: 'Pause' }).click();
  const alert = page.getByRole('alert').filter({ hasText: 'a long reason' });
  await alert.waitFor();
  const cut = await alert.evaluate((element) => {
    const { left, right, bottom } = element.getBoundingClientRect();
    const parts = [element, ...element.querySelectorAll('*')];
    return {
      clipped: parts.some(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth + 1),
      outside: left < 0 || right > innerWidth || bottom > innerHeight,
      inTable: element.closest('td') !== null,
    };
  });
  expect(cut).toEqual({ clipped: false, outside: false, inTable: false });
  expect(await test.boundingBox()).toEqual(before);
  await alert.getByRole('button', { name: 'Dismiss' }).click();
  await alert.waitFor({ state: 'detached' });
  await test.click();
  await alert.waitFor();
  await page.unroute(/\/(pause|test)$/);
  await row.getByRole('button', { name: 'Pause' }).click();
  await row.getByText('paused').waitFor();
  expect(await alert.count()).toBe(0);
});

it('W5 the error of an update goes when the server answers again, also while updates are held', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  const address = await serve();
  const page = await browser.open('about:blank', { expected: /ERR_FAILED/ });
  await page.clock.install();
  await page.goto(`${address}#/messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 1);
  await page.route('**/api/messages?*', (route) => route.abort());
  await page.clock.runFor(3000);
  await page.getByRole('alert').waitFor();
  await rowsOf(page, 'Messages').first().hover();
  await page.unroute('**/api/messages?*');
  await queue.enqueue(1);
  await page.clock.runFor(5000);
  await page.getByRole('status').getByText('held').waitFor();
  expect(await page.getByRole('alert').count()).toBe(0);
  expect(await rowsOf(page, 'Messages').count()).toBe(1);
});

it('W5 rows of the previous filter cannot be acted on while the next one loads', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  await queue.enqueue(2);
  await other.enqueue(1);
  const address = await serve();
  const page = await browser.open(`${address}#/messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 2);
  const release = await holdRequests(page, new RegExp(`topic=${other.topic}`));
  await page.goto(`${address}#/messages?topic=${other.topic}`);
  const table = page.getByRole('table', { name: 'Messages' });
  await expect.poll(() => table.getAttribute('aria-busy'), polling).toBe('true');
  expect(await rowsOf(page, 'Messages').count()).toBe(2);
  const reached = await rowsOf(page, 'Messages')
    .first()
    .locator('a')
    .evaluate((link) => {
      link.focus();
      const { left, top, height } = link.getBoundingClientRect();
      const found = document.elementFromPoint(left + 5, top + height / 2);
      return { pointer: link.contains(found), keyboard: document.activeElement === link };
    });
  expect(reached).toEqual({ pointer: false, keyboard: false });
  release();
  await expectRows(page, 'Messages', 1);
  expect(await table.getAttribute('aria-busy')).toBe('false');
});

it('W5 a rejected filter shows its error alone, and is not asked again', async () => {
  const address = await serve();
  const page = await browser.open('about:blank', { expected: /400/ });
  await page.clock.install();
  const asked = requestsOf(page, /api\/messages/);
  await page.goto(`${address}#/messages?id=1`);
  await page.getByRole('alert').waitFor();
  await page.clock.runFor(20_000);
  expect(asked()).toBe(1);
  expect(await page.getByText('Looking…').count()).toBe(0);
  expect(await page.getByRole('status').count()).toBe(0);
  expect(await page.getByRole('button', { name: 'Try again' }).count()).toBe(0);
});

it('W5 tiles and charts say that they load before they say that there is no data', async () => {
  const address = await serve();
  const page = await browser.open('about:blank');
  const release = await holdRequests(page, /\/api\/overview/);
  await page.goto(`${address}#/overview`);
  await page.locator('.tiles').waitFor();
  expect(await page.getByText(/no data yet/i).count()).toBe(0);
  expect(await page.getByText('Loading…').count()).toBeGreaterThan(6);
  release();
  await page
    .getByText(/no data yet/i)
    .first()
    .waitFor();
  expect(await page.getByText('Loading…').count()).toBe(0);
});

it('W5 tiles wait for the numbers, also if the charts are faster', async () => {
  const address = await serve();
  const page = await browser.open('about:blank');
  const release = await holdRequests(page, /\/api\/overview\?minutes=10$/);
  await page.goto(`${address}#/overview?range=1h`);
  await page.locator('.no-data', { hasText: 'No data yet' }).first().waitFor();
  expect(await page.locator('.tiles').getByText('no data yet').count()).toBe(0);
  release();
  await page.locator('[data-tile=Waiting]').waitFor();
});

it('W5 the error of an earlier try is not red in the row of a delivered message', async () => {
  const queue = await makeQueue(db);
  await makeRetrying(queue, 1);
  await db.query(`SELECT ${db.quoted}.retry_now($1)`, [queue.name]);
  const claim = await queue.claimOne();
  await settle(db, claim, [{ id: claim.id }]);
  await makeDead(queue, 1, 'gone');
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 2);
  const colourOf = (word: string): Promise<string> =>
    rowsOf(page, 'Messages')
      .locator('code', { hasText: word })
      .evaluate((code) => getComputedStyle(code).color);
  const muted = await page
    .locator('.muted')
    .first()
    .evaluate((element) => getComputedStyle(element).color);
  expect(await colourOf('busy')).toBe(muted);
  expect(await colourOf('gone')).not.toBe(muted);
});
