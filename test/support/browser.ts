// Pages in a real Chromium: one browser for each test file, a fresh profile for each test. Whatever the page
// complains about (an error, a violation of its policy) fails the test, without being asked for.

import { existsSync } from 'node:fs';

import { chromium } from 'playwright-core';
import type { Browser, Locator, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, onTestFinished } from 'vitest';

import { findChromium } from './chromium.js';

export type PageOptions = {
  width?: number;
  colourScheme?: 'light' | 'dark';
  /** Logged in with this. */
  token?: string;
  /** Complaints that the test is about. */
  expected?: RegExp;
};

export type TestBrowser = { open(address: string, options?: PageOptions): Promise<Page> };

/** Two cores run several browsers at once: waits are patient, and end at the first sign. */
export const patient = { timeout: 20_000, interval: 20 };

export function testBrowser(): TestBrowser {
  let browser: Browser | undefined;
  beforeAll(async () => {
    if (!existsSync('dist/page/index.html'))
      throw new Error('the page is not built: run npm run build');
    browser = await chromium.launch({
      executablePath: findChromium() ?? '',
      // as root there is no sandbox
      args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
    });
  });
  afterAll(() => browser?.close());
  return {
    async open(address, { width = 1280, colourScheme = 'light', token, expected } = {}) {
      if (browser === undefined) throw new Error('the browser runs only inside of tests');
      const context = await browser.newContext({
        viewport: { width, height: 860 },
        colorScheme: colourScheme,
      });
      context.setDefaultTimeout(patient.timeout);
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

/** What Chromium writes into its console as an error: of scripts, of its policy, of answers that failed. */
function complaintsOf(page: Page): string[] {
  const complaints: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning')
      complaints.push(`${message.text()} ${message.location().url}`);
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  return complaints;
}

/** The rows of a table by its name. */
export function rowsOf(page: Page, table: string): Locator {
  return page.getByRole('table', { name: table, exact: true }).locator('tbody tr');
}

/** Waits until so many rows are there. */
export async function expectRows(page: Page, table: string, count: number): Promise<void> {
  await expect.poll(() => rowsOf(page, table).count(), patient).toBe(count);
}

/** Presses a button of the open dialog. */
export async function answer(page: Page, button: string): Promise<void> {
  await page.locator('dialog[open]').getByRole('button', { name: button, exact: true }).click();
}

export async function expectNoDialog(page: Page): Promise<void> {
  await expect.poll(() => page.locator('dialog[open]').count(), patient).toBe(0);
}
