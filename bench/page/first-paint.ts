// How soon a browser shows the page, and how many bytes it loads for that: the overview in Chromium, with an empty cache.

import { existsSync } from 'node:fs';

import { chromium } from 'playwright-core';
import type { Page } from 'playwright-core';

import { findChromium } from '../../test/support/chromium.js';
import { median, until } from '../harness/rounds.js';

export type FirstPaint = {
  /** The time from the request to the first text or picture. */
  paintMs: number;
  /** The compressed bytes of the page's files. */
  bytes: number;
};

/** The bound of the compressed files. */
export const mostKilobytes = 150;

const paintReading = `performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN`;

/** The compressed bytes of all files that this page has loaded, without the answers of the API. */
export async function loadedBytes(page: Page): Promise<number> {
  return page.evaluate<number>(`
    [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
      .filter(({ name }) => !name.includes('/api/'))
      .reduce((sum, { encodedBodySize }) => sum + encodedBodySize, 0)`);
}

/** Null if the machine has no Chromium, or the page is not built. */
export async function firstPaint(url: string, loads: number): Promise<FirstPaint | null> {
  const program = findChromium();
  if (program === undefined || !existsSync('dist/page/index.html')) return null;
  const browser = await chromium.launch({
    executablePath: program,
    args: process.getuid?.() === 0 ? ['--no-sandbox'] : [],
  });
  try {
    const found: FirstPaint[] = [];
    for (let load = 0; load < loads; load += 1) {
      const page = await browser.newPage();
      await page.goto(url);
      await page.locator('main h1').waitFor();
      // The heading can be there before the browser has painted it. Not waitForFunction, which uses eval: the page
      // forbids it.
      let paintMs = Number.NaN;
      await until(async () => {
        paintMs = await page.evaluate<number>(paintReading);
        return Number.isFinite(paintMs);
      });
      found.push({
        paintMs,
        bytes: await loadedBytes(page),
      });
      await page.close();
    }
    return {
      paintMs: median(found.map(({ paintMs }) => paintMs)),
      bytes: Math.max(...found.map(({ bytes }) => bytes)),
    };
  } finally {
    await browser.close();
  }
}
