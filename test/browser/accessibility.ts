// Accessibility of a page, judged by axe: the rules of WCAG 2.2 up to level AA, and its best practices.

import { source } from 'axe-core';
import type { AxeResults } from 'axe-core';
import type { Page } from 'playwright-core';

/** The problems of the page, each with the elements; none is an empty list. */
export async function accessibilityProblems(page: Page): Promise<string[]> {
  // as text: the page's own policy forbids scripts from elsewhere
  await page.evaluate(`${source}; undefined`);
  const { violations } = await page.evaluate<AxeResults>('axe.run()');
  return violations.map(({ id, help, nodes }) => {
    const shown = nodes.map(
      ({ html, failureSummary = '' }) => `${html.slice(0, 150)} ${failureSummary}`,
    );
    return `${id}: ${help}\n${shown.join('\n')}`;
  });
}
