// Rules for every screen of the customer portal: no error and no policy violation (see support/browser.ts), no screen is
// wider than a phone, each is accessible in both themes and with configured colours, and customers get no operators'
// screens.

import { readFileSync } from 'node:fs';
import path from 'node:path';

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { accessibilityProblems } from './accessibility.js';
import { polling, testBrowser } from '../support/browser.js';
import {
  addEndpoint,
  endpointSettings,
  startEndpointRelay,
  startReceiver,
} from '../support/endpoints.js';
import { servePortal } from '../support/portal.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, untilEnded } from '../support/relay.js';

const db = testDatabase();
const browser = testBrowser();

/** Endpoints in every state, with deliveries. Returns each screen, and an element that shows that it is ready. */
async function fill(tenantId: string): Promise<[place: string, sign: string][]> {
  const receiver = await startReceiver();
  receiver.status = 422;
  const address = `${receiver.url}/${'a-long-path/'.repeat(12)}`;
  const topics = ['customer.created', 'order.*', `a.${'long-topic.'.repeat(8)}x`, 'b.c'];
  const description = 'A description that is quite long for a single line of a phone';
  const { name } = await addEndpoint(db, { url: address, tenantId, topics, description });
  const off = await addEndpoint(db, { url: 'https://example.com/off', tenantId });
  await db.query(`SELECT ${db.quoted}.set_endpoint_enabled($1, false, NULL, 'test', 'moved')`, [
    off.name,
  ]);
  await startEndpointRelay(db, { endpoints: { ...endpointSettings, terminalCodes: [422] } });
  const id = await sendOne(db, {
    topic: 'order.paid',
    tenantId,
    payload: { text: 'long-'.repeat(200) },
  });
  await untilEnded(db, name);
  return [
    ['', '.endpoint-list .status'],
    ['events', '.event-list li'],
    ['add', '.endpoint-form'],
    [`endpoints/${name}`, '.deliveries tbody tr'],
    [`endpoints/${off.name}`, '.notice'],
    [`endpoints/${name}/change`, '.event-choices li'],
    [`endpoints/${name}?delivery=${id}`, '.attempts li'],
    [`endpoints/${name}?delivery=${id}&part=request`, '.request pre'],
    ['endpoints/unknown', '.portal-empty'],
  ];
}

async function widthOf(page: Page): Promise<number> {
  return page.evaluate(() => document.documentElement.scrollWidth);
}

const themes = {
  colours: {
    light: { accent: '#ffd400', ground: '#fffdf2', text: '#302a00' },
    dark: { accent: '#5b2a86', ground: '#1d1226', panel: '#271833', text: '#f3eaff' },
  },
};

it.each([
  ['light', {}],
  ['dark', {}],
  ['light', themes],
  ['dark', themes],
] as const)('W5 every screen is accessible, %s, with %j', async (colourScheme, options) => {
  const screens = await fill('looking');
  const portal = await servePortal(db, browser, options);
  const page = await portal.open('looking', { colourScheme, expected: /404 \(Not Found\)/ });
  for (const [place, sign] of screens) {
    await page.goto(`${portal.url}/portal#/${place}`);
    await page.locator(sign).first().waitFor();
    for (const closed of await page.locator('summary').all()) await closed.click();
    expect([place, await accessibilityProblems(page)]).toEqual([place, []]);
  }
});

it('W5 an inaccessible page is found', async () => {
  const portal = await servePortal(db, browser);
  const page = await portal.open('looking', { place: 'events' });
  await page.locator('.event-list li').first().waitFor();
  await page.evaluate(() => {
    const main = document.querySelector('main');
    main?.append(document.createElement('button'));
    const pale = document.createElement('p');
    pale.textContent = 'pale';
    pale.style.color = '#bbbbbb';
    main?.append(pale);
  });
  const problems = (await accessibilityProblems(page)).join('\n');
  expect(problems).toContain('button-name');
  expect(problems).toContain('color-contrast');
});

it('W5 no screen is wider than a phone', async () => {
  const screens = await fill('phone');
  const portal = await servePortal(db, browser, { name: 'A name of a company that is long' });
  const page = await portal.open('phone', { width: 390, expected: /404 \(Not Found\)/ });
  for (const [place, sign] of screens) {
    await page.goto(`${portal.url}/portal#/${place}`);
    await page.locator(sign).first().waitFor();
    for (const closed of await page.locator('summary').all()) await closed.click();
    expect([place, await widthOf(page)]).toEqual([place, 390]);
    const out = await page
      .locator(':is(header, main, dialog) :is(a, button, input, select, textarea)')
      .evaluateAll((elements) =>
        elements
          .filter((each) => each.checkVisibility() && each.closest('.choices') === null)
          .filter((each) => each.getBoundingClientRect().right > innerWidth)
          .map((each) => each.outerHTML),
      );
    expect([place, out]).toEqual([place, []]);
  }
});

it('W5 the name, the logo and the colours are those of the configuration, in both themes', async () => {
  const portal = await servePortal(db, browser, {
    name: 'Acme <webhooks>',
    logo: 'examples/portal/logo.svg',
    colours: { light: { accent: '#0f766e' }, dark: { accent: '#2dd4bf' } },
  });
  const page = await portal.open('branded');
  await page.getByRole('link', { name: 'Acme <webhooks>' }).waitFor();
  expect(await page.title()).toBe('Acme <webhooks>');
  const isLoaded = () =>
    page.locator('header img').evaluate((image) => (image as HTMLImageElement).naturalWidth > 0);
  await expect.poll(isLoaded, polling).toBe(true);
  const button = page.getByRole('link', { name: 'Add endpoint' });
  const colour = () => button.evaluate((element) => getComputedStyle(element).backgroundColor);
  await expect.poll(colour, polling).toBe('rgb(15, 118, 110)');
  await page.getByRole('button', { name: 'Dark theme' }).click();
  await expect.poll(colour, polling).toBe('rgb(45, 212, 191)');
  // the embedding page can choose the theme
  const token = await portal.tokenOf('branded');
  const other = await browser.open(`${portal.url}/portal#token=${token}&theme=dark`);
  await other.getByRole('link', { name: 'Add endpoint' }).waitFor();
  expect(await other.evaluate(() => document.documentElement.dataset['theme'])).toBe('dark');
});

it("W5 P13 customers get none of the operators' screens", () => {
  const built = 'dist/page';
  const read = (file: string): string => readFileSync(path.join(built, file), 'utf8');
  const scripts = new Set<string>();
  const add = (file: string): void => {
    if (scripts.has(file)) return;
    scripts.add(file);
    for (const [, next = ''] of read(file).matchAll(/["']\.\/([\w-]+\.js)["']/g))
      add(`assets/${next}`);
  };
  for (const [, file = ''] of read('portal.html').matchAll(/(assets\/[\w-]+\.js)/g)) add(file);
  // relative, so that it works behind a proxy's prefix
  expect(read('portal.html')).not.toMatch(/(src|href)="\//);
  const text = [...scripts].map(read).join('\n');
  expect(text).toContain('Your session has ended');
  for (const words of ['Dead letters', 'Blocked keys', 'Log in', 'Rollouts'])
    expect([words, text.includes(words)]).toEqual([words, false]);
});
