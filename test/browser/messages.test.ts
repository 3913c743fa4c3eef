// The list of messages in a browser: filters and pages in the address, live updates, and actions on a row.

import { expect, it } from 'vitest';

import {
  answer,
  expectNoDialog,
  expectRows,
  polling,
  rowsOf,
  testBrowser,
} from '../support/browser.js';
import { makeDead, makeRetrying } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settleDelivered } from '../support/settling.js';

const db = testDatabase();
const browser = testBrowser();

async function serve(): Promise<string> {
  return `${(await serveDatabase(db, { authentication: 'none' })).url}/`;
}

it('W5 filters are in the address and survive a reload; / focuses the search box', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  await queue.enqueue(3, { tenantId: 'acme' });
  await queue.enqueue(2, { tenantId: 'globex' });
  await other.enqueue(1);
  const page = await browser.open(`${await serve()}#/messages`);
  await rowsOf(page, 'Messages').first().waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type(queue.topic);
  // it waits for the topics that begin so, which come first
  await page.keyboard.press('Enter');
  await expectRows(page, 'Messages', 5);
  await page.getByLabel('Tenant').fill('globex');
  await page.getByLabel('Tenant').press('Enter');
  await page.getByLabel('Status').selectOption('pending');
  await expectRows(page, 'Messages', 2);
  expect(page.url()).toContain(`topic=${queue.topic}&tenantId=globex&status=pending`);
  await page.reload();
  await expectRows(page, 'Messages', 2);
  expect(await page.getByLabel('Topic').inputValue()).toBe(queue.topic);
  expect(await page.getByLabel('Status').inputValue()).toBe('pending');
  await page.getByRole('link', { name: 'Clear 3' }).click();
  await expect.poll(() => rowsOf(page, 'Messages').count(), polling).toBeGreaterThan(5);
});

it('W5 each filter of the address is applied', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeDead(queue, 1, 'odd', {
    key: 'k1',
    tenantId: 'acme',
    aggregateType: 'order',
    aggregateId: '77',
  });
  const page = await browser.open(`${await serve()}#/messages`);
  const show = (filter: Record<string, string>) =>
    page.evaluate(
      (hash) => void (location.hash = hash),
      `#/messages?${new URLSearchParams({ destination: queue.name, ...filter }).toString()}`,
    );
  const at = (ms: number) => new Date(Date.now() + ms).toISOString();
  const cases: [Record<string, string>, Record<string, string>][] = [
    [{ id }, { id: '01890000-0000-7000-8000-000000000000' }],
    [
      { status: 'dead', id },
      { status: 'dead', id: '01890000-0000-7000-8000-000000000000' },
    ],
    [{ topic: queue.topic }, { topic: 'other' }],
    [{ status: 'dead' }, { status: 'pending' }],
    [{ tenantId: 'acme' }, { tenantId: 'other' }],
    [{ key: 'k1' }, { key: 'k2' }],
    [
      { aggregateType: 'order', aggregateId: '77' },
      { aggregateType: 'order', aggregateId: '78' },
    ],
    [{ errorCode: 'odd' }, { errorCode: 'other' }],
    [{ from: at(-60_000) }, { from: at(3_600_000) }],
    [{ to: at(3_600_000) }, { to: at(-60_000) }],
    [{ last: '15' }, { last: '15', to: at(-60_000) }],
  ];
  for (const [fits, fitsNot] of cases) {
    await show(fits);
    await expectRows(page, 'Messages', 1);
    await show(fitsNot);
    await expectRows(page, 'Messages', 0);
  }
});

it('W5 pages follow each other without a gap, and the back button goes back', async () => {
  const queue = await makeQueue(db);
  const ids = (await queue.enqueue(120)).toReversed();
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  const shown = async (): Promise<string[]> =>
    rowsOf(page, 'Messages')
      .locator('a')
      .evaluateAll((links) => links.map((link) => link.getAttribute('href')?.split('/')[2] ?? ''));
  await expect.poll(shown, polling).toEqual(ids.slice(0, 50));
  await page.getByRole('link', { name: 'Next page' }).click();
  await expect.poll(shown, polling).toEqual(ids.slice(50, 100));
  await page.getByRole('link', { name: 'Next page' }).click();
  await expect.poll(shown, polling).toEqual(ids.slice(100));
  expect(await page.getByRole('link', { name: 'Next page' }).count()).toBe(0);
  await page.goBack();
  await expect.poll(shown, polling).toEqual(ids.slice(50, 100));
  await page.getByRole('link', { name: 'First page' }).click();
  await expect.poll(shown, polling).toEqual(ids.slice(0, 50));
});

it('W5 new messages appear by themselves until the user pauses them', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  const address = `${await serve()}#/messages?topic=${queue.topic}`;
  const page = await browser.open('about:blank');
  await page.clock.install();
  await page.goto(address);
  await expectRows(page, 'Messages', 1);
  await queue.enqueue(1);
  await page.clock.runFor(5000);
  await expectRows(page, 'Messages', 2);
  await page.getByRole('button', { name: 'Pause' }).click();
  let asked = 0;
  page.on('request', (request) => {
    if (request.url().includes('/api/messages')) asked += 1;
  });
  await queue.enqueue(1);
  await page.clock.runFor(30_000);
  expect(asked).toBe(0);
  expect(await rowsOf(page, 'Messages').count()).toBe(2);
  expect(await page.getByRole('status').textContent()).toBe('paused');
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.clock.runFor(5000);
  await expectRows(page, 'Messages', 3);
});

it('W5 live updates wait while the pointer is over a row', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  await rowsOf(page, 'Messages').first().hover();
  await page.getByRole('status').getByText('held').waitFor();
  await page.getByRole('heading', { name: 'Messages' }).hover();
  await page.getByRole('status').getByText('live').waitFor();
});

it('W5 "retry now" makes a message due', async () => {
  const queue = await makeQueue(db);
  await makeRetrying(queue, 1);
  expect((await queue.claim()).ids).toEqual([]);
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  await rowsOf(page, 'Messages').getByText('retrying').waitFor();
  await page.getByRole('button', { name: 'Retry now' }).click();
  await expect
    .poll(async () => (await queue.waiting())[0]?.available_at, polling)
    .toSatisfy((at: Date) => at.getTime() <= Date.now());
  expect((await queue.claim()).ids).toHaveLength(1);
});

it('W5 "retry now" asks before it sends a scheduled message early', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1, { delayMs: 3_600_000 });
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  await page.getByRole('button', { name: 'Retry now' }).click();
  await page.getByRole('dialog').getByText('It is scheduled for').waitFor();
  await answer(page, 'Not now');
  await expectNoDialog(page);
  expect((await queue.claim()).ids).toEqual([]);
  await page.getByRole('button', { name: 'Retry now' }).click();
  await answer(page, 'Send now');
  await expectNoDialog(page);
  expect((await queue.claim()).ids).toHaveLength(1);
});

it('W5 "delete" cancels a pending message and discards a dead one, after a question', async () => {
  const queue = await makeQueue(db);
  const [dead = ''] = await makeDead(queue, 1, 'no');
  const waiting = await queue.enqueueOne();
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  const row = (id: string) =>
    rowsOf(page, 'Messages').filter({ has: page.locator(`a[href$="${id}"]`) });
  await row(waiting).getByRole('button', { name: 'Delete' }).click();
  await page.getByRole('dialog').waitFor();
  await page.keyboard.press('Escape');
  await expectNoDialog(page);
  expect(await queue.status(waiting)).toMatchObject({ status: 'pending' });
  await row(waiting).getByRole('button', { name: 'Delete' }).click();
  await answer(page, 'Cancel delivery');
  await row(waiting).getByText('discarded').waitFor();
  // that cannot be undone
  expect(await page.getByRole('button', { name: 'Undo' }).count()).toBe(0);
  expect(await queue.status(waiting)).toMatchObject({ status: 'discarded' });
  expect(await queue.status(dead)).toMatchObject({ status: 'dead' });
  await row(dead).getByRole('button', { name: 'Delete' }).click();
  await answer(page, 'Discard');
  await row(dead).getByText('discarded').waitFor();
  expect(await queue.status(dead)).toMatchObject({ status: 'discarded' });
  const results = page.locator('.outcomes');
  await results.getByRole('button', { name: 'Undo' }).click();
  await results.getByText('it is a dead letter again').waitFor();
  await row(dead).getByText('dead', { exact: true }).waitFor();
  expect(await queue.status(dead)).toMatchObject({ status: 'dead' });
  // a second discard of it can be undone too
  await row(dead).getByRole('button', { name: 'Delete' }).click();
  await answer(page, 'Discard');
  await results.getByRole('button', { name: 'Undo' }).waitFor();
});

it('W5 the payload is shown with every digit', async () => {
  const queue = await makeQueue(db);
  await db.query(
    `SELECT ${db.quoted}.enqueue($1, '{"n": 12345678901234567890.1200, "list": [], "s": "a{b"}'::jsonb)`,
    [queue.topic],
  );
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  await page.getByRole('button', { name: 'Payload' }).click();
  const text = page.locator('dialog[open] pre');
  await text.waitFor();
  expect((await text.textContent())?.split('\n').toSorted()).toEqual(
    ['{', '  "n": 12345678901234567890.1200,', '  "s": "a{b",', '  "list": []', '}'].toSorted(),
  );
  await page.keyboard.press('Escape');
  await expectNoDialog(page);
});

it('W5 a typed filter says that it is not applied yet, and Clear empties it too', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(2);
  const page = await browser.open(`${await serve()}#/messages?destination=${queue.name}`);
  const hint = page.getByText('Press Enter to apply the filter.');
  const topic = page.getByLabel('Topic', { exact: true });
  await topic.focus();
  const place = await topic.boundingBox();
  await topic.pressSequentially('nothing');
  await hint.waitFor({ state: 'attached' });
  expect(await topic.boundingBox()).toEqual(place);
  await expectRows(page, 'Messages', 2);
  await topic.press('Enter');
  await page.getByText('No message matches.').waitFor();
  expect(await hint.count()).toBe(0);
  await page.getByLabel('Tenant', { exact: true }).pressSequentially('half');
  await page.getByRole('link', { name: 'Clear' }).click();
  await page.waitForURL((url) => url.hash === '#/messages');
  for (const name of ['Topic', 'Tenant', 'Destination'])
    expect(await page.getByLabel(name, { exact: true }).inputValue()).toBe('');
  expect(await hint.count()).toBe(0);
  // without any filter, there is only the text to clear
  await topic.pressSequentially('half');
  await page.getByRole('link', { name: 'Clear' }).click();
  await expect.poll(() => topic.inputValue(), polling).toBe('');
  await topic.blur();
  expect(new URL(page.url()).hash).toBe('#/messages');
});

it('W5 "retry failed" makes the failed messages of the filtered destination due', async () => {
  const [queue, other] = [await makeQueue(db), await makeQueue(db)];
  await makeRetrying(queue, 3);
  await makeRetrying(other, 1);
  const page = await browser.open(
    `${await serve()}#/messages?status=retrying&destination=${queue.name}`,
  );
  await expectRows(page, 'Messages', 3);
  await page.getByRole('button', { name: 'Retry failed' }).click();
  await answer(page, 'Retry now');
  await expectNoDialog(page);
  const result = page.getByRole('region', { name: 'Retry failed' });
  await result.getByText('3 deliveries made due.').waitFor();
  expect((await queue.claim()).ids).toHaveLength(3);
  expect((await other.claim()).ids).toEqual([]);
});

it('W5 "retry failed" changes only messages that match all filters', async () => {
  const queue = await makeQueue(db);
  const ids = await makeRetrying(queue, 3);
  const [matching = ''] = ids;
  const page = await browser.open(
    `${await serve()}#/messages?status=retrying&id=${matching}&errorCode=busy&last=60`,
  );
  await expectRows(page, 'Messages', 1);
  await page.getByRole('button', { name: 'Retry failed' }).click();
  await page.locator('dialog[open]').getByText('and match the filters').waitFor();
  await answer(page, 'Retry now');
  await expectNoDialog(page);
  expect((await queue.claim()).ids).toEqual([matching]);
  const result = page.getByRole('region', { name: 'Retry failed' });
  await result.getByText('1 delivery made due.').waitFor();
  // also while it is processing
  await result.getByRole('link').click();
  await page.waitForURL(/failedTo=/);
  await expectRows(page, 'Messages', 1);
  await rowsOf(page, 'Messages').getByText('processing').waitFor();
});

it('W5 the arrow keys move between rows, and Enter opens one', async () => {
  const queue = await makeQueue(db);
  const ids = await queue.enqueue(3);
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`);
  await rowsOf(page, 'Messages').first().locator('a').focus();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await page.waitForURL((url) => url.hash === `#/messages/${ids[1] ?? ''}`);
});

it('W5 on a phone, a due message that has not failed is not shown as an error', async () => {
  const queue = await makeQueue(db);
  await queue.enqueueOne();
  await makeRetrying(queue, 1);
  const page = await browser.open(`${await serve()}#/messages?topic=${queue.topic}`, {
    width: 390,
  });
  await expectRows(page, 'Messages', 2);
  const labelOf = (text: string) =>
    page
      .locator('td', { has: page.locator('.error-cell', { hasText: text }) })
      .evaluate((cell) => getComputedStyle(cell, '::before').content);
  expect([await labelOf('due'), await labelOf('busy')]).toEqual(['"When"', '"Error"']);
});

it('W5 the list shows tenants once a row has one, and finds what has failed in one look', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(1);
  await settleDelivered(db, await queue.claim());
  await makeDead(queue, 1, 'gone');
  await makeRetrying(queue, 1);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 3);
  const head = page.getByRole('columnheader', { name: 'Tenant' });
  expect(await head.count()).toBe(0);
  await page.locator('select[name=status]').selectOption('failed');
  await expectRows(page, 'Messages', 2);
  expect(await rowsOf(page, 'Messages').locator('.status').allTextContents()).toEqual([
    'dead',
    'retrying',
  ]);
  await makeDead(queue, 1, 'gone', { tenantId: 'acme' });
  // a slow search is not live
  await page.reload();
  await head.waitFor();
  await rowsOf(page, 'Messages').first().getByText('acme', { exact: true }).waitFor();
});
