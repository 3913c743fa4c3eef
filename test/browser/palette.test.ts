// Command palette in a browser, by keyboard alone.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { expectNoDialog, expectRows, polling, testBrowser } from '../support/browser.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { accessibilityProblems } from './accessibility.js';

const db = testDatabase();
const browser = testBrowser();

async function serve(): Promise<string> {
  return `${(await serveDatabase(db, { authentication: 'none' })).url}/`;
}

const options = (page: Page) => page.getByRole('dialog').getByRole('option');

/** Opens the palette, types, and takes the first option. */
async function command(page: Page, text: string): Promise<void> {
  await page.keyboard.press('Control+k');
  await page.getByRole('dialog', { name: 'Commands' }).waitFor();
  await page.keyboard.type(text);
  await page.keyboard.press('Enter');
  await expectNoDialog(page);
}

it('W5 the palette goes to screens, a message, topics and filters', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await queue.enqueue(2);
  const page = await browser.open(await serve());
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await command(page, 'relays');
  await page.getByRole('heading', { name: 'Relays' }).waitFor();
  await command(page, id);
  await page.waitForURL((url) => url.hash === `#/messages/${id}`);
  await command(page, queue.topic);
  await expectRows(page, 'Messages', 2);
  expect(page.url()).toContain(`topic=${queue.topic}`);
  await command(page, 'status:dead');
  await page.waitForURL((url) => url.hash === '#/messages?status=dead');
});

it('W5 the palette changes the theme and the time zone, and pauses live updates', async () => {
  const address = await serve();
  const page = await browser.open(address, { colourScheme: 'dark' });
  await page.getByRole('button', { name: 'Light theme' }).waitFor();
  await command(page, 'light theme');
  await page.getByRole('button', { name: 'Dark theme' }).waitFor();
  expect(await page.evaluate(() => document.documentElement.dataset['theme'])).toBe('light');
  await command(page, 'show times in utc');
  await page.getByText('Times: UTC', { exact: true }).waitFor();
  await command(page, 'pause');
  await page.getByText('Live updates are paused.').waitFor();
  await page.goto(`${address}#/messages`);
  await expect.poll(() => page.getByRole('status').textContent(), polling).toBe('paused');
  await page.goto(`${address}#/overview`);
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByText('Live updates are paused.').waitFor({ state: 'detached' });
});

it.each(['light', 'dark'] as const)(
  'W5 the palette opens with a button, is accessible and fits a phone (%s)',
  async (colourScheme) => {
    const page = await browser.open(await serve(), { colourScheme, width: 390 });
    const button = page.getByRole('button', { name: 'Commands' });
    await button.click();
    await options(page).first().waitFor();
    expect(await accessibilityProblems(page)).toEqual([]);
    expect(await page.evaluate(() => document.documentElement.scrollWidth)).toBe(390);
    await page.keyboard.type('status:lost');
    await page.getByRole('alert').waitFor();
    expect(await accessibilityProblems(page)).toEqual([]);
    await page.keyboard.press('Escape');
    await expectNoDialog(page);
    expect(await button.evaluate((element) => element === document.activeElement)).toBe(true);
    await page.keyboard.press('Control+k');
    await page.getByRole('dialog').waitFor();
    await page.keyboard.press('Control+k');
    await expectNoDialog(page);
  },
);

it('W5 the palette has saved filters, and for a token of one tenant only its screens', async () => {
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/`, { token: await server.token('read', 'acme') });
  await page.evaluate(() =>
    localStorage.setItem(
      'waybill-filters',
      JSON.stringify([
        { name: 'Dead ones', query: 'status=dead' },
        { screen: 'audit', name: 'Of ada', query: 'actor=ada' },
        5,
        null,
      ]),
    ),
  );
  await page.reload();
  await page.getByRole('heading', { name: 'Messages' }).waitFor();
  await page.keyboard.press('Control+k');
  await options(page).first().waitFor();
  expect((await options(page).allTextContents()).slice(0, 4)).toEqual([
    'Go toMessages',
    'Go toLive tail',
    'Saved filtersMessages: Dead ones',
    'ActionUse the dark theme',
  ]);
  await page.keyboard.press('Escape');
  await command(page, 'dead ones');
  await page.waitForURL((url) => url.hash === '#/messages?status=dead');
});
