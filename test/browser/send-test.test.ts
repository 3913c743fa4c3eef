// Sends a test message from the page, through a real relay.

import { expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { rowsOf, testBrowser } from '../support/browser.js';
import { testDatabase } from '../support/postgres.js';
import { startRelay } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

it('M13 W5 a test message is sent to a destination, and its journey is shown', async () => {
  const taken: unknown[] = [];
  const name = 'tested';
  await startRelay(db, {
    destinations: { [name]: handler((message) => void taken.push(message.payload)) },
  });
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${url}/#/destinations`);
  const row = rowsOf(page, 'Destinations').filter({
    has: page.getByRole('link', { name, exact: true }),
  });
  await row.getByRole('button', { name: 'Send a test' }).click();
  await page.waitForURL(/#\/messages\/[0-9a-f-]{36}$/);
  await page.locator('.journey').getByText(`${name}: delivered`).waitFor();
  expect(taken).toEqual([{ test: true, destination: name }]);
  const { rows } = await db.query<{ actor: string }>(
    `SELECT actor FROM ${db.quoted}.operator_actions WHERE action = 'send_test'`,
  );
  expect(rows).toEqual([{ actor: 'api:local' }]);
});
