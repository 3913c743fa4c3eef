// Every screen at the widths of a phone, a tablet, a small and a large window: nothing is cut off or out of reach, and it
// looks as in its picture.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { expectLoaded, testBrowser } from '../support/browser.js';
import { testDatabase } from '../support/postgres.js';
import { fillScreens } from '../support/screens.js';
import { serveDatabase } from '../support/server.js';
import { differencesOf, isComparable } from './pictures.js';
import type { Theme } from './pictures.js';

const db = testDatabase();
const browser = testBrowser();

const widths = [390, 768, 1024, 1100, 1280, 1400];
/** The pictures of a width. The dark theme has other colours, but the same places. */
const pictured = new Map<number, readonly Theme[]>([
  [390, ['light']],
  [768, ['light']],
  [1280, ['light', 'dark']],
]);

/** What is wrong with the screen; nothing is an empty list. */
async function problemsOf(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const problems: string[] = [];
    const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    if (wide > 0) problems.push(`the page is ${wide} px too wide`);
    for (const head of document.querySelectorAll<HTMLElement>('th'))
      if (head.offsetParent !== null && head.scrollWidth > head.clientWidth)
        problems.push(
          `${head.textContent}: ${head.scrollWidth} px of text in ${head.clientWidth} px`,
        );
    const letters = document.createElement('canvas').getContext('2d');
    const arrowPx = 20;
    for (const select of document.querySelectorAll<HTMLSelectElement>('.filters select')) {
      if (letters === null || select.offsetParent === null) continue;
      const { font, paddingLeft } = getComputedStyle(select);
      letters.font = font;
      const words = select.selectedOptions[0]?.textContent ?? '';
      const wordsPx = letters.measureText(words).width + parseFloat(paddingLeft) + arrowPx;
      if (wordsPx > select.clientWidth) problems.push(`${words} does not fit into its field`);
    }
    for (const row of document.querySelectorAll('tbody tr:first-child')) {
      row.scrollIntoView({ block: 'center' });
      const controls = row.querySelectorAll('.card-title a, .action, input');
      for (const control of controls) {
        const box = control.getBoundingClientRect();
        const name = control.getAttribute('aria-label') ?? control.textContent;
        const right = control.matches('a') ? box.left + 15 : box.right;
        if (box.width < 15 || right > (control.closest('td')?.getBoundingClientRect().right ?? 0))
          problems.push(`${name} is cut off: ${box.left} to ${box.right}`);
        // the beginning: the rest of a long name is cut off with an ellipsis
        const found = document.elementFromPoint(box.left + 5, box.top + box.height / 2);
        if (found === null || !control.contains(found)) problems.push(`${name} cannot be clicked`);
      }
    }
    return problems;
  });
}

it(
  'W5 at every width, no head of a column or choice of a filter is cut off, links and actions of rows can be clicked, and screens look as in their pictures',
  { timeout: 180_000 },
  async ({ annotate }) => {
    const screens = await fillScreens(db);
    const { url } = await serveDatabase(db, { authentication: 'none' });
    const page = await browser.open(url, { timeZone: 'UTC' });
    const blank = await browser.open('about:blank');
    const isPictured = await isComparable(page);
    if (!isPictured) await annotate('the pictures have another font: they are not compared');
    for (const [index, [place, sign]] of screens.entries()) {
      const name = nameOf(place, screens.slice(0, index));
      await page.setViewportSize({ width: 1280, height: 860 });
      await page.goto(`${url}/#/${place}`);
      await page.locator(sign).first().waitFor();
      await expectLoaded(page);
      for (const width of widths) {
        await page.setViewportSize({ width, height: 860 });
        // tables become cards, and back, after the width has changed
        await expectLoaded(page);
        const themes = (isPictured && pictured.get(width)) || [];
        const differences =
          themes.length === 0
            ? []
            : await differencesOf(page, blank, { name: `${name}-${width}`, themes });
        expect.soft(differences).toEqual([]);
        expect.soft([width, place, await problemsOf(page)]).toEqual([width, place, []]);
      }
    }
  },
);

/** The place without ids; a second one of the same name has a number. */
function nameOf(place: string, before: readonly (readonly [string, string])[]): string {
  const plain = (each: string): string =>
    each
      .replaceAll(
        /[0-9a-f]{8}-[0-9a-f-]{27}|(?<=(endpoints|destinations)\/).*|(?<=(rollout|topic)=).*/g,
        'one',
      )
      .replaceAll(/[^a-z0-9]+/gi, '-');
  const same = before.filter(([each]) => plain(each) === plain(place)).length;
  return same === 0 ? plain(place) : `${plain(place)}-${same + 1}`;
}
