// The example of a backend with Express makes a token of the portal for the customer who is logged in, and for nobody
// else.

import { createServer } from 'node:http';
import type { RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { expect, onTestFinished, test } from 'vitest';

import { testDatabase } from '../support/postgres.js';
import { serveDatabase } from '../support/server.js';
import { librariesMissing } from './installed.js';

const db = testDatabase();

test.skipIf(librariesMissing() !== null)('W2 P13 with Express', async () => {
  process.env['DATABASE_URL'] = db.url;
  const example = pathToFileURL(
    path.resolve('test/adapters/generated/examples/portal/express.mjs'),
  ).href;
  const { app, close } = (await import(example)) as {
    app: RequestListener;
    close: () => Promise<void>;
  };
  onTestFinished(close);
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const asked = (cookie: string) =>
    fetch(`http://127.0.0.1:${port}/webhook-token`, { method: 'POST', headers: { cookie } });
  expect((await asked('session=nobody')).status).toBe(401);
  const { token } = (await (await asked('session=ada')).json()) as { token: string };
  const ask = (await serveDatabase(db)).with({ authorization: `Bearer ${token}` });
  expect((await ask('GET', '/api/session')).body).toMatchObject({
    tenantId: 'acme',
    scope: 'operate',
    forEndpoints: true,
  });
});
