// Reading from a replica: the page says how old its data is, and operators see their own changes although the replica
// lags.

import { randomUUID } from 'node:crypto';

import { expect, it } from 'vitest';

import { createTenantTokens } from '../../src/features/tokens/tenant-tokens.js';
import { answer, polling, rowsOf, testBrowser } from '../support/browser.js';
import { addEndpoint } from '../support/endpoints.js';
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

it('W5 a customer sees a change in the portal at once although the replica lags', async () => {
  // random, because a first try of this test leaves its endpoint behind
  const url = `https://example.com/${randomUUID()}`;
  await addEndpoint(db, { url, tenantId: 'acme' });
  const tokens = createTenantTokens({ schema: db.schema });
  const { token } = await tokens.add(db.pool, { tenantId: 'acme' });
  await db.caughtUp();
  const opened = await openReplica(db);
  const server = await serveDatabase(db, opened);
  await db.pauseReplay();
  const page = await browser.open(`${server.url}/portal#token=${token}`);
  await page.getByRole('link', { name: url }).click();
  await page.getByRole('button', { name: 'Disable' }).click();
  await answer(page, 'Disable');
  await page.getByText('This endpoint is disabled').waitFor();
  // the replica, which does not have the change, still answers other requests
  expect(opened.replica.status.usable).toBe(true);
});
