// What the page says of the replica that it reads from, and that an operator sees what they did while it stands still.

import { expect, it } from 'vitest';

import { patient, rowsOf, testBrowser } from '../support/browser.js';
import { makeQueue } from '../support/outbox.js';
import { openReplica, replicatedDatabase } from '../support/replication.js';
import { serveDatabase } from '../support/server.js';

const db = replicatedDatabase();
const browser = testBrowser();

it('W5 the page says how old it is, and an action is seen at once also where the replica lags', async () => {
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
  // also when it asks again by itself
  await page.reload();
  await row.getByRole('button', { name: 'Resume' }).waitFor();
  expect(await row.getByRole('button', { name: 'Pause' }).count()).toBe(0);
  await db.standby.stop('immediate');
  try {
    await expect.poll(() => opened.replica.status.usable, patient).toBe(false);
    await page.reload();
    await page.getByText(/^From the primary: the replica is not used: it cannot be read/).waitFor();
  } finally {
    await db.standby.restart();
  }
});
