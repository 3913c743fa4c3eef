// Results of retries in a browser: the page says what became of dead letters that were retried, one by one or by a job.

import { expect, it } from 'vitest';

import { expectRows, rowsOf, testBrowser } from '../support/browser.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const browser = testBrowser();

/** Claims this message and ends the claim. */
async function end(
  queue: Queue,
  id: string,
  outcome: 'delivered' | 'reject' | 'retry',
): Promise<void> {
  const claim = await queue.claim();
  expect(claim.ids).toEqual([id]);
  const failure = { errorCode: 'busy', errorMessage: 'too busy', retryAfterMs: 3_600_000 };
  await settle(db, claim, [{ id, outcome, ...(outcome !== 'delivered' && failure) }]);
}

it('W5 a dead letter that was retried is followed until it is delivered, or has failed again', async () => {
  const queue = await makeQueue(db);
  const [delivered = '', dead = '', retrying = ''] = await makeDead(queue, 3, 'no');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/dead-letters?destination=${queue.name}`);
  const retry = (id: string) =>
    rowsOf(page, 'Dead letters')
      .filter({ has: page.locator(`a[href$="${id}"]`) })
      .getByRole('button', { name: 'Retry' })
      .click();
  const lines = page.getByRole('region', { name: 'Retried' }).getByRole('listitem');
  const line = (id: string) => lines.filter({ has: page.locator(`a[href$="${id}"]`) });
  await retry(delivered);
  await line(delivered).getByText('still waiting').waitFor();
  await end(queue, delivered, 'delivered');
  await line(delivered).getByText('delivered', { exact: true }).waitFor();
  await retry(dead);
  await line(dead).getByText('still waiting').waitFor();
  await end(queue, dead, 'reject');
  await line(dead).getByText('failed again: busy').waitFor();
  // it is a dead letter again, and can be retried again
  await line(delivered).getByText('delivered', { exact: true }).waitFor();
  await retry(retrying);
  await line(retrying).getByText('still waiting').waitFor();
  await end(queue, retrying, 'retry');
  await line(retrying).getByText('failed again: busy').waitFor();
  await line(retrying).getByText('next try in').waitFor();
  // and is followed on to the result of that try
  await queue.makeDue();
  await end(queue, retrying, 'delivered');
  await line(retrying).getByText('delivered', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Dismiss' }).click();
  await lines.first().waitFor({ state: 'detached' });
});

it('W5 the list of messages follows a dead letter too', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeDead(queue, 1, 'no');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages?destination=${queue.name}&status=dead`);
  await rowsOf(page, 'Messages').getByRole('button', { name: 'Retry now' }).click();
  await page.getByText('No message matches.').waitFor();
  await end(queue, id, 'delivered');
  await page
    .getByRole('region', { name: 'Retried' })
    .getByText('delivered', { exact: true })
    .waitFor();
});

it('W5 M13 a job that retried says how many were delivered, died again and are unfinished', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 4, 'no');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/dead-letters?destination=${queue.name}`);
  await page.getByRole('button', { name: 'Retry group' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByLabel('to confirm').fill('4');
  await dialog.getByRole('button', { name: 'Retry them' }).click();
  const outcome = dialog.getByText('Retried 4, of which');
  await outcome.getByText('0 delivered, 0 dead again, 4 unfinished').waitFor();
  const claim = await queue.claim({ limit: 3 });
  const outcomes = ['delivered', 'delivered', 'reject'] as const;
  await settle(
    db,
    claim,
    claim.ids.map((id, n) => ({ id, outcome: outcomes[n] ?? 'delivered', errorCode: 'no' })),
  );
  await outcome.getByText('2 delivered, 1 dead again, 1 unfinished').waitFor();
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  const result = page
    .getByRole('region', { name: 'Jobs' })
    .locator('.job')
    .filter({ hasText: queue.name });
  await result.getByText('2 delivered, 1 dead again, 1 unfinished').waitFor();
  expect(await result.locator('time').count()).toBe(1);
  // a letter that died later is not among the messages of the job
  await makeDead(queue, 1, 'no');
  await result.getByRole('link', { name: 'Show messages with this code' }).click();
  await expectRows(page, 'Messages', 4);
  await page.goBack();
  await result.getByRole('button', { name: 'Dismiss' }).click();
  await result.waitFor({ state: 'detached' });
  const jobs = page.waitForResponse((response) => response.url().endsWith('/jobs'));
  await page.reload();
  await (await jobs).finished();
  await page.getByText('2 shown').waitFor();
  expect(await result.count()).toBe(0);
});
