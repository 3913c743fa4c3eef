// Receivers of signed webhooks in real frameworks and runtimes: each example accepts what webhook() signs, and refuses a
// changed body.

import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

import { Webhook } from 'standardwebhooks';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';

import { runProgram } from '../support/cli.js';
import { freePort } from '../support/free-port.js';
import { librariesMissing } from './installed.js';
import { denoFlags, programOf } from './runtime-programs.js';
import { serveWorker } from './workerd.js';

const secret = `whsec_${randomBytes(32).toString('base64')}`;
const example = (name: string): string =>
  path.resolve('test/adapters/generated/examples/receivers', name);

/** The answers to a genuine request, and to one whose body was changed on the way. */
async function statuses(url: string): Promise<number[]> {
  const [id, at, body] = ['evt_1', new Date(), '{"n": 1}'];
  const headers = {
    'content-type': 'application/json',
    'webhook-id': id,
    'webhook-topic': 'user.registered',
    'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
    'webhook-signature': new Webhook(secret).sign(id, at, body),
  };
  const send = async (text: string) =>
    (await fetch(url, { method: 'POST', headers, body: text })).status;
  return [await send(body), await send('{"n": 2}')];
}

function watchLog(): ReturnType<typeof vi.spyOn> {
  const log = vi.spyOn(console, 'log').mockImplementation(() => {});
  onTestFinished(() => log.mockRestore());
  return log;
}

describe.skipIf(librariesMissing() !== null)('a receiver', () => {
  beforeAll(() => {
    process.env['WEBHOOK_SECRET'] = secret;
  });

  test('M11 with Express', async () => {
    const { app } = (await import(example('express.mjs'))) as {
      app: Parameters<typeof createServer>[1];
    };
    const server = createServer(app as never);
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void server.close());
    const log = watchLog();
    const { port } = server.address() as AddressInfo;
    expect(await statuses(`http://127.0.0.1:${port}/webhooks`)).toEqual([204, 401]);
    expect(log.mock.calls).toEqual([['user.registered', 'evt_1', '{"n": 1}']]);
  });

  test('M11 with Fastify, whose other routes still parse JSON', async () => {
    const { app } = (await import(example('fastify.mjs'))) as {
      app: {
        post(url: string, handler: (request: { body: unknown }) => unknown): void;
        listen(options: { port: number }): Promise<string>;
        close(): Promise<void>;
      };
    };
    app.post('/other', ({ body }) => body);
    const url = await app.listen({ port: 0 });
    onTestFinished(() => app.close());
    const log = watchLog();
    expect(await statuses(`${url}/webhooks`)).toEqual([204, 401]);
    expect(log.mock.calls).toEqual([['user.registered', 'evt_1', '{"n": 1}']]);
    const other = await fetch(`${url}/other`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: '{"a":1}',
    });
    expect(await other.json()).toEqual({ a: 1 });
  });

  const runtimes = [
    { name: 'Deno', program: programOf('@deno', 'deno'), flags: denoFlags },
    { name: 'Bun', program: programOf('@oven', 'bin', 'bun'), flags: ['--no-install'] },
  ];
  test.each(runtimes)('M11 in $name', async ({ name, program, flags }) => {
    if (program === undefined) {
      console.warn(`The receiver in ${name} is left out: it has no package for this platform.`);
      return;
    }
    const port = await freePort();
    const script = path.resolve('test/adapters/serve-receiver.mjs');
    const module = pathToFileURL(example('nextjs.ts')).href;
    const running = runProgram(program, [...flags, script, module, String(port)], {
      environment: { WEBHOOK_SECRET: secret },
    });
    await running.says('serving');
    expect(await statuses(`http://127.0.0.1:${port}/`)).toEqual([204, 401]);
    expect(running.stdout).toContain('user.registered evt_1 {"n": 1}');
  });

  test('M11 in workerd, the runtime of Cloudflare Workers', async () => {
    const program = programOf('@cloudflare', 'bin', 'workerd');
    if (program === undefined) {
      console.warn('The receiver in workerd is left out: it has no package for this platform.');
      return;
    }
    const { url, running } = await serveWorker(
      program,
      example('worker.mjs'),
      { specifier: 'waybill/receiver', file: 'receiver/index.js' },
      { name: 'WEBHOOK_SECRET', text: secret },
    );
    expect(await statuses(url)).toEqual([204, 401]);
    await running.says('user.registered evt_1 {"n": 1}');
  });
});
