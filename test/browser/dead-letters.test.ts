// Dead letters in a browser: groups, one letter, a selection, and everything that matches a filter. Each action is
// planned, confirmed by typing, and run by a job.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import {
  answer,
  expectNoDialog,
  expectRows,
  polling,
  rowsOf,
  testBrowser,
} from '../support/browser.js';
import { startJob } from '../support/jobs.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

async function show(queue: Queue, more = '') {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  return browser.open(`${url}/#/dead-letters?destination=${queue.name}${more}`);
}

/** Types the confirmation and waits until the job has ended. */
async function confirm(page: Page, typed: string, button: string): Promise<void> {
  const dialog = page.locator('dialog[open]');
  const confirmed = dialog.getByRole('button', { name: button });
  await confirmed.waitFor();
  expect(await confirmed.isDisabled()).toBe(true);
  await dialog.getByLabel('to confirm').fill(`${typed}0`);
  expect(await confirmed.isDisabled()).toBe(true);
  await dialog.getByLabel('to confirm').fill(typed);
  await confirmed.click();
  await dialog.locator('.job[data-state=done]').waitFor();
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await expectNoDialog(page);
}

const idsOf = (letters: Record<string, unknown>[]) => letters.map((letter) => letter['message_id']);

it('W5 one dead letter is retried, another is discarded', async () => {
  const queue = await makeQueue(db);
  const [retried = '', discarded = '', left = ''] = await makeDead(queue, 3, 'no');
  const page = await show(queue);
  const row = (id: string) =>
    rowsOf(page, 'Dead letters').filter({ has: page.locator(`a[href$="${id}"]`) });
  await row(retried).getByRole('button', { name: 'Retry' }).click();
  await expectRows(page, 'Dead letters', 2);
  expect(await queue.status(retried)).toMatchObject({ status: 'pending' });
  await row(discarded).getByRole('button', { name: 'Discard' }).click();
  await answer(page, 'Discard');
  await expectRows(page, 'Dead letters', 1);
  expect(await queue.status(discarded)).toMatchObject({ status: 'discarded' });
  expect(idsOf(await queue.deadLetters())).toEqual([left]);
});

it('W5 a selection is retried, and another is discarded after a typed confirmation', async () => {
  const queue = await makeQueue(db);
  const ids = await makeDead(queue, 5, 'no');
  const page = await show(queue);
  const select = (id: string | undefined) => page.getByLabel(`Select ${id ?? ''}`).check();
  await select(ids[0]);
  await select(ids[1]);
  await page.getByRole('button', { name: 'Retry selected' }).click();
  await confirm(page, '2', 'Retry them');
  await expectRows(page, 'Dead letters', 3);
  expect((await queue.claim()).ids.toSorted()).toEqual(ids.slice(0, 2).toSorted());
  await select(ids[2]);
  await page.getByRole('button', { name: 'Discard selected' }).click();
  await confirm(page, 'discard', 'Discard them');
  await expectRows(page, 'Dead letters', 2);
  expect(idsOf(await queue.deadLetters())).toEqual(ids.slice(3));
});

it('W5 M13 a group is retried or discarded as a whole, and nothing else changes', async () => {
  const queue = await makeQueue(db);
  const busy = await makeDead(queue, 3, 'busy');
  await makeDead(queue, 2, 'refused');
  const other = await makeDead(queue, 1, 'other');
  const page = await show(queue);
  const group = (code: string) =>
    rowsOf(page, 'Groups').filter({ has: page.getByLabel(`Select the group ${code}`) });
  await group('busy').getByRole('button', { name: 'Retry group' }).click();
  const sample = page.getByRole('list', { name: 'Some of them' }).getByRole('listitem');
  await expect.poll(() => sample.count(), polling).toBe(3);
  await confirm(page, '3', 'Retry them');
  await expectRows(page, 'Dead letters', 3);
  expect((await queue.claim()).ids.toSorted()).toEqual(busy.toSorted());
  await group('refused').getByRole('button', { name: 'Discard group' }).click();
  await confirm(page, '2', 'Discard them');
  await expectRows(page, 'Dead letters', 1);
  expect(idsOf(await queue.deadLetters())).toEqual(other);
  const { rows } = await db.query(
    `SELECT action, count::int, actor FROM ${db.quoted}.operator_actions ORDER BY id DESC LIMIT 2`,
  );
  expect(rows).toMatchObject([
    { action: 'discard_dead_letters', count: 2, actor: 'api:local' },
    { action: 'retry_dead_letters', count: 3, actor: 'api:local' },
  ]);
});

it('W5 M13 groups and letters of several destinations are changed by one job, which can be undone', async () => {
  const [one, two] = [await makeQueue(db), await makeQueue(db)];
  await makeDead(one, 2, 'first_cause');
  await makeDead(two, 1, 'first_cause');
  await makeDead(two, 1, 'second_cause');
  await makeDead(two, 1, 'third_cause');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/dead-letters`);
  const dead = async () => (await one.deadLetters()).length + (await two.deadLetters()).length;
  const group = (words: string) => rowsOf(page, 'Groups').filter({ hasText: words });
  await group('first cause').getByText(`${one.name} and 1 other`).waitFor();
  await page.getByLabel('Select the group first cause').check();
  await page.getByLabel('Select the group second cause').check();
  await page.getByText('2 groups selected').waitFor();
  await page.getByRole('button', { name: 'Discard selected' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByLabel('to confirm').fill('4');
  await dialog.getByRole('button', { name: 'Discard them' }).click();
  await dialog.getByText('4 of 4, done').waitFor();
  expect(await dead()).toBe(1);
  await dialog.getByRole('button', { name: 'Undo' }).click();
  await dialog.locator('.job[data-state=done]').getByText('restore').waitFor();
  expect(await dead()).toBe(5);
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await expectNoDialog(page);

  await group('first cause').getByRole('link', { name: 'first cause' }).click();
  await expectRows(page, 'Dead letters', 3);
  for (const box of await rowsOf(page, 'Dead letters').getByRole('checkbox').all())
    await box.check();
  await page.getByText('3 letters selected').waitFor();
  await page.getByRole('button', { name: 'Retry selected' }).click();
  await confirm(page, '3', 'Retry them');
  await page.getByText('No dead letter matches.').waitFor();
  expect([(await one.claim()).ids.length, (await two.claim()).ids.length]).toEqual([2, 1]);
});

it('W5 all that match are selected, and the result links to the messages', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 3, 'no');
  const page = await show(queue);
  await expectRows(page, 'Dead letters', 3);
  await page.getByRole('button', { name: 'Select all that match' }).click();
  await page.getByText('All letters that match selected').waitFor();
  await page.getByRole('button', { name: 'Discard selected' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByLabel('to confirm').fill('discard');
  await dialog.getByRole('button', { name: 'Discard them' }).click();
  await dialog.getByRole('link', { name: 'Show discarded messages' }).click();
  await page.getByRole('heading', { name: 'Messages' }).waitFor();
  await expectRows(page, 'Messages', 3);
  expect(await queue.deadLetters()).toEqual([]);
});

it('W5 P13 the result of a job links to its part of the audit', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  const page = await show(queue);
  const all = async (action: 'Retry' | 'Discard'): Promise<void> => {
    await page.getByRole('button', { name: `${action} all that match` }).click();
    await confirm(page, action.toLowerCase(), `${action} them`);
  };
  await makeDead(queue, 1, 'no');
  await all('Discard');
  await makeDead(queue, 2, 'no');
  await all('Retry');
  await makeDead(other, 1, 'no');
  await db.query(`SELECT ${db.quoted}.retry_dead_letters($1, actor => 'api:local')`, [other.name]);
  const job = page.locator('.job', { hasText: 'retry' }).first();
  await job.getByRole('link', { name: 'Show audit' }).click();
  await expectRows(page, 'Actions', 1);
  const row = rowsOf(page, 'Actions');
  await row.getByText('retry dead letters').waitFor();
  expect(await row.locator('[data-label="How many"]').textContent()).toBe('2');
  const query = new URLSearchParams(page.url().split('?')[1]);
  expect([...query.keys()]).toEqual(['action', 'actor', 'destination', 'from', 'to']);
});

it('W5 a discard is undone, on the screen of dead letters and on that of the message', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeDead(queue, 1, 'no');
  const page = await show(queue);
  const discardIt = async (): Promise<void> => {
    await page.getByRole('button', { name: 'Discard', exact: true }).click();
    await answer(page, 'Discard');
    await expectNoDialog(page);
  };
  await discardIt();
  await page.getByText('No dead letter matches.').waitFor();
  await page
    .getByRole('region', { name: 'Discarded' })
    .getByRole('button', { name: 'Undo' })
    .click();
  const restored = page.getByRole('region', { name: 'Restored' });
  await restored.getByText('it is a dead letter again').waitFor();
  await expectRows(page, 'Dead letters', 1);
  expect(await queue.status(id)).toMatchObject({ status: 'dead' });
  await page.goto(`${page.url().split('#')[0]}#/messages/${id}`);
  await discardIt();
  await page.getByRole('button', { name: 'Undo discard' }).click();
  await page.getByText('refused for good').waitFor();
  expect(await queue.status(id)).toMatchObject({ status: 'dead' });
});

it('W5 the result of an action far down the list is in sight, names the message, and moves no row', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 40, 'no');
  const page = await show(queue);
  await expectRows(page, 'Dead letters', 40);
  const rows = rowsOf(page, 'Dead letters');
  const buttons = rows.getByRole('button', { name: 'Retry' });
  const clicked = buttons.nth(25);
  await clicked.scrollIntoViewIfNeeded();
  const [place, before] = [await clicked.boundingBox(), await rows.nth(24).boundingBox()];
  // the second click comes when the row has gone, and another one is in its place
  const answered = page.waitForResponse((response) => response.url().endsWith('/retry'));
  const [x, y] = [(place?.x ?? 0) + 10, (place?.y ?? 0) + 10];
  await page.mouse.click(x, y);
  await answered;
  await expectRows(page, 'Dead letters', 39);
  await page.mouse.down({ clickCount: 2 });
  await page.mouse.up({ clickCount: 2 });
  const result = page.getByRole('region', { name: 'Retried' });
  await result.getByText('still waiting').waitFor();
  const box = await result.boundingBox();
  expect((box?.y ?? 0) + (box?.height ?? 0)).toBeLessThan(860);
  expect(await rows.nth(24).boundingBox()).toEqual(before);
  const link = result.getByRole('link');
  const id = (await link.getAttribute('title')) ?? '';
  expect(await link.textContent()).toContain(id.slice(-8));
  expect(await queue.status(id)).toMatchObject({ status: 'pending' });
  expect(await queue.deadLetters()).toHaveLength(39);
});

it('W5 everything that matches the filters is retried or discarded', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  await makeDead(queue, 2, 'a');
  const page = await show(queue);
  await page.getByRole('button', { name: 'Retry all that match' }).click();
  await confirm(page, 'retry', 'Retry them');
  await page.getByText('No dead letter matches.').waitFor();
  expect((await queue.claim()).ids).toHaveLength(2);
  await makeDead(queue, 4, 'a');
  const kept = await makeDead(queue, 1, 'b');
  await makeDead(other, 1, 'a');
  await page.getByLabel('Error code').fill('a');
  await page.getByLabel('Error code').press('Enter');
  await expectRows(page, 'Dead letters', 4);
  await page.getByRole('button', { name: 'Discard all that match' }).click();
  await confirm(page, '4', 'Discard them');
  await page.getByText('No dead letter matches.').waitFor();
  expect(idsOf(await queue.deadLetters())).toEqual(kept);
  expect(await other.deadLetters()).toHaveLength(1);
});

it('W5 a job shows its progress and can be stopped', async () => {
  const queue = await makeQueue(db);
  for (let part = 0; part < 3; part += 1) await makeDead(queue, 1000, 'many');
  const page = await show(queue);
  await page.getByRole('button', { name: 'Discard all that match' }).click();
  await page.getByLabel('to confirm').fill('3000');
  // the job waits for this transaction
  const client = await db.connect();
  await client.query('BEGIN');
  await client.query(
    `SELECT FROM ${db.quoted}.dead_letters WHERE destination_id = $1 ORDER BY dead_at, message_id LIMIT 1 FOR UPDATE`,
    [queue.id],
  );
  await page.getByRole('button', { name: 'Discard them' }).click();
  const job = page.locator('dialog[open] .job');
  await job.getByText(/0 of 3.000, running/).waitFor();
  await job.getByRole('button', { name: 'Stop' }).click();
  await job.getByText('changes already made are kept').waitFor();
  await client.query('COMMIT');
  await expect.poll(async () => (await queue.deadLetters()).length, polling).toBe(2000);
});

it('W5 a plan that is not confirmed changes nothing', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 2, 'no');
  const page = await show(queue);
  await page.getByRole('button', { name: 'Discard all that match' }).click();
  await page.getByLabel('to confirm').waitFor();
  await page.keyboard.press('Escape');
  await expectNoDialog(page);
  expect(await queue.deadLetters()).toHaveLength(2);
});

it('W5 a plan whose count stopped at its bound says that there are at least so many', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 1, 'no');
  const page = await show(queue);
  await page.route('**/api/dead-letters/plan', async (route) => {
    const response = await route.fetch();
    const plan = (await response.json()) as object;
    await route.fulfill({ response, json: { ...plan, count: 100_000, atLeast: true } });
  });
  await page.getByRole('button', { name: 'Discard all that match' }).click();
  await page.getByText('At least 100\u202f000 dead letters').waitFor();
});

it('W5 a job shows its progress and is stopped, whichever server answers', async () => {
  const queue = await makeQueue(db);
  for (let part = 0; part < 3; part += 1) await makeDead(queue, 1000, 'many');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const other = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/dead-letters?destination=${queue.name}`);
  // with two servers behind one address, the other server started the job
  await page.route('**/api/dead-letters/jobs', async (route) => {
    if (route.request().method() !== 'POST') return route.continue();
    const { body } = await other.with({})(
      'POST',
      '/api/dead-letters/jobs',
      route.request().postData(),
    );
    await route.fulfill({ json: body });
  });
  // the second batch waits for this transaction
  const client = await db.connect();
  await client.query('BEGIN');
  await client.query(
    `SELECT FROM ${db.quoted}.dead_letters WHERE message_id = (
       SELECT d.message_id FROM ${db.quoted}.dead_letters d WHERE d.destination_id = $1 ORDER BY d.dead_at, d.message_id OFFSET 1500 LIMIT 1) FOR UPDATE`,
    [queue.id],
  );
  await page.getByRole('button', { name: 'Discard all that match' }).click();
  await page.getByLabel('to confirm').fill('3000');
  await page.getByRole('button', { name: 'Discard them' }).click();
  const job = page.locator('dialog[open] .job');
  await job.getByText(/1.000 of 3.000, running/).waitFor();
  expect(await job.locator('progress').getAttribute('value')).toBe('1000');
  await job.getByRole('button', { name: 'Stop' }).click();
  await job.getByText('changes already made are kept').waitFor();
  await client.query('COMMIT');
  await job.getByText(/2.000 of 3.000/).waitFor();
  expect(await queue.deadLetters()).toHaveLength(1000);
});

it('W5 an interrupted job offers to resume, and finishes the rest', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 4, 'no');
  const id = await startJob(db, queue.name, { heldMs: 1 });
  const page = await show(queue);
  const job = page.getByRole('region', { name: 'Jobs' }).locator('.job[data-state=interrupted]');
  await job.getByText('0 of 4, interrupted').waitFor();
  await job.getByText(`destination ${queue.name}`).waitFor();
  await job.getByRole('button', { name: 'Resume' }).click();
  await expect.poll(async () => (await queue.deadLetters()).length, polling).toBe(0);
  await expect
    .poll(async () => {
      const { rows } = await db.query(
        `SELECT state, done::int FROM ${db.quoted}.jobs WHERE id = $1`,
        [id],
      );
      return rows;
    }, polling)
    .toEqual([{ state: 'done', done: 4 }]);
  await job.waitFor({ state: 'detached' });
});

it('W5 a plan that fails shows its error and counts no longer, until the user tries again', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 1, 'no');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/dead-letters?destination=${queue.name}`, {
    expected: /503/,
  });
  await page.route('**/api/dead-letters/plan', (route) =>
    route.fulfill({ status: 503, json: { error: 'the database does not answer: try again' } }),
  );
  await page.getByRole('button', { name: 'Retry all that match' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByText('The database does not answer: try again.').waitFor();
  expect(await dialog.getByText('Counting…').count()).toBe(0);
  await page.unroute('**/api/dead-letters/plan');
  await dialog.getByRole('button', { name: 'Try again' }).click();
  await dialog.getByLabel('to confirm').waitFor();
});

it('W5 a selection keeps its letters of other pages, until a filter changes', async () => {
  const queue = await makeQueue(db);
  const ids = await makeDead(queue, 60, 'no');
  const page = await show(queue);
  await expectRows(page, 'Dead letters', 50);
  const selectFirst = () => rowsOf(page, 'Dead letters').getByRole('checkbox').first().check();
  await selectFirst();
  await page.getByRole('link', { name: 'Next page' }).click();
  await expectRows(page, 'Dead letters', 10);
  await page.getByText('1 letter selected').waitFor();
  await selectFirst();
  await page.getByText('2 letters selected').waitFor();
  await page.getByRole('button', { name: 'Retry selected' }).click();
  await confirm(page, '2', 'Retry them');
  expect((await queue.claim()).ids).toHaveLength(2);
  expect(await queue.deadLetters()).toHaveLength(ids.length - 2);
  await page.getByRole('link', { name: 'First page' }).click();
  await expectRows(page, 'Dead letters', 50);
  await selectFirst();
  await page.getByText('1 letter selected').waitFor();
  await page.getByLabel('Error code').fill('no');
  await page.getByLabel('Error code').press('Enter');
  await page.getByText('Select letters or groups').waitFor();
});
