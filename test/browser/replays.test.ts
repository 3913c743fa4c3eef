// Replays in a browser: filtered, planned, confirmed by typing, watched, cancelled and resumed. Each effect is checked
// in the database.

import { expect, it } from 'vitest';

import { expectNoDialog, polling, rowsOf, testBrowser } from '../support/browser.js';
import { makeQueue } from '../support/outbox.js';
import type { Queue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { deliverAll, startReplay } from '../support/replays.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

async function show(place: string) {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  return browser.open(`${url}/#/${place}`);
}

async function history(count: number): Promise<{ queue: Queue; ids: string[] }> {
  const queue = await makeQueue(db);
  const ids = await queue.enqueue(count);
  await deliverAll(db, queue);
  return { queue, ids };
}

async function lastReplay(queue: Queue) {
  const { rows } = await db.query(
    `SELECT state, replayed::int, per_second, actor, filter ->> 'topic' AS topic FROM ${db.quoted}.replays
      WHERE destination_id = $1 ORDER BY id DESC LIMIT 1`,
    [queue.id],
  );
  return rows[0];
}

it("W5 M5 the filtered messages are planned, confirmed with the destination's name, and sent again", async () => {
  const { queue, ids } = await history(3);
  const page = await show(`messages?topic=${queue.topic}&last=60`);
  await page.getByRole('button', { name: 'Replay…' }).click();
  const dialog = page.locator('dialog[open]');
  expect(await dialog.getByLabel('Topic').inputValue()).toBe(queue.topic);
  expect(await dialog.getByLabel('Created from').inputValue()).not.toBe('');
  await dialog.getByLabel('To which destination').selectOption(queue.name);
  await dialog.getByRole('button', { name: 'Plan' }).click();
  await dialog.getByText('3 messages').first().waitFor();
  const sample = dialog.getByRole('list', { name: 'The first of them' }).getByRole('listitem');
  expect(await sample.allTextContents()).toEqual(
    ids.map(() => expect.stringContaining(`${queue.topic}delivered`) as unknown),
  );
  // the field has the keyboard focus
  await expect
    .poll(() => dialog.getByLabel('to confirm').evaluate((field) => field.matches(':focus')))
    .toBe(true);
  const confirmed = dialog.getByRole('button', { name: 'Replay them' });
  await page.keyboard.type(`${queue.name}x`);
  expect(await confirmed.isDisabled()).toBe(true);
  expect(await lastReplay(queue)).toBeUndefined();
  await page.keyboard.press('Backspace');
  await page.keyboard.press('Enter');
  await dialog.locator('.job[data-state=done]').getByText('3 of 3, done').waitFor();
  await dialog.getByRole('button', { name: 'Close' }).last().click();
  await expectNoDialog(page);
  expect(await lastReplay(queue)).toMatchObject({
    state: 'done',
    replayed: 3,
    per_second: 100,
    actor: 'api:local',
    topic: queue.topic,
  });
  expect((await deliverAll(db, queue)).toSorted()).toEqual(ids.toSorted());
});

it('W5 M5 a replay names the filters of the list that it does not have', async () => {
  const { queue } = await history(1);
  const page = await show(`messages?topic=${queue.topic}&status=delivered&errorCode=500`);
  await page.getByRole('button', { name: 'Replay…' }).click();
  const notice = page.locator('dialog[open]').getByText('A replay has no filter for');
  expect(await notice.textContent()).toMatch(
    /^A replay has no filter for Status, .+: it also sends/,
  );
});

it('W5 M5 a running replay is cancelled where it is', async () => {
  const { queue } = await history(20);
  const page = await show('replays');
  await page.getByRole('button', { name: 'New replay…' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByLabel('To which destination').selectOption(queue.name);
  await dialog.getByLabel('Most messages per second').fill('2');
  // a replay of everything needs only a checkbox
  await dialog.getByRole('button', { name: 'Plan' }).click();
  expect(
    await dialog.getByLabel('All messages that the').evaluate((box) => box.matches(':invalid')),
  ).toBe(true);
  await dialog.getByLabel('All messages that the').check();
  await dialog.getByRole('button', { name: 'Plan' }).click();
  await dialog.getByLabel('to confirm').fill(queue.name);
  await dialog.getByRole('button', { name: 'Replay them' }).click();
  await dialog.getByText(/of 20, running/).waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await dialog.getByText(/of 20, cancelled/).waitFor();
  const replay = await lastReplay(queue);
  expect(replay).toMatchObject({ state: 'cancelled' });
  expect(await queue.waiting()).toHaveLength(replay?.['replayed'] as number);
  await page.keyboard.press('Escape');
  const row = rowsOf(page, 'Replays').filter({ hasText: queue.name });
  await row.getByText('cancelled').waitFor();
});

it('W5 M5 a stopped replay is resumed', async () => {
  const { queue, ids } = await history(4);
  const { replay_id: id } = await startReplay(db, queue.name, { topic: queue.topic });
  await db.query(
    `UPDATE ${db.quoted}.replays SET moved_at = moved_at - interval '1 minute' WHERE id = $1`,
    [id],
  );
  const page = await show('replays');
  const row = rowsOf(page, 'Replays').filter({ hasText: queue.name });
  await row.getByText('stopped').waitFor();
  await row.getByRole('button', { name: 'Resume' }).click();
  // the table waits while the pointer is on a row
  await page.getByRole('heading', { name: 'Replays' }).hover();
  await row.getByText('done').waitFor();
  expect((await deliverAll(db, queue)).toSorted()).toEqual(ids.toSorted());
});

it('W5 M5 one message is replayed from its own screen', async () => {
  const { queue, ids } = await history(2);
  const page = await show(`messages/${ids[0] ?? ''}`);
  await page.getByRole('button', { name: 'Replay…' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByRole('button', { name: 'Plan' }).click();
  await dialog.getByLabel('to confirm').fill(queue.name);
  await dialog.getByRole('button', { name: 'Replay them' }).click();
  await dialog.locator('.job[data-state=done]').waitFor();
  expect((await queue.waiting()).map(({ message_id }) => message_id)).toEqual([ids[0]]);
});

it('W5 M5 the page says when there is nothing to replay, and the user can go back', async () => {
  const { queue } = await history(1);
  const page = await show('replays');
  await page.getByRole('button', { name: 'New replay…' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByLabel('To which destination').selectOption(queue.name);
  await dialog.getByLabel('Topic').fill('nothing.like.it');
  await dialog.getByRole('button', { name: 'Plan' }).click();
  await dialog.getByText('No message matches').waitFor();
  await dialog.getByRole('button', { name: 'Back' }).click();
  expect(await dialog.getByLabel('Topic').inputValue()).toBe('nothing.like.it');
});

it('W5 the keyboard alone opens a dialog, Escape closes it, and the focus returns', async () => {
  const { queue } = await history(1);
  const page = await show(`messages?topic=${queue.topic}`);
  for (const name of ['Replay…', 'Retry failed']) {
    const button = page.getByRole('button', { name });
    await button.focus();
    await page.keyboard.press('Enter');
    await page.locator('dialog[open]').waitFor();
    await page.keyboard.press('Escape');
    await expectNoDialog(page);
    await expect
      .poll(() => button.evaluate((element) => element.matches(':focus')), polling)
      .toBe(true);
  }
});
