// Contrast of small coloured words, in either theme, judged by axe: WCAG asks for 4.5.

import { expect, it } from 'vitest';

import { expectRows, testBrowser } from '../support/browser.js';
import { makeBlocked, makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { accessibilityProblems } from './accessibility.js';

const db = testDatabase();
const browser = testBrowser();

const words =
  'pending retrying processing delivered dead discarded unrouted failing disabled healthy'.split(
    ' ',
  );

it('W5 badges and states have enough contrast in the menu, on rows and on selected rows', async () => {
  const queue = await makeQueue(db, { whenDead: 'block' });
  await makeBlocked(queue, 'key');
  await makeDead(await makeQueue(db), words.length - 1, 'gone');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  for (const colourScheme of ['light', 'dark'] as const) {
    const page = await browser.open(`${url}/#/dead-letters`, { colourScheme });
    await page.locator('nav .badge').nth(1).waitFor();
    await expectRows(page, 'Dead letters', words.length);
    for (const selected of [false, true]) {
      if (selected) for (const box of await page.locator('tbody input').all()) await box.check();
      await page.locator('tbody tr td:nth-child(3)').evaluateAll((cells, all) => {
        cells.slice(-all.length).forEach((cell, index) => {
          const badge = document.createElement('span');
          badge.className = `status ${all[index] ?? ''}`;
          badge.textContent = all[index] ?? '';
          cell.replaceChildren(badge);
        });
      }, words);
      expect
        .soft([colourScheme, selected, await accessibilityProblems(page)])
        .toEqual([colourScheme, selected, []]);
    }
    await page.goto(`${url}/#/messages`);
    await page.getByRole('button', { name: 'Pause' }).click();
    await page.getByRole('status').getByText('paused').waitFor();
    expect.soft([colourScheme, await accessibilityProblems(page)]).toEqual([colourScheme, []]);
  }
});
