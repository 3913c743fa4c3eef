// Accessibility of a page, judged by axe: the rules of WCAG 2.2 up to level AA, and its best practices.

import { source } from 'axe-core';
import type { AxeResults, RunOptions } from 'axe-core';
import type { Page } from 'playwright-core';

/** The problems of the page, each with the elements; none is an empty list. */
export async function accessibilityProblems(
  page: Page,
  options: RunOptions = {},
): Promise<string[]> {
  // as text: the page's own policy forbids scripts from elsewhere
  if (!(await page.evaluate<boolean>(`'axe' in window`)))
    await page.evaluate(`${source}; undefined`);
  const { violations } = await page.evaluate<AxeResults>(`axe.run(${JSON.stringify(options)})`);
  return violations.map(({ id, help, nodes }) => {
    const shown = nodes.map(
      ({ html, failureSummary = '' }) => `${html.slice(0, 150)} ${failureSummary}`,
    );
    return `${id}: ${help}\n${shown.join('\n')}`;
  });
}

/** The rules whose result depends on the theme. */
const colourRules = ['color-contrast', 'link-in-text-block'];

/** The problems in the light theme, and those that only the colours of the dark theme cause. The page follows the system. */
export async function problemsInBothThemes(page: Page): Promise<string[]> {
  await page.emulateMedia({ colorScheme: 'light' });
  const light = await accessibilityProblems(page);
  await page.emulateMedia({ colorScheme: 'dark' });
  const dark = await accessibilityProblems(page, { runOnly: colourRules });
  await page.emulateMedia({ colorScheme: 'light' });
  return [...light.map((problem) => `light: ${problem}`), ...dark.map((each) => `dark: ${each}`)];
}
