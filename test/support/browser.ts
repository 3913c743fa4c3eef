// Pages in a real Chromium: one browser for each process of the tests, a fresh profile for each test. An error or a policy
// violation that the page reports fails the test automatically.

import { existsSync } from 'node:fs';

import { chromium } from 'playwright-core';
import type { Browser, Locator, Page } from 'playwright-core';
import { beforeAll, expect, onTestFinished } from 'vitest';

import { findChromium } from './chromium.js';

export type PageOptions = {
  width?: number;
  colourScheme?: 'light' | 'dark';
  /** As `Asia/Tokyo`. Default: that of the machine. */
  timeZone?: string;
  /** The token that the page logs in with. */
  token?: string;
  /** Complaints of the page that the test expects. */
  expected?: RegExp;
};

export type TestBrowser = { open(address: string, options?: PageOptions): Promise<Page> };

/** Several browsers share two cores, so the timeout is long. A wait ends as soon as its condition holds. */
export const polling = { timeout: 40_000, interval: 20 };

/** Files share it: a start takes two seconds of processor time. Playwright ends it with the process. */
let browser: Browser | undefined;

async function launch(): Promise<Browser> {
  if (!existsSync('dist/page/index.html'))
    throw new Error('the page is not built: run npm run build');
  return chromium.launch({
    executablePath: findChromium() ?? '',
    // Chromium has no sandbox when it runs as root
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  });
}

export function testBrowser(): TestBrowser {
  beforeAll(async () => {
    browser ??= await launch();
  });
  return {
    async open(address, { width = 1280, colourScheme = 'light', timeZone, token, expected } = {}) {
      if (browser === undefined) throw new Error('the browser runs only inside of tests');
      const context = await browser.newContext({
        viewport: { width, height: 860 },
        colorScheme: colourScheme,
        ...(timeZone !== undefined && { timezoneId: timeZone }),
      });
      context.setDefaultTimeout(polling.timeout);
      if (token !== undefined) {
        const session = new URL('/api/session', address).href;
        expect((await context.request.post(session, { data: { token } })).status()).toBe(200);
      }
      const page = await context.newPage();
      const complaints = complaintsOf(page);
      onTestFinished(async () => {
        await context.close();
        expect(complaints.filter((words) => expected?.test(words) !== true)).toEqual([]);
      });
      await page.goto(address);
      return page;
    },
  };
}

/** The errors in Chromium's console: script errors, policy violations and failed responses. */
function complaintsOf(page: Page): string[] {
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning')
      complaints.push(`${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  return complaints;
}

/** The rows of the table with this name. */
export function rowsOf(page: Page, table: string): Locator {
  return page.getByRole('table', { name: table, exact: true }).locator('tbody tr');
}

/** Waits until the table has this many rows. */
export async function expectRows(page: Page, table: string, count: number): Promise<void> {
  await expect.poll(() => rowsOf(page, table).count(), polling).toBe(count);
}

/** Waits until the screen of a new address is rendered and loaded: nothing of the previous one is left. */
export async function expectLoaded(page: Page): Promise<void> {
  // a text, because this file is compiled without the types of a browser
  await page.evaluate(
    'new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))',
  );
  await expect.poll(() => page.locator('main [aria-busy=true]').count(), polling).toBe(0);
}

/** Presses a button of the open dialog. */
export async function answer(page: Page, button: string): Promise<void> {
  await page.locator('dialog[open]').getByRole('button', { name: button, exact: true }).click();
}

export async function expectNoDialog(page: Page): Promise<void> {
  await expect.poll(() => page.locator('dialog[open]').count(), polling).toBe(0);
}
