// Pictures of the page for the documents: runs `waybill dev` for a while (default: 300 seconds, so that lists and charts
// are filled) and takes a picture of each screen, into docs/operate/screens/ and docs/operate/page.png. Needs Chromium.
// Usage: npm run build && node scripts/screenshots.mjs [SECONDS [NAME…]], for example 120 zoom flow

import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

import { chromium } from 'playwright-core';

import { Database, resolveDatabaseOptions } from '../dist/database/connection.js';
import { resolveServerOptions } from '../dist/server/options.js';
import { startServer } from '../dist/server/server.js';

const root = path.resolve(import.meta.dirname, '..');
const folder = path.join(root, 'docs/operate');
const seconds = Number(process.argv[2] ?? 300);
const wanted = process.argv.slice(3);

/**
 * What the demo prints until it runs. @param {import('node:child_process').ChildProcess} demo
 * @returns {Promise<{ text: string, address: string, database: string }>}
 */
async function startOf(demo) {
  let text = '';
  return new Promise((resolve, reject) => {
    demo.stdout?.on('data', (chunk) => {
      text += String(chunk);
      if (!text.includes('Stop with Ctrl-C')) return;
      const [address = ''] = /http:\/\/127\.0\.0\.1:\d+/.exec(text) ?? [];
      const [database = ''] = /postgres(?:ql)?:\/\/\S+/.exec(text) ?? [];
      resolve({ text, address, database });
    });
    demo.once('exit', () => reject(new Error(`waybill dev did not start: ${text}`)));
  });
}

/**
 * The pictures, by file name: the screen, and what to do there before the picture is taken.
 * `height`: of the window, where the usual one would cut off what the picture is for.
 * @type {Record<string, { place: string, theme?: 'light' | 'dark', height?: number, prepare?: (page: import('playwright-core').Page) => Promise<void> }>}
 */
const pictures = {
  overview: { place: 'overview?range=15m' },
  messages: { place: 'messages' },
  'saved-filters': {
    place: 'messages?status=failed&destination=billing&last=today',
    prepare: async (page) => {
      await page.getByRole('button', { name: 'Save filters…' }).click();
      await page.getByLabel('Name', { exact: true }).fill('Failed at billing today');
      await page.getByRole('button', { name: 'Save', exact: true }).click();
    },
  },
  zoom: { place: 'overview?range=15m', prepare: selectTime },
  retried: {
    place: 'dead-letters',
    prepare: async (page) => {
      await page
        .getByRole('table', { name: 'Dead letters' })
        .getByRole('button', { name: 'Retry' })
        .first()
        .click();
      await page
        .getByRole('region', { name: 'Retried' })
        .locator('b')
        .filter({ hasNotText: 'still waiting' })
        .waitFor();
    },
  },
  'payload-search': { place: 'messages?payload.userId=20' },
  search: {
    place: 'messages',
    prepare: async (page) =>
      page.locator('input[data-first-filter]').first().pressSequentially('user'),
  },
  palette: {
    place: 'overview?range=15m',
    theme: 'dark',
    prepare: async (page) => page.keyboard.press('Control+k'),
  },
  message: { place: 'messages?destination=partner&status=delivered', prepare: openRetried },
  request: {
    place: 'messages?destination=partner&status=delivered',
    prepare: async (page) => {
      await openFirst(page);
      // only a webhook has a request
      await page
        .locator('.journey > li', { hasText: 'partner:' })
        .getByRole('button', { name: 'Request' })
        .first()
        .click();
    },
  },
  explanation: { place: 'messages?status=dead', prepare: openFirst },
  plan: {
    place: 'dead-letters',
    prepare: async (page) => page.getByRole('button', { name: 'Retry all that match' }).click(),
  },
  tail: { place: 'tail' },
  'dead-letters': { place: 'dead-letters' },
  undo: {
    place: 'dead-letters',
    prepare: async (page) => {
      await page
        .getByRole('table', { name: 'Dead letters' })
        .getByRole('button', { name: 'Discard' })
        .first()
        .click();
      await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
      await page.getByRole('region', { name: 'Discarded' }).waitFor();
    },
  },
  destination: { place: 'destinations/partner', height: 1060 },
  events: { place: 'events?topic=user.registered', height: 940 },
  flow: { place: 'flow' },
  reports: { place: 'reports/destinations' },
  audit: { place: 'audit' },
};

/** Opens the first message that was tried more than once. @param {import('playwright-core').Page} page */
async function openRetried(page) {
  const tries = page.locator('td[data-label="Tries"]', { hasNotText: /^1$/ });
  await openFirst(page, page.locator('tbody tr', { has: tries }));
}

/** @param {import('playwright-core').Page} page */
async function openFirst(page, rows = page.locator('tbody tr')) {
  await rows.first().locator('.card-title a').click();
  await page.locator('main h1').waitFor();
}

/** Selects a time in a chart; the button of the mouse stays down. @param {import('playwright-core').Page} page */
async function selectTime(page) {
  const plot = page.getByRole('slider', { name: 'Failures per second over time' });
  await plot.scrollIntoViewIfNeeded();
  const box = await plot.boundingBox();
  if (box === null) throw new Error('the chart is not visible');
  await page.mouse.move(box.x + box.width * 0.85, box.y + box.height / 2);
  await page.mouse.down();
  await page.mouse.move(box.x + box.width * 0.95, box.y + box.height / 2, { steps: 5 });
}

/** Waits until every panel has its answer and is drawn. @param {import('playwright-core').Page} page */
async function untilLoaded(page) {
  await page.locator('main h1').waitFor();
  await page.waitForFunction(
    () => document.querySelector('[aria-busy="true"], .looking, tbody[inert]') === null,
  );
  // what is asked for after the first answers, and the end of animations
  await sleep(2000);
  await page.waitForFunction(
    () => document.querySelector('[aria-busy="true"], .looking, tbody[inert]') === null,
  );
}

/** @param {string} name @param {import('playwright-core').Page} page */
async function take(name, page) {
  await page.screenshot({ path: path.join(folder, 'screens', `${name}.png`) });
  await page.close();
}

/** The page of a server behind a proxy that has signed a user on. @param {string} url */
async function takeSignedOn(url) {
  const database = new Database(resolveDatabaseOptions({ url, schema: 'outbox' }), {
    connections: 2,
    applicationName: 'screenshots',
  });
  const singleSignOn = {
    proxies: ['127.0.0.1'],
    userHeader: 'x-forwarded-email',
    groupsHeader: 'x-forwarded-groups',
    scopes: { '*': /** @type {const} */ ('read'), support: /** @type {const} */ ('operate') },
  };
  const server = await startServer(resolveServerOptions({ port: 0, singleSignOn }), {
    database,
    isReady: () => true,
  });
  try {
    const page = await browser.newPage({
      viewport: { width: 1280, height: 860 },
      // what the proxy adds
      extraHTTPHeaders: { 'x-forwarded-email': 'ada@example.com', 'x-forwarded-groups': 'support' },
      timezoneId: 'UTC',
    });
    await page.goto(`${server.url}/#/destinations`);
    await page.getByText('ada@example.com').waitFor();
    await untilLoaded(page);
    await take('single-sign-on', page);
  } finally {
    await server.close();
    await database.close();
  }
}

/** The output of the command that runs everything, as a terminal shows it. @param {string} text */
async function takeTerminal(text) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 420 } });
  await page.setContent(
    '<body style="margin:0;background:#14181f;color:#dfe5ee"><pre style="margin:24px;font:16px/1.5 monospace;white-space:pre-wrap"></pre>',
  );
  await page.locator('pre').evaluate((element, output) => {
    element.textContent = output;
  }, `$ npx waybill dev\n${text}`);
  await take('one-process', page);
}

/** @param {string} name */
function isWanted(name) {
  return wanted.length === 0 || wanted.includes(name);
}

const demo = spawn(process.execPath, ['dist/cli/main.js', 'dev'], {
  cwd: root,
  stdio: ['ignore', 'pipe', 'inherit'],
});
const browser = await chromium.launch({
  executablePath: process.env['WAYBILL_TEST_CHROMIUM'] ?? '/usr/bin/chromium',
  args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
});
try {
  const { text, address, database } = await startOf(demo);
  await sleep(seconds * 1000);
  mkdirSync(path.join(folder, 'screens'), { recursive: true });
  if (isWanted('one-process')) await takeTerminal(text);
  if (isWanted('single-sign-on')) await takeSignedOn(database);
  for (const [name, { place, theme = 'light', height = 860, prepare }] of Object.entries(
    pictures,
  )) {
    if (!isWanted(name)) continue;
    const page = await browser.newPage({
      viewport: { width: 1280, height },
      colorScheme: theme,
      timezoneId: 'UTC',
    });
    await page.goto(`${address}/#/${place}`);
    await untilLoaded(page);
    await prepare?.(page);
    // a pointer on a row would hold live updates
    if (prepare !== selectTime) await page.mouse.move(1279, 859);
    await untilLoaded(page);
    await take(name, page);
  }
  if (isWanted('page')) {
    const page = await browser.newPage({
      viewport: { width: 1280, height: 860 },
      colorScheme: 'dark',
      timezoneId: 'UTC',
    });
    await page.goto(`${address}/#/messages`);
    await untilLoaded(page);
    await page.screenshot({ path: path.join(folder, 'page.png') });
  }
} finally {
  await browser.close();
  demo.kill('SIGTERM');
}
