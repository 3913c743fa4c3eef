// Rules for every screen: no policy violation and no error (see support/browser.ts), no screen is wider than a phone,
// each is accessible in both themes, and the chosen theme is used. The page loads few bytes, and works under a path.

import { once } from 'node:events';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';

import type { Page } from 'playwright-core';
import { expect, it, onTestFinished } from 'vitest';

import { loadedBytes, mostKilobytes } from '../../bench/page/first-paint.js';
import { expectLoaded, expectRows, rowsOf, testBrowser } from '../support/browser.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { fillScreens } from '../support/screens.js';
import { serveDatabase } from '../support/server.js';
import { problemsInBothThemes } from './accessibility.js';

const db = testDatabase();
const browser = testBrowser();

async function widthOf(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth);
}

/** Controls beyond the right edge, except in the menu, which scrolls. */
async function outOfReach(page: Page): Promise<string[]> {
  return page
    .locator('main :is(a, button, input, select)')
    .evaluateAll((elements) =>
      elements
        .filter(
          (element) => element.getBoundingClientRect().right > document.documentElement.clientWidth,
        )
        .map((element) => element.outerHTML),
    );
}

it(
  'W5 every screen is accessible on a phone and in a window, reports no error and is not wider than a phone, in either theme',
  { timeout: 240_000 },
  async () => {
    const screens = await fillScreens(db);
    const { url } = await serveDatabase(db, { authentication: 'none' });
    const page = await browser.open(url);
    const expectAccessible = async (place: string, width: number): Promise<void> => {
      expect.soft([place, width, await problemsInBothThemes(page)]).toEqual([place, width, []]);
    };
    for (const [place, sign] of screens) {
      await page.setViewportSize({ width: 1280, height: 860 });
      await page.goto(`${url}/#/${place}`);
      await page.locator(sign).first().waitFor();
      await expectLoaded(page);
      await expectAccessible(place, 1280);
      await page.setViewportSize({ width: 390, height: 860 });
      const more = page.getByRole('button', { name: 'More' });
      if ((await more.count()) > 0) await more.click();
      expect([place, await widthOf(page)]).toEqual([place, 390]);
      expect([place, await outOfReach(page)]).toEqual([place, []]);
      await expectAccessible(place, 390);
    }
  },
);

it('W5 the login and the menu of a user fit on a phone', async () => {
  const server = await serveDatabase(db);
  const page = await browser.open(server.url, { width: 390, expected: /401/ });
  await page.getByLabel('Token').waitFor();
  expect(await widthOf(page)).toBe(390);
  await page.getByLabel('Token').fill(await server.token('operate'));
  await page.keyboard.press('Enter');
  const logOut = page.getByRole('button', { name: 'Log out' });
  await logOut.waitFor();
  expect(await widthOf(page)).toBe(390);
  expect((await logOut.boundingBox())?.x).toBeLessThan(330);
});

it('W5 the theme follows the system until the user chooses one, and the choice is kept', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(url, { colourScheme: 'dark' });
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.getByRole('button', { name: 'Light theme' }).waitFor();
  const dark = await ground();
  await page.getByRole('button', { name: 'Light theme' }).click();
  const light = await ground();
  expect(light).not.toBe(dark);
  await page.reload();
  await page.getByRole('button', { name: 'Dark theme' }).waitFor();
  expect(await ground()).toBe(light);
});

it('W5 the page blocks inline scripts, and the violation is reported', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(url, { expected: /Content Security Policy/ });
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  const noticed = page.waitForEvent('console', (message) =>
    message.text().includes('Content Security Policy'),
  );
  await page.evaluate(() => {
    const script = document.createElement('script');
    script.textContent = 'window.broken = true';
    document.body.append(script);
  });
  await noticed;
  expect(await page.evaluate(() => 'broken' in window)).toBe(false);
});

it('W5 the page works behind a proxy with a path prefix, including changes', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeDead(queue, 1, 'no');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const proxy = createServer((incoming, answer) => {
    const { url: asked = '', method, headers } = incoming;
    if (!asked.startsWith('/waybill/')) return void answer.writeHead(404).end();
    const outgoing = request(url + asked.slice('/waybill'.length), { method, headers }, (given) => {
      answer.writeHead(given.statusCode ?? 502, given.headers);
      given.pipe(answer);
    });
    incoming.pipe(outgoing);
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  onTestFinished(() => {
    proxy.closeAllConnections();
    proxy.close();
  });
  const { port } = proxy.address() as AddressInfo;
  const page = await browser.open(`http://127.0.0.1:${port}/waybill/#/messages/${id}`);
  await page.getByRole('button', { name: 'Retry now' }).click();
  await page.getByText('refused for good').waitFor({ state: 'detached' });
  expect(await queue.status(id)).toMatchObject({ status: 'pending' });
});

it('W5 P13 the page works under a base path that no proxy strips: login, live data and links', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  const server = await serveDatabase(db, { basePath: '/waybill' });
  const page = await browser.open('about:blank', { expected: /401/ });
  // the server answers requests without the base path too, but a proxy would send them elsewhere
  const outside: string[] = [];
  page.on('request', (asked) => {
    const { pathname } = new URL(asked.url());
    if (!pathname.startsWith('/waybill/')) outside.push(pathname);
  });
  await page.goto(`${server.url}/waybill/#/messages?topic=${queue.topic}`);
  await page.getByLabel('Token').fill(await server.token('operate'));
  await page.keyboard.press('Enter');
  await expectRows(page, 'Messages', 1);
  const [id = ''] = await queue.enqueue(1);
  await expectRows(page, 'Messages', 2);
  await rowsOf(page, 'Messages').locator(`a[href$="${id}"]`).click();
  await page.locator('.journey li').first().waitFor();
  expect(page.url()).toBe(`${server.url}/waybill/#/messages/${id}`);
  await page.reload();
  await page.locator('.journey li').first().waitFor();
  for (const name of ['Overview', 'Reports']) {
    await page.getByRole('navigation', { name: 'Screens' }).getByRole('link', { name }).click();
    await page.getByRole('heading', { name, exact: true }).waitFor();
    await expectLoaded(page);
    const links = await page
      .locator('a')
      .evaluateAll((all) => all.map((link) => new URL((link as HTMLAnchorElement).href).pathname));
    expect(links.filter((path) => !path.startsWith('/waybill/'))).toEqual([]);
  }
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  expect(outside).toEqual([]);
});

it('W5 the first screen loads at most 150 kB of compressed files', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(url);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  const kilobytes = (await loadedBytes(page)) / 1000;
  // without the scripts it is less than this
  expect(kilobytes).toBeGreaterThan(20);
  expect(kilobytes).toBeLessThan(mostKilobytes);
});
