// The page by keyboard alone: the focus after a change of the screen, the skip link, rows, and the list of keys.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import {
  expectLoaded,
  expectNoDialog,
  expectRows,
  polling,
  testBrowser,
} from '../support/browser.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { accessibilityProblems } from './accessibility.js';

const db = testDatabase();
const browser = testBrowser();

async function open(place: string): Promise<Page> {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/${place}`);
  await page.locator('main h1').waitFor();
  return page;
}

/** The text of what has the focus. */
const focused = (page: Page): Promise<string> =>
  page.evaluate(() => document.activeElement?.textContent ?? '');

it('W5 the palette and eight keys open the first dead letter', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 3, 'no');
  const page = await open('overview');
  // one after the other, as a person types
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog', { name: 'Commands' }).waitFor();
  for (const key of ['d', 'e', 'a', 'd', 'Enter']) await page.keyboard.press(key);
  await expectNoDialog(page);
  await expectRows(page, 'Dead letters', 3);
  await expect.poll(() => focused(page), polling).toBe('Dead letters');
  const first = await page
    .getByRole('table', { name: 'Dead letters' })
    .locator('tbody tr a')
    .first()
    .getAttribute('href');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.waitForURL((url) => url.hash === first);
  await expect.poll(() => focused(page), polling).toContain(queue.topic);
});

it('W5 the first stop skips the menu; j, k and the arrow keys move between rows', async () => {
  const queue = await makeQueue(db);
  const ids = await queue.enqueue(3);
  const page = await open(`messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 3);
  await page.keyboard.press('Tab');
  expect(await focused(page)).toBe('Skip to content');
  expect(await accessibilityProblems(page)).toEqual([]);
  await page.keyboard.press('Enter');
  expect(await focused(page)).toBe('Messages');
  expect(page.url()).toContain(`messages?topic=${queue.topic}`);
  const newest = ids.toReversed();
  const expectRow = async (place: number): Promise<void> => {
    await expect
      .poll(() => page.evaluate(() => document.activeElement?.getAttribute('href')), polling)
      .toBe(`#/messages/${newest[place]}`);
  };
  for (const [key, place] of [
    ['j', 0],
    ['j', 1],
    ['ArrowDown', 2],
    // there is no row below
    ['j', 2],
    ['k', 1],
    ['ArrowUp', 0],
    ['k', 0],
  ] as const) {
    await page.keyboard.press(key);
    await expectRow(place);
  }
  // letters in a field are letters
  await page.keyboard.press('/');
  await page.keyboard.type('jk?');
  expect(await page.locator('[data-first-filter]').first().inputValue()).toBe('jk?');
});

it('W5 another screen gets the focus, and a filter keeps it', async () => {
  const page = await open('overview');
  await page.getByRole('navigation', { name: 'Screens' }).getByText('Audit').click();
  await page.getByRole('heading', { name: 'Audit' }).waitFor();
  // not the link of the menu, which has the same text
  await expect.poll(() => page.evaluate(() => document.activeElement?.tagName), polling).toBe('H1');
  const field = page.getByLabel('Who');
  await field.fill('ann');
  await field.press('Enter');
  await page.waitForURL((url) => url.hash.includes('actor=ann'));
  await expectLoaded(page);
  expect(await page.evaluate(() => document.activeElement?.getAttribute('name'))).toBe('actor');
});

it('W5 a question mark, or the palette, shows the keyboard shortcuts', async () => {
  const page = await open('relays');
  await page.keyboard.press('?');
  const dialog = page.getByRole('dialog', { name: 'Keyboard shortcuts' });
  await dialog.getByText('goes to the first row of the list').waitFor();
  expect(await accessibilityProblems(page)).toEqual([]);
  await page.keyboard.press('Escape');
  await expectNoDialog(page);
  await page.keyboard.press('Control+k');
  await page.keyboard.type('keyboard');
  await page.getByRole('option', { name: /keyboard shortcuts/ }).waitFor();
  await page.keyboard.press('Enter');
  await dialog.waitFor();
});
