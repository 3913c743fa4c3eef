// Live tail in a browser.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { expectRows, polling, rowsOf, testBrowser } from '../support/browser.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const browser = testBrowser();

it('W5 the live tail shows events as they happen, with the filters of the list, until it is paused', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  await queue.enqueue(1);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open('about:blank');
  await page.clock.install();
  await page.goto(`${url}/#/messages?topic=${queue.topic}`);
  await page.getByRole('link', { name: 'Live tail' }).last().click();
  const state = page.getByRole('status');
  await state.getByText('live', { exact: true }).waitFor();
  expect(await page.getByLabel('Topic').inputValue()).toBe(queue.topic);
  await other.enqueue(1);
  const id = await queue.enqueueOne();
  await expectRows(page, 'Events', 1);
  const claim = await queue.claim({ limit: 5 });
  await settle(db, claim, [{ id, outcome: 'reject', errorCode: 'odd' }]);
  await expectRows(page, 'Events', 2);
  expect(await rowsOf(page, 'Events').first().textContent()).toContain('dead');
  await page.getByRole('button', { name: 'Pause' }).click();
  await state.getByText('paused').waitFor();
  let asked = 0;
  page.on('request', (request) => {
    if (request.url().includes('/api/tail')) asked += 1;
  });
  await queue.enqueue(1);
  await page.clock.runFor(10_000);
  expect(asked).toBe(0);
  expect(await rowsOf(page, 'Events').count()).toBe(2);
  await page.getByRole('button', { name: 'Resume' }).click();
  // nothing was missed meanwhile
  await expectRows(page, 'Events', 3);
  await page.getByRole('button', { name: 'Clear' }).click();
  await expectRows(page, 'Events', 0);
});

it('W5 the live tail collects events while the keyboard or the pointer is in it, and shows them afterwards', async () => {
  const queue = await makeQueue(db);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/tail?topic=${queue.topic}`);
  const state = page.getByRole('status');
  await state.getByText('live', { exact: true }).waitFor();
  const id = await queue.enqueueOne();
  await expectRows(page, 'Events', 1);
  await page.keyboard.press('j');
  await state.getByText('held', { exact: true }).waitFor();
  // more than the tail shows
  for (const size of [150, 150]) {
    const before = await collected(page);
    await queue.enqueue(size);
    await expect.poll(() => collected(page), polling).toBe(before + size);
  }
  expect(await rowsOf(page, 'Events').count()).toBe(1);
  expect(await page.evaluate(() => document.activeElement?.getAttribute('href'))).toBe(
    `#/messages/${id}`,
  );
  await page.getByLabel('Topic').focus();
  await expectRows(page, 'Events', 300);
  expect(await collected(page)).toBe(0);
  await rowsOf(page, 'Events').first().hover();
  await state.getByText('held', { exact: true }).waitFor();
  await queue.enqueue(1);
  await page.getByText('1 new event', { exact: true }).waitFor();
});

/** The number of new events that the tail holds back. */
async function collected(page: Page): Promise<number> {
  const [words = '0'] = await page.getByText(/^\d+ new events?$/).allTextContents();
  return Number.parseInt(words, 10);
}

it('W5 a tail that the server has forgotten begins again, and says so', async () => {
  const queue = await makeQueue(db);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open('about:blank', { expected: /404/ });
  let lost = 1;
  await page.route(/api\/tail\/./, (route) => {
    if (lost-- > 0) return route.fulfill({ status: 404, json: { error: 'there is no tail' } });
    return route.continue();
  });
  await page.goto(`${url}/#/tail?topic=${queue.topic}`);
  await page.getByText('The tail began again').waitFor();
  await expect.poll(() => page.getByRole('status').textContent(), polling).toBe('live');
  await queue.enqueue(1);
  await expectRows(page, 'Events', 1);
});

it('W5 the tail says that entries were not read, also if no event was found', async () => {
  const queue = await makeQueue(db);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open('about:blank');
  let more = 0;
  let large = 1;
  await page.route(/api\/tail\/./, async (route) => {
    const response = await route.fetch();
    const answer = (await response.json()) as object;
    const patch = large-- > 0 ? { more, unseen: true } : {};
    await route.fulfill({ response, json: { ...answer, ...patch } });
  });
  await page.goto(`${url}/#/tail?topic=${queue.topic}`);
  const notice = page.locator('.notice');
  await notice.getByText('Events may have been left out: there were too many').waitFor();
  expect(await rowsOf(page, 'Events').count()).toBe(0);
  [more, large] = [1234, 1];
  await notice.getByText('At least 1\u202f234 events were left out').waitFor();
  await page.getByRole('button', { name: 'Clear' }).click();
  await notice.waitFor({ state: 'detached' });
});

it('W5 a token of one tenant can follow its messages', async () => {
  const queue = await makeQueue(db);
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/#/tail`, {
    token: await server.token('read', 'acme'),
  });
  await expect.poll(() => page.getByRole('status').textContent(), polling).toBe('live');
  await queue.enqueue(1, { tenantId: 'globex' });
  await queue.enqueue(1, { tenantId: 'acme' });
  await expectRows(page, 'Events', 1);
});
