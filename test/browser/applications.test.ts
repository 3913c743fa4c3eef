// The page shows which application and version declares a destination.

import { expect, it } from 'vitest';

import { handler } from '../../src/destinations/handler.js';
import { rowsOf, testBrowser } from '../support/browser.js';
import { testDatabase } from '../support/postgres.js';
import { startRelay } from '../support/relay.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();

it('W5 M2 destinations and relays are shown with their applications and versions', async () => {
  const shop = (version: string) => ({
    application: 'shop',
    version,
    destinations: { orders: handler(() => undefined) },
    relay: { name: `shop-${version}` },
  });
  const gone = await startRelay(db, shop('1.3'));
  await startRelay(db, shop('1.4'));
  await startRelay(db, shop('1.5'));
  await gone.stop();
  await startRelay(db, { application: 'billing', destinations: { bills: handler(() => {}) } });
  await db.query(`SELECT ${db.quoted}.define_destination('worker')`);
  const { url } = await serveDatabase(db, { authentication: 'none' });
  const destinations = await browser.open(`${url}/#/destinations`);
  const row = (name: string) => rowsOf(destinations, 'Destinations').filter({ hasText: name });
  await row('orders').getByText('shop 1.4 and 1.5').waitFor();
  await row('worker').getByText('defined in SQL').waitFor();
  const relays = await browser.open(`${url}/#/relays`);
  await rowsOf(relays, 'Relays').filter({ hasText: 'shop-1.4' }).getByText('shop 1.4').waitFor();
  // each application has its own configuration
  expect(await relays.getByText('run with different configurations').count()).toBe(0);
  await startRelay(db, {
    application: 'billing',
    destinations: { bills: handler(() => {}), reminders: handler(() => {}) },
  });
  await relays.getByText('Living relays of billing run with different configurations.').waitFor();
  expect(await relays.getByText('run with different configurations').count()).toBe(1);
});
