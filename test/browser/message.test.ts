// One message in a browser: its journey, its payload, and the buttons that resolve what blocks it.

import { readFile } from 'node:fs/promises';

import { expect, it } from 'vitest';

import { answer, polling, testBrowser } from '../support/browser.js';
import { makeBlocked, makeDead, makeRetrying } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const browser = testBrowser();

async function show(id: string) {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  return browser.open(`${url}/#/messages/${id}`);
}

it('W8 the journey shows who retried and who discarded the message', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeDead(queue, 1, 'no');
  await db.query(`SELECT ${db.quoted}.retry_dead_letters(ids => $1, actor => 'cli:ann')`, [[id]]);
  const claim = await queue.claimOne();
  await settle(db, claim, [{ id, outcome: 'reject', errorCode: 'no' }]);
  await db.query(`SELECT ${db.quoted}.discard_dead_letters(ids => $1, actor => 'api:bob')`, [[id]]);
  const page = await show(id);
  const steps = page.locator('.journey > li');
  await steps.getByText(`${queue.name}: retried by cli:ann`).waitFor();
  await expect.poll(() => steps.count(), polling).toBe(5);
  const texts = await steps.allTextContents();
  expect(texts[2]).toContain('retried by cli:ann');
  expect(texts[4]).toContain('discarded');
  expect(texts[4]).toContain('api:bob');
  await steps.getByRole('link', { name: 'cli:ann' }).click();
  await page.getByRole('heading', { name: 'Audit' }).waitFor();
  await page.getByRole('table', { name: 'Actions' }).getByText('retry dead letters').waitFor();
});

it('W8 the journey shows every recorded attempt, and the payload is downloaded unchanged', async () => {
  const queue = await makeQueue(db);
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
  const headers = { traceparent, actor: 'ann@example.com' };
  const id = await queue.enqueueOne({ headers, payload: { name: 'x' } });
  const first = await queue.claimOne();
  await settle(db, first, [
    {
      id,
      outcome: 'retry',
      retryAfterMs: 0,
      latencyMs: 1234,
      errorCode: 'http_status',
      remoteCode: '503',
      errorMessage: 'the answer was busy',
      response: 'HTTP/1.1 503 Service Unavailable\n\ncome back later',
    },
  ]);
  await queue.makeDue();
  const second = await queue.claimOne();
  await settle(db, second, [
    {
      id,
      outcome: 'delivered',
      latencyMs: 7,
      remoteCode: '202',
      reference: 'receipt-99',
      response: '{"taken":true}',
      claimNo: second.row.claim_no,
    },
  ]);
  const { rows } = await db.query<{ id: string }>(
    `SELECT transaction_id::text AS id FROM ${db.quoted}.messages WHERE id = $1`,
    [id],
  );
  const page = await show(id);
  const steps = page.locator('.journey > li');
  await expect.poll(() => steps.count(), polling).toBe(3);
  const texts = await steps.allTextContents();
  for (const words of ['Enqueued', rows[0]?.id ?? '?', traceparent, 'ann@example.com'])
    expect(texts[0]).toContain(words);
  for (const words of [
    'to be tried again',
    'http_status',
    '503',
    'the answer was busy',
    '1.2 s',
    first.relayId,
  ])
    expect(texts[1]).toContain(words);
  for (const words of [`${queue.name}: delivered`, '202', 'receipt-99', '7 ms', 'try 2'])
    expect(texts[2]).toContain(words);
  const answered = steps.nth(1).locator('pre');
  expect(await answered.isVisible()).toBe(false);
  await steps.nth(1).getByText('Response body').click();
  expect(await answered.textContent()).toContain('come back later');
  await steps.nth(2).getByText('Response body').click();
  expect(await steps.nth(2).locator('pre').textContent()).toBe('{"taken":true}');
  expect(await page.getByRole('button', { name: 'Retry now' }).count()).toBe(0);
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('link', { name: 'Download' }).click(),
  ]);
  expect(download.suggestedFilename()).toBe(`${id}.json`);
  expect(await readFile(await download.path(), 'utf8')).toBe('{"name": "x"}');
});

it('W5 a long payload is shown in part, with a notice', async () => {
  const queue = await makeQueue(db);
  const page = await show(await queue.enqueueOne({ payload: { big: 'x'.repeat(150_000) } }));
  await page.getByText(/The first 100.000 characters/).waitFor();
  await page.getByText('150.0 kB').or(page.getByText('150 kB')).first().waitFor();
});

it('W8 paused: the button resumes the destination', async () => {
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne();
  await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
  const page = await show(id);
  await page.getByText('The destination has been paused since').waitFor();
  await page.getByRole('button', { name: `Resume ${queue.name}` }).click();
  await page.getByText('The destination has been paused since').waitFor({ state: 'detached' });
  expect((await queue.claim()).ids).toEqual([id]);
});

it('W8 retrying: the next try is shown, and the button makes the message due now', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeRetrying(queue, 1);
  const page = await show(id);
  await page.getByText(/Try 2 of 10 is at/).waitFor();
  await page
    .locator('.journey .coming')
    .getByText(/in 59 min/)
    .waitFor();
  await page.getByRole('button', { name: 'Retry now' }).click();
  await page.getByText(/Try 2 of 10 is at/).waitFor({ state: 'detached' });
  expect((await queue.claim()).ids).toEqual([id]);
});

it('W8 scheduled: the button asks before it sends the message early', async () => {
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne({ delayMs: 3_600_000 });
  const page = await show(id);
  await page.getByRole('button', { name: 'Retry now' }).click();
  await page.getByRole('dialog').getByText('It is scheduled for').waitFor();
  expect((await queue.claim()).ids).toEqual([]);
  await answer(page, 'Send now');
  await page.locator('.explanations').getByText('It is scheduled').waitFor({ state: 'detached' });
  expect((await queue.claim()).ids).toEqual([id]);
});

it('W8 behind another message: the link leads to that message', async () => {
  const queue = await makeQueue(db);
  const [head = '', second = ''] = await queue.enqueue(2, { key: 'k' });
  const page = await show(second);
  await page.getByRole('link', { name: 'Go to the message it waits behind' }).click();
  await page.waitForURL((url) => url.hash === `#/messages/${head}`);
  await page.locator('.id').getByText(head).waitFor();
});

it.each(['Retry', 'Skip'])('W8 behind a dead letter: the button can %s it', async (verb) => {
  const queue = await makeQueue(db, { whenDead: 'block' });
  const [head = '', second = ''] = await makeBlocked(queue, `key of ${verb}`);
  const page = await show(second);
  await page.getByText('Its key is blocked by the dead letter').waitFor();
  await page.getByRole('button', { name: `${verb} the dead letter` }).click();
  await page.getByText('Its key is blocked by the dead letter').waitFor({ state: 'detached' });
  expect((await queue.claim()).ids[0]).toBe(verb === 'Retry' ? head : second);
});

it('W8 dead: the message is retried, or discarded after a question', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeDead(queue, 1, 'no');
  const page = await show(id);
  await page.getByText('refused for good').waitFor();
  await page.getByRole('button', { name: 'Retry now' }).click();
  await page.getByText('refused for good').waitFor({ state: 'detached' });
  expect(await queue.status(id)).toMatchObject({ status: 'pending' });
  await page.getByRole('button', { name: 'Cancel delivery' }).click();
  await answer(page, 'Cancel delivery');
  await page.getByText('An operator cancelled its delivery at').waitFor();
  expect(await queue.status(id)).toMatchObject({ status: 'discarded' });
  // a cancelled delivery cannot be restored, though the message had died before
  expect(await page.getByRole('button', { name: 'Undo discard' }).count()).toBe(0);
});

it('W8 parked: the discard of a message that was never tried can be undone', async () => {
  const queue = await makeQueue(db, { whenDead: 'park' });
  const [head = '', parked = ''] = await makeBlocked(queue, 'parked', 1);
  await db.query(`SELECT ${db.quoted}.discard_dead_letters(ids => $1)`, [[head, parked]]);
  const page = await show(parked);
  await page.getByRole('button', { name: 'Undo discard' }).click();
  await page.getByText('It has been dead since').waitFor();
  expect(await queue.status(parked)).toMatchObject({ status: 'dead' });
});

it('W5 an unknown message is reported in words', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages/01890000-0000-7000-8000-000000000000`, {
    expected: /404/,
  });
  await page.getByRole('alert').getByText('it was never committed').waitFor();
});

it('P13 invisible characters are shown as escapes on every screen, and downloaded unchanged', async () => {
  const queue = await makeQueue(db);
  const turned = '\u202egpj.exe\u2066\u009b';
  const shown = String.raw`\u202egpj.exe\u2066\u009b`;
  const payload = { name: turned };
  const id = await queue.enqueueOne({ key: turned, tenantId: turned, payload });
  await settle(db, await queue.claimOne(), [
    { id, outcome: 'reject', errorCode: 'bad', errorMessage: turned, response: turned },
  ]);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  for (const screen of [`messages/${id}`, 'messages', 'dead-letters']) {
    const page = await browser.open(`${url}/#/${screen}`);
    const body = page.locator('body');
    await expect.poll(() => body.textContent(), polling).toContain(shown);
    expect(await body.innerHTML()).not.toMatch(/[\u0080-\u009f\u202a-\u202e\u2066-\u2069]/);
  }
  const download = await fetch(`${url}/api/messages/${id}/payload`);
  expect(await download.json()).toEqual(payload);
});

it('P13 a tenant whose name is white space has a link that can be seen, and leads to it', async () => {
  const queue = await makeQueue(db);
  const ids: string[] = [];
  for (const tenantId of ['  ', '\t']) ids.push(await queue.enqueueOne({ tenantId }));
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(url);
  const expected = [
    ['␠␠', '++'],
    [String.raw`\u0009`, '%09'],
  ] as const;
  for (const [at, [shown, address]] of expected.entries()) {
    await page.goto(`${url}/#/messages/${ids[at] ?? ''}`);
    const link = page.getByRole('link', { name: shown, exact: true });
    await expect
      .poll(() => link.getAttribute('href'), polling)
      .toBe(`#/messages?tenantId=${address}`);
  }
});
