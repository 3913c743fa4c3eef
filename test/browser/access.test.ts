// Access to the page: login, logout, a login that expires, and what each kind of token shows.

import { expect, it } from 'vitest';

import { expectRows, rowsOf, testBrowser } from '../support/browser.js';
import { makeBlocked, makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();
// Chromium logs every refused response
const refused = /401 \(Unauthorized\)/;

it('P13 a wrong token is refused with a message, a right one logs in, and logging out ends the login', async () => {
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/#/destinations`, { expected: refused });
  await page.getByLabel('Token').fill('wbt_wrong');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('alert').getByText('This token is not valid').waitFor();
  await page.getByLabel('Token').fill(await server.token('operate'));
  await page.keyboard.press('Enter');
  // the page that the user wanted to open
  await page.getByRole('heading', { name: 'Destinations' }).waitFor();
  await page.reload();
  await page.getByRole('heading', { name: 'Destinations' }).waitFor();
  const [cookie] = await page.context().cookies();
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  const ask = server.with({ cookie: `${cookie?.name ?? ''}=${cookie?.value ?? ''}` });
  expect((await ask('GET', '/api/session')).status).toBe(401);
});

it('P13 the login screen is shown when the login expires, with the reason', async () => {
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/#/audit`, {
    expected: refused,
    token: await server.token('read'),
  });
  await page.getByRole('heading', { name: 'Audit' }).waitFor();
  await page.context().clearCookies();
  await page.getByRole('link', { name: 'Relays' }).click();
  await page.getByLabel('Token').waitFor();
  await page.getByText('Your login has ended').waitFor();
  await page.getByLabel('Token').fill(await server.token('read'));
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByLabel('Token').waitFor();
  expect(await page.getByText('Your login has ended').count()).toBe(0);
});

it('P13 a read-only token sees everything and no action', async () => {
  const queue = await makeQueue(db, { whenDead: 'block' });
  const [blocking = '', behind = ''] = await makeBlocked(queue, 'k');
  await makeDead(queue, 2, 'no');
  await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
  const server = await serveDatabase(db);
  const screens: [string, string][] = [
    ['messages', 'Messages'],
    ['dead-letters', 'Dead letters'],
    ['keys', 'Blocked keys'],
    ['destinations', 'Destinations'],
    [`messages/${blocking}`, ''],
    [`messages/${behind}`, ''],
  ];
  const actions = async (token: string): Promise<number[]> => {
    const page = await browser.open(server.url, { token });
    const counts: number[] = [];
    for (const [place, table] of screens) {
      await page.goto(`${server.url}/#/${place}`);
      await (table === '' ? page.locator('.explanations li') : rowsOf(page, table))
        .first()
        .waitFor();
      counts.push(await page.locator('.action, input[type=checkbox]').count());
    }
    return counts;
  };
  expect(await actions(await server.token('read'))).toEqual([0, 0, 0, 0, 0, 0]);
  for (const count of await actions(await server.token('operate')))
    expect(count).toBeGreaterThan(0);
});

it("P13 a token of one tenant sees only that tenant's messages", async () => {
  const queue = await makeQueue(db);
  await queue.enqueue(2, { tenantId: 'globex' });
  await queue.enqueue(3, { tenantId: 'initech' });
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/`, {
    token: await server.token('operate', 'globex'),
  });
  await expectRows(page, 'Messages', 2);
  const screens = page.getByRole('navigation', { name: 'Screens' }).getByRole('link');
  expect(await screens.allTextContents()).toEqual(['Messages', 'Live tail']);
});

it('P13 a token of one tenant is not offered to resume a destination, which serves other tenants too', async () => {
  const queue = await makeQueue(db);
  const [id] = await queue.enqueue(1, { tenantId: 'globex' });
  await db.query(`SELECT ${db.quoted}.set_paused($1, true)`, [queue.name]);
  const server = await serveDatabase(db);
  const offered = async (tenantId?: string) => {
    const page = await browser.open(`${server.url}/#/messages/${id}`, {
      token: await server.token('operate', tenantId),
    });
    await page.getByRole('button', { name: 'Cancel delivery' }).waitFor();
    return page.getByRole('button', { name: `Resume ${queue.name}` }).count();
  };
  expect(await offered()).toBe(1);
  expect(await offered('globex')).toBe(0);
});

it('P13 a page that is opened during an outage shows it, and loads by itself when it is over', async () => {
  const server = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open('about:blank', { expected: /503|ERR_FAILED/ });
  const failures = [503, 0];
  await page.route('**/api/session', (route) => {
    const status = failures.shift();
    if (status === undefined) return route.continue();
    if (status === 0) return route.abort();
    return route.fulfill({ status, json: { error: 'the database does not answer: try again' } });
  });
  await page.goto(`${server.url}/#/relays`);
  await page.getByRole('alert').getByText('The database does not answer').waitFor();
  await page.getByRole('alert').getByText('The server cannot be reached').waitFor();
  await page.getByRole('heading', { name: 'Relays' }).waitFor();
});

it('P13 a screen that a token of one tenant may not see names those that it may', async () => {
  const server = await serveDatabase(db);
  const page = await browser.open(`${server.url}/#/messages`, {
    token: await server.token('read', 'globex'),
  });
  for (const address of ['destinations/dead1', 'reports/tenants']) {
    await page.goto(`${server.url}/#/${address}`);
    await page.getByText('This token sees Messages and Live tail only.').waitFor();
    await page.getByRole('main').getByRole('link', { name: 'Messages' }).click();
    await page.getByRole('heading', { name: 'Messages' }).waitFor();
  }
});
