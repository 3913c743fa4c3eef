// The screen of one destination, the list with its filters, and the request of a try in a browser.

import { text } from 'node:stream/consumers';

import { expect, it } from 'vitest';

import { webhook } from '../../src/destinations/webhook/webhook.js';
import { answer, expectNoDialog, expectRows, polling, testBrowser } from '../support/browser.js';
import { makeDead, makeRetrying } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { configOf, sendOne, startRelay, untilEnded } from '../support/relay.js';
import { loopback, serve } from '../support/relay-partner.js';
import { serveDatabase } from '../support/server.js';
import { accessibilityProblems } from './accessibility.js';

const db = testDatabase();
const browser = testBrowser();

it('W5 a destination shows its address, state, errors, times and settings, and is paused and resumed', async () => {
  const { url } = await serve((request, response) => {
    void text(request).then((body) =>
      response.writeHead(body.includes('bad') ? 422 : 200).end('{"said": "hello"}'),
    );
  });
  const destinations = {
    crm: webhook({
      url: new URL('/hooks/waybill?key=geheim', url).href,
      allowedNetworks: loopback,
      terminalCodes: [422],
      rate: { perSecond: 100 },
      breaker: { failures: 40, failureRate: 0.07 },
    }),
  };
  await startRelay(db, { application: 'shop', destinations });
  await sendOne(db, { topic: 'crm', payload: { good: true } });
  const bad = await sendOne(db, { topic: 'crm', payload: { bad: true } });
  await untilEnded(db, 'crm');
  const server = await serveDatabase(db, {
    authentication: 'none',
    config: configOf(db, { destinations }),
  });
  const page = await browser.open(`${server.url}/#/overview`);
  await page.locator('.list-panel.destinations').getByRole('link', { name: 'crm' }).click();
  // the pointer would hold the updates if it was on the table now
  await page.getByRole('heading', { name: 'crm', exact: true }).hover();
  const main = page.getByRole('main');
  await expect
    .poll(() => page.locator('.address').textContent(), polling)
    .toContain(`${new URL(url).origin}/hooks/waybill?key=[hidden]`);
  // the first counts of the relay arrive after some seconds
  await expect
    .poll(() => page.getByRole('table', { name: 'Errors' }).locator('tbody').textContent(), {
      ...polling,
      timeout: 60_000,
    })
    .toContain('http_status');
  const shown = (await main.textContent()) ?? '';
  const facts = ['1 dead letter', '422', 'shop', '100/s', 'in a row, or 7.0 %'];
  for (const words of [...facts, 'Time to delivery', 'p99']) expect(shown).toContain(words);
  const errors = page.getByRole('region', { name: 'Errors' });
  await errors.getByText(/of the newest 2 tries in 24 hours, since \d\d:\d\d:\d\d/).waitFor();
  expect(await errors.locator('td[data-label=First] time').getAttribute('dateTime')).toBe(
    await errors.locator('td[data-label=Last] time').getAttribute('dateTime'),
  );
  // the errors are as old as the sample, and may be older
  await page.route('**/api/destinations/crm', async (route) => {
    const response = await route.fetch();
    const detail = (await response.json()) as {
      sample: { from: string; errors: { firstAt: string; lastAt: string }[] };
    };
    const [error] = detail.sample.errors;
    if (error !== undefined) detail.sample.from = error.firstAt;
    await route.fulfill({ response, json: detail });
  });
  const first = errors.locator('td[data-label=First] time');
  await expect.poll(() => first.textContent(), polling).toMatch(/^≤ \d\d:\d\d:\d\d$/);
  expect(await first.getAttribute('title')).toContain('began then, or earlier');
  // a dead letter that is older than the sample
  await db.query(`UPDATE ${db.quoted}.dead_letters SET dead_at = now() - interval '3 days'`);
  await expect.poll(() => first.getAttribute('title'), polling).toContain('oldest dead letter');
  expect(Date.parse((await first.getAttribute('dateTime')) ?? '')).toBeLessThan(
    Date.now() - 2 * 86_400_000,
  );
  await page.unroute('**/api/destinations/crm');
  expect(shown).not.toContain('geheim');
  expect(await page.locator('h1 .dot').getAttribute('class')).toBe('dot warn');
  expect(await accessibilityProblems(page)).toEqual([]);
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('button', { name: 'Resume' }).click();
  await page.getByRole('button', { name: 'Pause' }).waitFor();

  await page.getByRole('link', { name: 'its message', exact: true }).click();
  await page.getByRole('button', { name: 'Request' }).click();
  const dialog = page.locator('dialog[open]');
  await dialog.getByText('POST').waitFor();
  const request = (await dialog.textContent()) ?? '';
  for (const words of [
    '/hooks/waybill?key=[hidden]',
    'webhook-id',
    bad,
    '"bad": true',
    '"said": "hello"',
  ])
    expect(request).toContain(words);
  expect(request).not.toContain('geheim');
  expect(await accessibilityProblems(page)).toEqual([]);
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await dialog.getByRole('button', { name: 'Copy as cURL' }).click();
  const copied = () => page.evaluate(() => navigator.clipboard.readText());
  await expect.poll(copied, polling).toMatch(/^curl --globoff --request POST 'http:/);
  await answer(page, 'Resend');
  const question = page.getByRole('dialog', { name: 'Send this message again?' });
  expect(await question.textContent()).toContain(`crm ${bad} to crm`);
  await answer(page, 'Not now');
  await expectNoDialog(page);
  expect(await page.locator('.journey > li').count()).toBe(2);
  await page.getByRole('button', { name: 'Request' }).click();
  await answer(page, 'Resend');
  await answer(page, 'Send again');
  await expectNoDialog(page);
  await page.getByRole('status').getByText('Sent again to crm').waitFor();
  // who sent it again, and the new try
  await expect.poll(() => page.locator('.journey > li').count(), polling).toBe(4);
  await page.locator('.journey > li', { hasText: 'retried by api:local' }).waitFor();
});

it('W5 a server without the configuration says that it cannot show a request', async () => {
  const queue = await makeQueue(db);
  const [id = ''] = await makeDead(queue, 1, 'broken');
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages/${id}`);
  await page.getByRole('button', { name: 'Request' }).click();
  await page.getByText('The request cannot be shown.').waitFor();
  await page.getByText('open the page of a relay that serves it').waitFor();
});

it('W5 the list of destinations is searched and filtered, and retries are made due from the screen of one', async () => {
  const [one, other] = [await makeQueue(db), await makeQueue(db)];
  await makeDead(one, 1, 'broken');
  await makeRetrying(other, 2);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/destinations?problem=dead&search=${one.name}`);
  await expectRows(page, 'Destinations', 1);
  await page.getByRole('link', { name: /Clear/ }).click();
  await page.getByLabel('Text in the name').fill(other.name);
  await page.keyboard.press('Enter');
  await expectRows(page, 'Destinations', 1);
  await page.getByRole('link', { name: other.name, exact: true }).click();
  const retry = page.getByRole('button', { name: 'Retry failed' });
  const place = await retry.boundingBox();
  await retry.click();
  await answer(page, 'Retry now');
  await expectNoDialog(page);
  await page.getByText('2 deliveries made due.').waitFor();
  expect((await other.claim()).ids).toHaveLength(2);
  // nothing is left to retry: the buttons stay where they were
  await expect.poll(() => retry.getAttribute('aria-disabled'), polling).toBe('true');
  expect(await retry.getAttribute('title')).toBe('No delivery waits for a retry');
  expect(await retry.boundingBox()).toEqual(place);
});

it('P13 a user who may only read sees the destination, and no buttons', async () => {
  const queue = await makeQueue(db);
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/#/destinations/${queue.name}`, {
    token: await server.token('read'),
  });
  await page.getByRole('heading', { name: queue.name }).waitFor();
  await page.getByText('All its messages').waitFor();
  for (const name of ['Pause', 'Send a test', 'Retry failed'])
    expect([name, await page.getByRole('button', { name }).count()]).toEqual([name, 0]);
});
