// The customer portal in a frame of another page: refused by default and for other origins. The example of an embedding
// page (examples/portal) gives it tokens, also a new one when the last has ended.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { afterAll, expect, it, onTestFinished } from 'vitest';

import { polling, testBrowser } from '../support/browser.js';
import { addEndpoint } from '../support/endpoints.js';
import { servePortal } from '../support/portal.js';
import { testDatabase } from '../support/postgres.js';

const db = testDatabase();
const browser = testBrowser();
const expected = /401 \(Unauthorized\)|frame-ancestors/;

type Handler = (request: Request) => Promise<Response>;

/** The page of examples/portal, on a port of its own; the address of the portal is set later. */
async function startAccount(): Promise<{ port: number; show(portal: string): void }> {
  process.env['DATABASE_URL'] = db.url;
  const example = pathToFileURL(path.resolve('examples/portal/token-route.mjs')).href;
  const { POST, close } = (await import(example)) as { POST: Handler; close: () => Promise<void> };
  closeToken = close;
  let portal = '';
  const text = (file: string): string => readFileSync(`examples/portal/${file}`, 'utf8');
  const answer = async ({ method, url, headers }: IncomingMessage): Promise<Response> => {
    if (url === '/embed.mjs')
      return new Response(text('embed.mjs'), { headers: { 'content-type': 'text/javascript' } });
    if (url === '/webhook-token' && method === 'POST')
      return POST(
        new Request('http://127.0.0.1/', { headers: { cookie: headers.cookie ?? '' }, method }),
      );
    return new Response(text('page.html').replace('https://webhooks.example.com', portal), {
      headers: { 'content-type': 'text/html' },
    });
  };
  const server = createServer((request, response) => {
    void answer(request).then(async (made) => {
      response.writeHead(made.status, Object.fromEntries(made.headers));
      response.end(await made.text());
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  return { port, show: (address) => (portal = address) };
}

/** The pool of the example is shared by the tests of this file. */
let closeToken: (() => Promise<void>) | undefined;
afterAll(() => closeToken?.());

it('W5 P13 no page can show the portal in a frame by default, nor one that is not listed', async () => {
  const account = await startAccount();
  // `server.embeddedBy` is for the operators' page, and not for the portal
  for (const embeddedBy of [undefined, ['http://127.0.0.1:1']]) {
    const portal = await servePortal(db, browser, { ...(embeddedBy && { embeddedBy }) });
    account.show(portal.url);
    const page = await browser.open(`http://127.0.0.1:${account.port}/`, { expected });
    await expect.poll(() => page.frames()[1]?.url(), polling).toMatch(/^chrome-error:/);
  }
});

it('P13 an origin that may embed the portal may not embed the page of operators', async () => {
  const portal = await servePortal(db, browser, { embeddedBy: ['http://127.0.0.1:1'] });
  const policies = await Promise.all(
    ['/portal', '/', '/portal/none', '/portalx'].map(async (place) => {
      const { headers } = await fetch(portal.url + place);
      return /frame-ancestors ([^;]*)/.exec(headers.get('content-security-policy') ?? '')?.[1];
    }),
  );
  expect(policies).toEqual(['http://127.0.0.1:1', "'none'", "'none'", "'none'"]);
});

// another site than that of the portal, and the same one
it.each(['localhost', '127.0.0.1'])(
  'W2 W5 P13 a listed page at %s shows it, and gives it a new token when the last has ended',
  async (host) => {
    const tenantId = 'acme';
    // random, because a first try of this test leaves its endpoint behind
    const url = `https://${randomUUID()}.example.com/`;
    await addEndpoint(db, { url, tenantId });
    const account = await startAccount();
    const origin = `http://${host}:${account.port}`;
    const portal = await servePortal(db, browser, { embeddedBy: [origin] });
    account.show(portal.url);
    const page = await browser.open('about:blank', { expected });
    await page.context().addCookies([{ name: 'session', value: 'ada', url: origin }]);
    await page.goto(origin);
    const frame = page.frameLocator('iframe');
    await frame.getByRole('link', { name: url }).waitFor();
    await db.query(`UPDATE ${db.quoted}.tokens SET expires_at = clock_timestamp()`);
    // the customer notices nothing
    await frame.getByRole('link', { name: url }).click();
    await frame.getByRole('heading', { name: 'Signing secret' }).waitFor();
    await frame.getByRole('button', { name: 'Disable' }).click();
    await frame.getByRole('dialog').getByRole('button', { name: 'Disable' }).click();
    await frame.getByText('This endpoint is disabled').waitFor();
  },
);

it('P13 after a logout, the frame shows nothing of the customer before', async () => {
  const ofAcme = `of-acme-${randomUUID()}`;
  await addEndpoint(db, { url: `https://example.com/${ofAcme}`, tenantId: 'acme' });
  const account = await startAccount();
  const origin = `http://127.0.0.1:${account.port}`;
  const portal = await servePortal(db, browser, { embeddedBy: [origin] });
  account.show(portal.url);
  const page = await browser.open('about:blank', { expected });
  const logIn = (value: string) =>
    page.context().addCookies([{ name: 'session', value, url: origin }]);
  await logIn('ada');
  await page.goto(origin);
  const frame = page.frameLocator('iframe');
  await frame.getByText(ofAcme).waitFor();
  await logIn('bob');
  await page.reload();
  await frame.getByRole('heading', { name: 'Endpoints' }).waitFor();
  await expect.poll(() => frame.locator('main').textContent(), polling).not.toContain('Looking');
  expect(await frame.locator('main').textContent()).not.toContain('of-acme');
});

it('P13 a token from a window that is not the embedding page is ignored', async () => {
  await addEndpoint(db, { url: 'https://example.com/of-globex', tenantId: 'globex' });
  const portal = await servePortal(db, browser, { embeddedBy: ['https://app.example.com'] });
  const page = await portal.open('lonely');
  await page.getByRole('heading', { name: 'Endpoints' }).waitFor();
  const foreign = await portal.tokenOf('globex');
  // from itself, and from a page that opened it: neither is an embedding page of a listed origin
  await page.evaluate(
    (token) => window.postMessage({ type: 'waybill:token', token }, '*'),
    foreign,
  );
  const opener = await page.context().newPage();
  const address = `${portal.url}/portal#token=${await portal.tokenOf('lonely')}`;
  const [opened] = await Promise.all([
    opener.waitForEvent('popup'),
    opener.evaluate((given) => void Object.assign(window, { opened: window.open(given) }), address),
  ]);
  await opened.getByRole('heading', { name: 'Endpoints' }).waitFor();
  await opener.evaluate((token) => {
    const { opened: portalWindow } = window as unknown as { opened: Window };
    portalWindow.postMessage({ type: 'waybill:token', token }, '*');
  }, foreign);
  for (const each of [page, opened]) {
    // messages are handled in order, so the earlier one has been
    await each.evaluate(
      () =>
        new Promise((resolve) => {
          addEventListener('message', resolve, { once: true });
          window.postMessage('after it', '*');
        }),
    );
    expect(await each.evaluate(() => sessionStorage.getItem('waybill-portal-token'))).not.toBe(
      foreign,
    );
    await each.reload();
    await each.getByRole('heading', { name: 'Receive events at your own address' }).waitFor();
    expect(await each.content()).not.toContain('of-globex');
  }
});
