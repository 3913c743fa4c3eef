// The page in a frame of another page, as the WordPress plugin of examples/registrations shows it: refused by default;
// with `server.embeddedBy`, it works within one site, and says why it does not across sites.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

import { expect, it, onTestFinished } from 'vitest';

import { polling, testBrowser } from '../support/browser.js';
import { makeDead } from '../support/letters.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';

const db = testDatabase();
const browser = testBrowser();
// Chromium logs refused responses, refused frames, and that it does not move the focus into a frame
const expected = /401 \(Unauthorized\)|frame-ancestors|autofocusing/;

/** A page with a frame; the address is set later, because each of the two needs the other's. */
async function startEmbedder() {
  let framed = '';
  const server = createServer((_, response) => {
    response.setHeader('content-type', 'text/html');
    response.end(
      `<!doctype html><link rel="icon" href="data:,"><iframe src="${framed}" width="1200" height="800"></iframe>`,
    );
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { port, show: (address: string) => (framed = address) };
}

it('W5 P13 no page can show it in a frame by default', async () => {
  const embedder = await startEmbedder();
  const server = await serveDatabase(db);
  embedder.show(`${server.url}/#/messages`);
  const page = await browser.open(`http://127.0.0.1:${embedder.port}/`, { expected });
  await expect.poll(() => page.frames()[1]?.url(), polling).toMatch(/^chrome-error:/);
  // nor can one that is not named
  const other = await serveDatabase(db, { embeddedBy: ['http://127.0.0.1:1'] });
  embedder.show(`${other.url}/#/messages`);
  await page.reload();
  await expect.poll(() => page.frames()[1]?.url(), polling).toMatch(/^chrome-error:/);
});

it('W5 P13 in a frame of the same site, a user logs in, sees the messages and acts', async () => {
  const queue = await makeQueue(db);
  await makeDead(queue, 1, 'no');
  const embedder = await startEmbedder();
  const origin = `http://127.0.0.1:${embedder.port}`;
  const server = await serveDatabase(db, { embeddedBy: [origin] });
  embedder.show(`${server.url}/#/messages`);
  const page = await browser.open(`${origin}/`, { expected });
  const frame = page.frameLocator('iframe');
  await frame.getByLabel('Token').fill(await server.token('operate'));
  await frame.getByRole('button', { name: 'Log in' }).click();
  await frame.getByRole('table', { name: 'Messages', exact: true }).locator('tbody tr').waitFor();
  // the login is kept, and a change is accepted
  await page.reload();
  await frame.getByRole('link', { name: 'Destinations' }).click();
  const destinations = frame.getByRole('table', { name: 'Destinations', exact: true });
  await destinations.getByRole('button', { name: 'Pause' }).click();
  await expect
    .poll(async () => {
      const { rows } = await db.query<{ paused: boolean }>(
        `SELECT paused_at IS NOT NULL AS paused FROM ${db.quoted}.destinations WHERE name = $1`,
        [queue.name],
      );
      return rows[0]?.paused;
    }, polling)
    .toBe(true);
});

it('P13 in a frame of another site the browser keeps no login, and the page says so', async () => {
  const embedder = await startEmbedder();
  // another site than 127.0.0.1
  const origin = `http://localhost:${embedder.port}`;
  const server = await serveDatabase(db, { embeddedBy: [origin] });
  embedder.show(`${server.url}/#/messages`);
  const page = await browser.open(`${origin}/`, { expected });
  const frame = page.frameLocator('iframe');
  await frame.getByLabel('Token').fill(await server.token('operate'));
  await frame.getByRole('button', { name: 'Log in' }).click();
  await frame.getByRole('alert').getByText('did not keep the login').waitFor();
});
