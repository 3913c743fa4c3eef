// Texts of messages that look like HTML: the page shows them as text on every screen that has them.

import { expect, it } from 'vitest';

import { testBrowser } from '../support/browser.js';
import { makeQueue } from '../support/outbox.js';
import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { settle } from '../support/settling.js';

const db = testDatabase();
const browser = testBrowser();

it('W5 W8 HTML in a tenant, key, payload, error code and error is shown as text', async () => {
  const hostile = (name: string) => `<img src=x alt=hostile onerror="document.title='${name}'">`;
  const queue = await makeQueue(db);
  const id = await queue.enqueueOne({
    tenantId: hostile('tenant'),
    key: hostile('key'),
    payload: { text: hostile('payload') },
  });
  await settle(db, await queue.claim(), [
    { id, outcome: 'reject', errorCode: hostile('code'), errorMessage: hostile('error') },
  ]);
  const server = await serveDatabase(db, { authentication: 'none' });
  const page = await browser.open(`${server.url}/#/messages`);
  for (const [screen, text] of [
    ['messages', 'tenant'],
    ['dead-letters', 'code'],
    [`messages/${id}`, 'error'],
    [`messages/${id}`, 'payload'],
  ] as const) {
    await page.goto(`${server.url}/#/${screen}`);
    await page
      .getByText(`document.title='${text}'`)
      .or(page.getByText(`document.title=\\"${text}`))
      .first()
      .waitFor({ state: 'attached' });
    expect(await page.locator('img[alt=hostile]').count()).toBe(0);
  }
});
