// Customer webhooks in Next.js, built and run: examples/nextjs-portal as a project of its own, with the packed package, a
// relay beside it, and the example's receiver. Only with `--mode full`: installing and building take minutes.

import path from 'node:path';

import { beforeAll, expect, inject, test } from 'vitest';

import { runProgram } from '../support/cli.js';
import { testKey } from '../support/endpoints.js';
import { freePort } from '../support/free-port.js';
import { testDatabase } from '../support/postgres.js';
import { waitFor } from '../support/wait.js';
import { installExample } from './installed-example.js';

const db = testDatabase();
const isFull = inject('isFull');
if (!isFull)
  console.warn('The portal in Next.js is left out: npm run test:full builds and runs it.');

beforeAll(async () => {
  await db.query(
    'CREATE TABLE orders (id serial PRIMARY KEY, tenant_id text NOT NULL, item text NOT NULL)',
  );
});

test.skipIf(!isFull)(
  'W2 W5 a customer adds an endpoint with a token of the app, and receives the event of an order',
  { timeout: 600_000 },
  async () => {
    const cwd = installExample('nextjs-portal', {
      next: '^16.4.6',
      pg: '^8.23.1',
      react: '^19.2.0',
      'react-dom': '^19.2.0',
      zod: '^4.6.7',
    });
    const environment = {
      DATABASE_URL: db.url,
      WAYBILL_SECRET_KEY: testKey,
      NEXT_TELEMETRY_DISABLED: '1',
    };
    const bin = (name: string): string => path.join(cwd, 'node_modules/.bin', name);
    const port = String(await freePort());
    const relayPort = String(await freePort());
    const built = await runProgram(bin('next'), ['build'], { cwd, environment }).ended(240_000);
    expect(built, built.stdout + built.stderr).toMatchObject({ code: 0 });
    const app = runProgram(bin('next'), ['start', '--port', port, '--hostname', '127.0.0.1'], {
      cwd,
      environment,
    });
    const relay = runProgram(bin('waybill'), ['start', '--port', relayPort], { cwd, environment });
    const portal = `http://127.0.0.1:${relayPort}`;
    const served = (): Promise<boolean> =>
      fetch(`${portal}/portal`).then(
        (r) => r.ok,
        () => false,
      );
    await waitFor(served, { what: 'the portal' });

    const ask = (route: string, body = {}): Promise<Response> =>
      fetch(`http://127.0.0.1:${port}/${route}`, {
        method: 'POST',
        headers: { cookie: 'user=ada', 'content-type': 'application/json' },
        body: JSON.stringify(body),
      });
    const token = await waitFor(
      () =>
        ask('webhook-token').then(
          async (response) => ((await response.json()) as { token: string }).token,
          () => undefined,
        ),
      { what: 'a token of the app' },
    );
    const receiverPort = String(await freePort());
    const added = await fetch(`${portal}/api/endpoints`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: JSON.stringify({
        url: `http://127.0.0.1:${receiverPort}/`,
        topics: ['order.created'],
      }),
    });
    expect(added.status).toBe(200);
    const { secret } = (await added.json()) as { secret: string };
    const receiver = runProgram(process.execPath, ['receiver.mjs'], {
      cwd,
      environment: { WEBHOOK_SECRET: secret, PORT: receiverPort },
    });
    await receiver.says('listening on');

    expect((await ask('api/orders', { item: 'Tea' })).status).toBe(201);
    await receiver.says('received order.created');
    for (const program of [receiver, relay, app]) {
      program.process.kill();
      await program.ended();
    }
  },
);
