// The customer portal in a real Chromium, with a relay and real receivers: customers add endpoints, choose events, see
// the secret once, rotate it, send tests, look at deliveries and send them again.

import type { Page } from 'playwright-core';
import { expect, it } from 'vitest';

import { answer, expectNoDialog, polling, rowsOf, testBrowser } from '../support/browser.js';
import {
  addEndpoint,
  endpointSettings,
  startEndpointRelay,
  startReceiver,
} from '../support/endpoints.js';
import { only } from '../support/only.js';
import { servePortal } from '../support/portal.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, untilEnded } from '../support/relay.js';

const db = testDatabase();
const browser = testBrowser();

type Stored = { name: string; url: string; topics: string[]; secrets: number; enabled: boolean };

async function stored(tenantId: string): Promise<Stored[]> {
  const { rows } = await db.query<Stored>(
    `SELECT name, url, topics, cardinality(fingerprints) AS secrets, enabled
       FROM ${db.quoted}.endpoint_status WHERE tenant_id = $1 AND removed_at IS NULL`,
    [tenantId],
  );
  return rows;
}

const secretIn = (page: Page) => page.getByRole('dialog').getByLabel('Secret', { exact: true });

it('W2 W5 a customer adds an endpoint with chosen events, and sees its secret once', async () => {
  const portal = await servePortal(db, browser);
  const page = await portal.open('adding');
  await page.getByRole('heading', { name: 'Receive events at your own address' }).waitFor();
  await page.getByRole('link', { name: 'Add endpoint' }).click();
  await page.getByLabel('Address').fill('https://example.com/hooks');
  await page.getByLabel('Description').fill('Bookkeeping');
  await page.getByLabel('Only these').check();
  // descriptions and examples come from the typed events
  await page.getByText('The payment of an order has arrived.').waitFor();
  await page.getByText('customer.created').click();
  await page.getByText('order.*').click();
  expect(await page.getByRole('checkbox', { name: /order\.paid/ }).isDisabled()).toBe(true);
  await page.getByRole('button', { name: 'Add endpoint' }).click();
  const secret = await secretIn(page).inputValue();
  expect(secret).toMatch(/^whsec_/);
  const { name, ...endpoint } = only(await stored('adding'));
  expect(endpoint).toEqual({
    url: 'https://example.com/hooks',
    topics: ['customer.created', 'order.*'],
    secrets: 1,
    enabled: true,
  });
  await answer(page, 'I have stored it');
  await expectNoDialog(page);
  await page.reload();
  await page.getByRole('heading', { name: 'https://example.com/hooks' }).waitFor();
  await page.getByText(name, { exact: true }).last().waitFor();
  expect(await page.getByRole('dialog').count()).toBe(0);
  expect(await page.content()).not.toContain(secret);
});

it('W5 an address that is not allowed is refused beside its field, and what was written stays', async () => {
  const portal = await servePortal(db, browser);
  const page = await portal.open('refused', { place: 'add', expected: /400 \(Bad Request\)/ });
  await page.getByLabel('Address').fill('http://10.0.0.1/hooks');
  await page.getByRole('button', { name: 'Add endpoint' }).click();
  await page.getByRole('alert').getByText('10.0.0.1').waitFor();
  expect(await page.getByLabel('Address').getAttribute('aria-invalid')).toBe('true');
  expect(await page.getByLabel('Address').inputValue()).toBe('http://10.0.0.1/hooks');
  expect(await stored('refused')).toEqual([]);
});

it('W5 M13 a test event is delivered, and its request and response are shown without secrets', async () => {
  const receiver = await startReceiver();
  receiver.status = 200;
  const { name, secret } = await addEndpoint(db, {
    url: `${receiver.url}/hooks`,
    tenantId: 'testing',
    headers: { 'x-key': 'very-secret-value' },
  });
  await startEndpointRelay(db);
  const portal = await servePortal(db, browser);
  const page = await portal.open('testing', { place: `endpoints/${name}` });
  await page.getByRole('button', { name: 'Send test event' }).click();
  const dialog = page.getByRole('dialog', { name: 'waybill.test' });
  await dialog.getByText('Delivered').waitFor();
  await dialog.getByText('an answer').waitFor();
  await dialog.getByRole('tab', { name: 'Request' }).click();
  const request = dialog.locator('.request');
  await request.getByText('Computed from the message').waitFor();
  const { headers, body } = only(receiver.requests);
  expect(JSON.parse(await request.locator('pre').innerText())).toEqual(JSON.parse(body));
  const shown = Object.fromEntries(
    await Promise.all(
      (await request.locator('.headers > div').all()).map(
        async (row) =>
          [await row.locator('dt').innerText(), await row.locator('dd').innerText()] as const,
      ),
    ),
  );
  expect(shown).toEqual({
    'content-type': headers['content-type'],
    'webhook-id': headers['webhook-id'],
    'webhook-timestamp': expect.stringMatching(/^\d{10}$/) as string,
    'webhook-topic': 'waybill.test',
    'webhook-signature': 'v1,[hidden]',
    'user-agent': headers['user-agent'],
    'x-key': '[hidden]',
  });
  expect(headers['x-key']).toBe('very-secret-value');
  const content = await page.content();
  for (const hidden of [secret, 'very-secret-value', String(headers['webhook-signature'])])
    expect(content).not.toContain(hidden);
});

it('W5 a failed delivery shows why, and can be sent again', async () => {
  const receiver = await startReceiver();
  receiver.status = 422;
  const { name } = await addEndpoint(db, { url: receiver.url, tenantId: 'failing' });
  await startEndpointRelay(db, { endpoints: { ...endpointSettings, terminalCodes: [422] } });
  const id = await sendOne(db, { topic: 'order.paid', tenantId: 'failing', payload: { n: 1 } });
  await untilEnded(db, name);
  const portal = await servePortal(db, browser);
  const page = await portal.open('failing');
  // the list says that something is wrong
  await page.getByRole('list', { name: 'Endpoints' }).getByText('Failing').waitFor();
  await page.getByRole('link', { name: receiver.url }).click();
  await rowsOf(page, 'Deliveries').filter({ hasText: 'Failed' }).getByRole('link').click();
  const dialog = page.getByRole('dialog', { name: 'order.paid' });
  await dialog.getByText('422', { exact: true }).waitFor();
  receiver.status = 204;
  await dialog.getByRole('button', { name: 'Resend' }).click();
  await answer(page, 'Send again');
  await dialog.getByText('Delivered').waitFor();
  await dialog.getByRole('tab', { name: 'Responses (2)' }).waitFor();
  expect(receiver.ids).toEqual([id, id]);
  await dialog.getByRole('button', { name: 'Close' }).click();
  await rowsOf(page, 'Deliveries').filter({ hasText: 'Delivered' }).waitFor();
});

it('W5 M5 all deliveries since a time are sent again', async () => {
  const receiver = await startReceiver();
  const { name } = await addEndpoint(db, { url: receiver.url, tenantId: 'replaying' });
  await startEndpointRelay(db);
  const ids = [
    await sendOne(db, { topic: 'order.paid', tenantId: 'replaying' }),
    await sendOne(db, { topic: 'order.shipped', tenantId: 'replaying' }),
  ];
  await untilEnded(db, name);
  const portal = await servePortal(db, browser);
  const page = await portal.open('replaying', { place: `endpoints/${name}` });
  await page.getByRole('button', { name: 'Send again since…' }).click();
  await answer(page, 'Send again');
  await expectNoDialog(page);
  await expect.poll(() => receiver.ids.length, polling).toBe(4);
  expect(receiver.ids.slice(2).toSorted()).toEqual(ids.toSorted());
});

it('W2 W5 the secret is rotated, shown once, and the older one is retired', async () => {
  const { name, secret: first } = await addEndpoint(db, {
    url: 'https://example.com/rotating',
    tenantId: 'rotating',
  });
  const portal = await servePortal(db, browser);
  const page = await portal.open('rotating', { place: `endpoints/${name}` });
  await page.getByRole('button', { name: 'Rotate' }).click();
  await answer(page, 'Rotate');
  const second = await secretIn(page).inputValue();
  expect(second).toMatch(/^whsec_/);
  expect(second).not.toBe(first);
  await answer(page, 'I have stored it');
  const fingerprints = page.getByRole('list', { name: 'Fingerprints of the secrets' });
  await expect.poll(() => fingerprints.getByRole('listitem').count(), polling).toBe(2);
  expect(only(await stored('rotating')).secrets).toBe(2);
  await page.getByRole('button', { name: 'Retire 1 older' }).click();
  await answer(page, 'Retire');
  await expect.poll(() => fingerprints.getByRole('listitem').count(), polling).toBe(1);
  expect(await page.content()).not.toContain(second);
});

it('W5 an endpoint is changed, disabled, enabled and removed', async () => {
  const { name } = await addEndpoint(db, {
    url: 'https://example.com/before',
    tenantId: 'changing',
    topics: ['user.old', 'order.paid'],
  });
  const portal = await servePortal(db, browser);
  const page = await portal.open('changing', { place: `endpoints/${name}` });
  await page.getByRole('link', { name: 'Edit' }).click();
  await page.getByLabel('Address').fill('https://example.com/after');
  await page.getByText('order.shipped', { exact: true }).click();
  await page.getByRole('button', { name: 'Save' }).click();
  await page.getByRole('heading', { name: 'https://example.com/after' }).waitFor();
  // a topic that the list does not have is kept
  expect(only(await stored('changing')).topics.toSorted()).toEqual([
    'order.paid',
    'order.shipped',
    'user.old',
  ]);
  await page.getByRole('button', { name: 'Disable' }).click();
  await answer(page, 'Disable');
  await page.getByText('This endpoint is disabled').waitFor();
  expect(only(await stored('changing')).enabled).toBe(false);
  await page.getByRole('button', { name: 'Enable' }).click();
  await page.getByText('This endpoint is disabled').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: 'Remove' }).click();
  await answer(page, 'Remove');
  await page.getByRole('heading', { name: 'Receive events at your own address' }).waitFor();
  expect(await stored('changing')).toEqual([]);
});

it('W5 the events are listed with descriptions and examples, limited to the topics of the configuration', async () => {
  const portal = await servePortal(db, browser, { topics: ['order.*'] });
  const page = await portal.open('reading', { place: 'events' });
  const events = page.getByRole('list', { name: 'Events' });
  await events.getByText('An order has left the warehouse.').waitFor();
  expect(await events.getByRole('heading').allInnerTexts()).toEqual([
    'order.paid',
    'order.shipped',
  ]);
  await events.getByText('Example').first().click();
  expect(JSON.parse(await page.getByLabel('Example of order.paid').innerText())).toEqual({
    orderId: 'A-1042',
    amount: 129.5,
    currency: 'EUR',
  });
});
