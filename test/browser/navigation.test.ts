// Addresses of the page: odd ones, the scroll position after Back, and the title of the tab.

import { expect, it } from 'vitest';

import { expectLoaded, expectRows, polling, rowsOf, testBrowser } from '../support/browser.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

it('W5 an address that cannot be decoded shows an error and the menu', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages/%`, { expected: /40[04]/ });
  await page.getByRole('alert').waitFor();
  await page.getByRole('link', { name: 'Relays' }).click();
  await page.getByRole('heading', { name: 'Relays' }).waitFor();
});

it('W5 Back returns to the same place of a list; a new page begins at its top', async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(70);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages?topic=${queue.topic}`);
  await expectRows(page, 'Messages', 50);
  const place = (): Promise<number> => page.evaluate(() => Math.round(scrollY));
  await page.evaluate(() => scrollTo(0, 700));
  await expect.poll(place, polling).toBe(700);
  await rowsOf(page, 'Messages').nth(30).locator('a').click();
  await page.locator('.journey').waitFor();
  await expect.poll(place, polling).toBe(0);
  await page.goBack();
  await expectRows(page, 'Messages', 50);
  await expect.poll(place, polling).toBe(700);
  await page.getByRole('link', { name: 'Next page' }).click();
  await expectRows(page, 'Messages', 20);
  await expect.poll(place, polling).toBe(0);
});

it("W5 the tab of a message has the message's topic as its title", async () => {
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne();
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/messages/${id}`);
  await expect.poll(() => page.title(), polling).toBe(`${queue.topic} · Waybill`);
  await page.getByRole('link', { name: 'Keys' }).click();
  await expect.poll(() => page.title(), polling).toBe('Keys · Waybill');
});

it('W5 a filter that was typed and not entered does not bring the screen back', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/overview`);
  await page.getByRole('link', { name: 'Messages', exact: true }).click();
  await page.getByLabel('Tenant', { exact: true }).pressSequentially('acme');
  await page.goBack();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await expectLoaded(page);
  expect(new URL(page.url()).hash).toBe('#/overview');
});

it('W5 an address that names no screen says so, with a link to the first one', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/nope`);
  for (const address of ['nope', '%']) {
    await page.goto(`${url}/#/${address}`);
    await page.getByRole('heading', { name: 'No such screen' }).waitFor();
    await expect.poll(() => page.title(), polling).toBe('No such screen · Waybill');
    await page.getByRole('main').getByRole('link', { name: 'Overview' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
  }
});

it('W5 a filter by time of another value is rejected, with the values that it can have', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(url);
  for (const last of ['99999999999999', '-1', 'abc']) {
    await page.goto(`${url}/#/messages?last=${last}`);
    const problem = page.getByRole('alert');
    await problem.getByText(`Last is "${last}": give one of 15, 60, today, 1440, 10080.`).waitFor();
    expect(await problem.getByRole('button').count()).toBe(0);
  }
});

it('W5 a message id that is no UUID is rejected without a request', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(url);
  for (const [address, id] of [
    ['..', '..'],
    ['%20', ' '],
  ]) {
    await page.goto(`${url}/#/messages/${address}`);
    await page.getByRole('alert').getByText(`The message id is "${id}": give a UUID.`).waitFor();
  }
});

it('W5 an event with an empty topic is the list of events', async () => {
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/events?topic=`);
  await page.getByRole('heading', { name: 'Events', exact: true }).waitFor();
});
