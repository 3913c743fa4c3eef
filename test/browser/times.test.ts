// Times on the page: all in one zone, which the page names, local or UTC.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { polling, testBrowser } from '../support/browser.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

/** For each time of the screen, the hours and minutes that are shown, and those of its zone. */
async function shownTimes(page: Page, timeZone: string): Promise<[shown: string, right: string][]> {
  return page
    .locator('main time')
    .filter({ hasText: /\d:\d\d/ })
    .evaluateAll(
      (times, zone) =>
        times.map((time) => [
          /\d\d:\d\d(?=:)/.exec(time.textContent)?.[0] ?? '',
          new Date(time.getAttribute('datetime') ?? '').toLocaleTimeString('en-GB', {
            timeZone: zone,
            hour: '2-digit',
            minute: '2-digit',
          }),
        ]),
      timeZone,
    );
}

it('W5 all times are in one zone, which the page names; local or UTC, and the choice is kept', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeDead(queue, 1, 'gone');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages/${id}`, { timeZone: 'Asia/Tokyo' });
  const sentence = page.locator('.explanations p').first();
  await sentence.getByText('It has been dead since').waitFor();
  for (const [zone, label, title] of [
    ['Asia/Tokyo', 'Times: local, UTC+09:00', /^[-\d]+T[\d:.]+\+09:00 Asia\/Tokyo$/],
    ['UTC', 'Times: UTC', /^[-\d]+T[\d:.]+Z UTC$/],
  ] as const) {
    await page.getByRole('button', { name: label, exact: true }).waitFor();
    const times = await shownTimes(page, zone);
    expect(times.length).toBeGreaterThanOrEqual(4);
    for (const [shown, right] of times) expect(shown).toBe(right);
    expect(await sentence.locator('time').getAttribute('title')).toMatch(title);
    expect(await sentence.textContent()).not.toContain('UTC');
    if (zone !== 'UTC') await page.getByRole('button', { name: label }).click();
  }
  await page.reload();
  await page.getByRole('button', { name: 'Times: UTC', exact: true }).waitFor();
});

it('W5 "today" begins at midnight of the zone of the page', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages?topic=${queue.topic}`, {
    timeZone: 'Asia/Tokyo',
  });
  const asked = page.waitForRequest(/api\/messages\?.*from=/);
  await page.locator('select[name=last]').selectOption('today');
  const from = new Date(new URL((await asked).url()).searchParams.get('from') ?? '');
  expect(from.toLocaleTimeString('en-GB', { timeZone: 'Asia/Tokyo' })).toBe('00:00:00');
  expect(from.getTime()).toBeLessThanOrEqual(Date.now());
  expect(Date.now() - from.getTime()).toBeLessThan(86_400_000 + 60_000);
  const inUtc = page.waitForRequest(/api\/messages\?.*from=.*T00%3A00%3A00/);
  await page.getByRole('button', { name: 'Times: local' }).click();
  await inUtc;
});

it('W5 filters by time use the zone of the page', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const at = '2026-01-02T20:04:05.000Z';
  const page = await browser.open(`${url}/#/messages?from=${at}`, { timeZone: 'Asia/Tokyo' });
  const field = page.getByLabel('Created from');
  await expect.poll(() => field.inputValue(), polling).toBe('2026-01-03T05:04:05');
  await page.getByRole('button', { name: /^Times/ }).click();
  await expect.poll(() => field.inputValue(), polling).toBe('2026-01-02T20:04:05');
  await field.fill('2026-01-02T21:00:00');
  await field.press('Enter');
  await page.waitForURL(/from=2026-01-02T21%3A00%3A00.000Z/);
});
