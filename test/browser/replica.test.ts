// Reading from a replica: the page says how old its data is, and operators see their own changes although the replica
// lags.

import { expect, it } from 'vitest';

import { polling, rowsOf, testBrowser } from '../support/browser.js';
import { makeQueue } from '../support/outbox.js';
import { openReplica, replicatedDatabase } from '../support/replication.js';
import { serveDatabase } from '../support/server.js';

const db = replicatedDatabase();
const browser = testBrowser();

it('W5 the page shows the age of its data, and an action is visible at once although the replica lags', async () => {
  const queue = await makeQueue(db);
  await db.caughtUp();
  const opened = await openReplica(db);
  const { url } = await serveDatabase(db, { authentication: 'none', ...opened });
  await db.pauseReplay();
  const page = await browser.open(`${url}/#/destinations`);
  await page.getByText(/^As of [\d.]+ s ago, from the replica\.$/).waitFor();
  const row = rowsOf(page, 'Destinations').filter({ hasText: queue.name });
  await row.getByRole('button', { name: 'Pause' }).click();
  await row.getByRole('button', { name: 'Resume' }).waitFor();
  // also after the page has refreshed by itself
  await page.reload();
  await row.getByRole('button', { name: 'Resume' }).waitFor();
  expect(await row.getByRole('button', { name: 'Pause' }).count()).toBe(0);
  await db.standby.stop('immediate');
  try {
    await expect.poll(() => opened.replica.status.usable, polling).toBe(false);
    await page.reload();
    await page.getByText(/^From the primary: the replica is not used: it cannot be read/).waitFor();
  } finally {
    await db.standby.restart();
  }
});
