// The operators' screen of endpoints, with a relay and a real receiver: problems first, search, filters, disable, and
// sending deliveries again.

import { expect, it } from 'vitest';

import { answer, expectRows, polling, rowsOf, testBrowser } from '../support/browser.js';
import {
  addEndpoint,
  endpointSettings,
  setKey,
  startEndpointRelay,
  startReceiver,
  testKey,
} from '../support/endpoints.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, untilEnded } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

it('W5 endpoints are listed with problems first, searched, filtered and disabled', async () => {
  setKey(testKey);
  const receiver = await startReceiver();
  receiver.status = 422;
  const failing = await addEndpoint(db, { url: receiver.url, tenantId: 'globex' });
  const off = await addEndpoint(db, { url: 'https://off.example.com/', tenantId: 'initech' });
  await db.query(`SELECT ${db.quoted}.set_endpoint_enabled($1, false, NULL, 'ada', 'moved')`, [
    off.name,
  ]);
  for (const n of [1, 2, 3])
    await addEndpoint(db, { url: `https://fine-${n}.example.com/`, tenantId: 'acme' });
  await startEndpointRelay(db, { endpoints: { ...endpointSettings, terminalCodes: [422] } });
  const id = await sendOne(db, { topic: 'order.paid', tenantId: 'globex' });
  await untilEnded(db, failing.name);
  const server = await serveDatabase(db, { config: { endpoints: endpointSettings } });
  const page = await browser.open(`${server.url}/#/endpoints`, {
    token: await server.token('operate'),
  });
  await expectRows(page, 'Endpoints', 5);
  const rows = rowsOf(page, 'Endpoints');
  const states = () => rows.locator('.status').allInnerTexts();
  expect(await states()).toEqual(['Failing', 'Disabled', 'Healthy', 'Healthy', 'Healthy']);
  await rows.nth(1).getByText('moved').waitFor();

  const names = () => rows.locator('small.not-in-card').allInnerTexts();
  const byName = (await names()).toSorted();
  const order = page.getByLabel('Order');
  await order.selectOption('name');
  await expect.poll(names, polling).toEqual(byName);
  await order.selectOption('most dead');
  await expect
    .poll(names, polling)
    .toEqual([failing.name, ...byName.filter((name) => name !== failing.name)]);
  await order.selectOption('problems first');
  await page.waitForURL((url) => !url.hash.includes('order'));

  const search = page.getByLabel('Beginning of name, address or tenant');
  for (const [text, count] of [
    ['https://fine-', 3],
    ['globex', 1],
    [off.name, 1],
    ['nothing', 0],
  ] as const) {
    await search.fill(text);
    await search.press('Enter');
    // two of them have one row
    await page.waitForURL((url) => url.hash.includes(encodeURIComponent(text)));
    await expectRows(page, 'Endpoints', count);
  }
  await page.goto(`${server.url}/#/endpoints?tenantId=acme`);
  await expectRows(page, 'Endpoints', 3);
  await rows.first().getByRole('button', { name: 'Disable' }).click();
  await expect.poll(states, polling).toEqual(['Disabled', 'Healthy', 'Healthy']);
  await page.goto(`${server.url}/#/endpoints?state=disabled`);
  await expectRows(page, 'Endpoints', 2);
  await page.goto(`${server.url}/#/endpoints?state=failing`);
  await expectRows(page, 'Endpoints', 1);

  // the failed delivery is sent again from the endpoint's own screen
  await rows.getByRole('link', { name: receiver.url }).click();
  receiver.status = 204;
  await rowsOf(page, 'Deliveries').getByRole('link', { name: 'order.paid' }).click();
  const dialog = page.getByRole('dialog', { name: 'order.paid' });
  const resend = dialog.getByRole('button', { name: 'Resend' });
  await resend.click();
  const question = page.getByRole('dialog', { name: 'Send this message again?' });
  expect(await question.textContent()).toContain(`order.paid ${id} to ${receiver.url}`);
  await page.keyboard.press('Escape');
  await question.waitFor({ state: 'detached' });
  // only the question was closed, and nothing was sent
  await dialog.getByRole('tab', { name: 'Responses (1)' }).waitFor();
  expect(receiver.ids).toEqual([id]);
  await resend.click();
  await answer(page, 'Send again');
  await dialog.getByText('Delivered').waitFor();
  expect(receiver.ids).toEqual([id, id]);
});

it('W5 a filter keeps what was typed when live data arrives', async () => {
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/#/endpoints`, {
    token: await server.token('read'),
  });
  const search = page.getByLabel('Beginning of name, address or tenant');
  await search.pressSequentially('glob');
  await page.waitForResponse((response) => response.url().includes('/api/endpoints'));
  await page.evaluate(() => new Promise((rendered) => requestAnimationFrame(rendered)));
  expect(await search.inputValue()).toBe('glob');
  await search.press('Enter');
  await expect.poll(() => page.url(), polling).toContain('search=glob');
});

it('P13 a read-only token sees endpoints and no action', async () => {
  const { name } = await addEndpoint(db, { url: 'https://reading.example.com/' });
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/#/endpoints?search=${name}`, {
    token: await server.token('read'),
  });
  await expectRows(page, 'Endpoints', 1);
  expect(await page.locator('.action').count()).toBe(0);
  await page.getByRole('link', { name: 'https://reading.example.com/' }).click();
  await page.getByText('Nothing has been sent here yet').waitFor();
  expect(await page.locator('.action').count()).toBe(0);
});
