// Who sees what in the customer portal: a tenant never sees what belongs to another, a token is taken out of the address,
// ends with a plain message, and with the scope read changes nothing.

import { expect, it } from 'vitest';

import { polling, rowsOf, testBrowser } from '../support/browser.js';
import { addEndpoint, startEndpointRelay, startReceiver } from '../support/endpoints.js';
import { servePortal } from '../support/portal.js';
import { testDatabase } from '../support/postgres.js';
import { sendOne, untilEnded } from '../support/relay.js';

const db = testDatabase();
const browser = testBrowser();

it('W2 P13 a tenant never sees what belongs to another, whatever is written into the address', async () => {
  const receiver = await startReceiver();
  const own = await addEndpoint(db, { url: `${receiver.url}/acme`, tenantId: 'acme' });
  const foreign = await addEndpoint(db, { url: `${receiver.url}/globex`, tenantId: 'globex' });
  const shared = await addEndpoint(db, { url: `${receiver.url}/all`, tenantId: null });
  await startEndpointRelay(db);
  const message = { topic: 'order.paid', payload: { customer: 'globex-customer' } };
  const theirs = await sendOne(db, { ...message, tenantId: 'globex' });
  await untilEnded(db, foreign.name);
  await untilEnded(db, shared.name);
  const portal = await servePortal(db, browser);
  const page = await portal.open('acme', { expected: /404 \(Not Found\)/ });
  const list = page.getByRole('list', { name: 'Endpoints' });
  await list.getByRole('link', { name: `${receiver.url}/acme` }).waitFor();
  expect(await list.getByRole('listitem').count()).toBe(1);
  const seen: string[] = [await page.content()];

  for (const { name } of [foreign, shared])
    for (const rest of ['', `?delivery=${theirs}`, '/change']) {
      await page.goto(`${portal.url}/portal#/endpoints/${name}${rest}`);
      await page.getByText(/There is no such endpoint|there is no endpoint/i).waitFor();
      seen.push(await page.content());
    }
  // their message under an endpoint of one's own
  await page.goto(`${portal.url}/portal#/endpoints/${own.name}?delivery=${theirs}`);
  await page.getByRole('dialog').getByText(`There is no message ${theirs}`).waitFor();
  seen.push(await page.content());
  for (const content of seen) {
    expect(content).not.toContain(`${receiver.url}/globex`);
    expect(content).not.toContain(`${receiver.url}/all`);
    expect(content).not.toContain('globex-customer');
  }

  // the same token, without the portal
  const ask = portal.with({ authorization: `Bearer ${await portal.tokenOf('acme')}` });
  for (const { name } of [foreign, shared])
    for (const [method, rest] of [
      ['GET', ''],
      ['PATCH', ''],
      ['DELETE', ''],
      ['GET', '/messages'],
      ['GET', `/messages/${theirs}`],
      ['POST', `/messages/${theirs}/resend`],
      ['GET', '/statistics'],
      ['POST', '/rotate'],
      ['POST', '/retire'],
      ['POST', '/enable'],
      ['POST', '/disable'],
      ['POST', '/test'],
    ] as const) {
      const body = method === 'GET' ? undefined : method === 'PATCH' ? { description: 'x' } : {};
      const asked = await ask(method, `/api/endpoints/${name}${rest}`, body);
      expect([method, rest, asked.status]).toEqual([method, rest, 404]);
    }
  const under = await ask('GET', `/api/endpoints/${own.name}/messages/${theirs}`);
  expect(under.status).toBe(404);
  expect((await ask('GET', '/api/endpoints?tenantId=globex')).status).toBe(403);
  expect((await ask('GET', '/api/endpoints')).body).toMatchObject({
    endpoints: [{ name: own.name }],
  });
  expect((await ask('GET', '/api/messages')).status).toBe(403);
});

it('P13 the portal never acts for an operator who is logged in with the same browser', async () => {
  await addEndpoint(db, { url: 'https://example.com/secret-of-others', tenantId: 'other' });
  const portal = await servePortal(db, browser);
  const page = await browser.open(`${portal.url}/portal`, {
    token: await portal.token('admin'),
    expected: /401 \(Unauthorized\)/,
  });
  await page.getByRole('heading', { name: 'Your session has ended' }).waitFor();
  // nor with a token that is not limited to a tenant
  await page.goto(`${portal.url}/portal#token=${await portal.token('admin')}`);
  await page.getByText('This address is for customers').waitFor();
  expect(await page.content()).not.toContain('secret-of-others');
});

it('P13 the token leaves the address at once, survives a reload, and ends with a plain message', async () => {
  const { name } = await addEndpoint(db, { url: 'https://example.com/', tenantId: 'ending' });
  const portal = await servePortal(db, browser);
  const requests: string[] = [];
  const page = await portal.open('ending', { expected: /401 \(Unauthorized\)/ });
  page.on('request', (request) => requests.push(request.url()));
  await page.getByRole('link', { name: 'https://example.com/' }).waitFor();
  expect(page.url()).toBe(`${portal.url}/portal#/`);
  await page.reload();
  await page.getByRole('link', { name: 'https://example.com/' }).waitFor();
  expect(requests.filter((url) => url.includes('wbe_'))).toEqual([]);
  expect(await page.context().cookies()).toEqual([]);
  // another tab has no token
  const other = await page.context().newPage();
  await other.goto(`${portal.url}/portal#/endpoints/${name}`);
  await other.getByRole('heading', { name: 'Your session has ended' }).waitFor();
  await db.query(
    `UPDATE ${db.quoted}.tokens SET expires_at = clock_timestamp() WHERE tenant_id = 'ending'`,
  );
  await page.getByRole('link', { name: 'https://example.com/' }).click();
  await page.getByRole('heading', { name: 'Your session has ended' }).waitFor();
  expect(await page.content()).not.toContain('https://example.com/');
});

it('P13 a token with the scope read sees everything and can change nothing', async () => {
  const { name } = await addEndpoint(db, { url: 'https://example.com/', tenantId: 'reader' });
  const portal = await servePortal(db, browser);
  const token = await portal.tokenOf('reader', { scope: 'read' });
  const page = await browser.open(`${portal.url}/portal#token=${token}`);
  await page.getByRole('link', { name: 'https://example.com/' }).click();
  await page.getByRole('heading', { name: 'Signing secret' }).waitFor();
  await expect.poll(() => rowsOf(page, 'Deliveries').count(), polling).toBe(0);
  for (const action of ['Send test event', 'Edit', 'Disable', 'Remove', 'Rotate'])
    expect([action, await page.getByText(action, { exact: true }).count()]).toEqual([action, 0]);
  expect(page.url()).toContain(name);
});
