// The webhook against real servers, good and bad ones: what is sent, what each answer means, and what a
// hostile or broken receiver cannot do.

import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { text } from 'node:stream/consumers';

import { describe, expect, it, onTestFinished } from 'vitest';

import type { SingleDestination } from '../../src/destinations/destination.js';
import { webhook } from '../../src/destinations/webhook.js';
import type { WebhookOptions } from '../../src/destinations/webhook.js';
import type { ClaimedMessage } from '../../src/model/claimed-message.js';
import type { Outcome } from '../../src/model/outcome.js';
import { claimedMessage } from '../support/claimed-message.js';
import { serve } from '../support/relay-partner.js';
import { waitFor } from '../support/wait.js';

const id = '01a1de5f-b731-742f-8845-6c60ca5acb12';

function message(payload = '{"n": 1}'): ClaimedMessage {
  return claimedMessage({ id, topic: 'user.registered', payload });
}

async function opened(options: WebhookOptions): Promise<SingleDestination> {
  const destination = webhook(options);
  await destination.open?.();
  onTestFinished(() => destination.close?.());
  return destination;
}

async function deliver(
  destination: SingleDestination,
  payload?: string,
  signal: AbortSignal = new AbortController().signal,
): Promise<Outcome> {
  return destination.deliver(message(payload), { signal });
}

describe('the request', () => {
  it('W2 M11 is a POST of the exact payload with the id, the topic, a time and the configured headers', async () => {
    const requests: {
      method: string | undefined;
      url: string | undefined;
      headers: object;
      body: string;
    }[] = [];
    const { url } = await serve((request, response) => {
      void text(request).then((body) => {
        requests.push({ method: request.method, url: request.url, headers: request.headers, body });
        response.end();
      });
    });
    const destination = await opened({
      url: `${url}/in?a=1&b=%20`,
      headers: { 'x-key': 'secret' },
    });
    // spaces, numbers beyond double precision, and characters of several bytes
    const payload = '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}';
    expect(await deliver(destination, payload)).toEqual({ kind: 'delivered' });
    expect(requests).toHaveLength(1);
    expect(requests[0]).toMatchObject({
      method: 'POST',
      url: '/hook/in?a=1&b=%20',
      body: payload,
      headers: {
        'content-type': 'application/json',
        'content-length': String(Buffer.byteLength(payload)),
        'webhook-id': id,
        'webhook-topic': 'user.registered',
        'webhook-timestamp': expect.stringMatching(/^\d{10}$/) as unknown,
        'x-key': 'secret',
      },
    });
  });

  it('connections are kept and used again', async () => {
    const sockets = new Set<unknown>();
    const { url } = await serve((request, response) => {
      sockets.add(request.socket);
      request.resume();
      response.end('thank you');
    });
    const destination = await opened({ url });
    for (let n = 0; n < 10; n += 1) await deliver(destination);
    // the pool may open a second one while the first is being freed
    expect(sockets.size).toBeLessThanOrEqual(2);
  });
});

describe('the answer', () => {
  it.each([200, 201, 202, 204, 299])('W2 %i is delivered', async (status) => {
    const { url } = await serve((request, response) => {
      request.resume();
      response.writeHead(status).end();
    });
    expect(await deliver(await opened({ url }))).toEqual({ kind: 'delivered' });
  });

  it.each([400, 404, 408, 409, 425, 429, 500, 502, 503])(
    'W2 %i is tried again, with the status and the beginning of the answer',
    async (status) => {
      const { url } = await serve((request, response) => {
        request.resume();
        response.writeHead(status).end('what went wrong');
      });
      expect(await deliver(await opened({ url }))).toEqual({
        kind: 'retry',
        code: 'http_status',
        remoteCode: String(status),
        message: 'what went wrong',
      });
    },
  );

  it.each([301, 302, 307, 308])('W2 a redirect (%i) is not followed', async (status) => {
    const visited: (string | undefined)[] = [];
    const { url } = await serve((request, response) => {
      visited.push(request.url);
      request.resume();
      response.writeHead(status, { location: '/elsewhere' }).end();
    });
    expect(await deliver(await opened({ url }))).toMatchObject({
      kind: 'retry',
      code: 'http_status',
      remoteCode: String(status),
    });
    expect(visited).toEqual(['/hook']);
  });

  it.each<[number, Outcome]>([
    [200, { kind: 'delivered' }],
    [500, { kind: 'retry', code: 'http_status', remoteCode: '500', message: 'x'.repeat(1024) }],
  ])(
    'an endless answer (%i) is read up to a bound, and its beginning is kept',
    async (status, outcome) => {
      let sentBytes = 0;
      const { url, closed } = await serveEndlessly(status, (bytes) => (sentBytes += bytes));
      expect(await deliver(await opened({ url }))).toEqual(outcome);
      await waitFor(closed, { what: 'the connection to be closed' });
      expect(sentBytes).toBeLessThan(32 * 1024 * 1024);
    },
  );

  it('an answer that is not text is kept as far as it can be', async () => {
    const { url } = await serve((request, response) => {
      request.resume();
      response.writeHead(500).end(Buffer.from([0x00, 0xff, 0xfe, 0x41]));
    });
    expect(await deliver(await opened({ url }))).toMatchObject({
      code: 'http_status',
      message: '\u0000\uFFFD\uFFFDA',
    });
  });
});

/** A server that never stops talking. */
async function serveEndlessly(
  status: number,
  onSent: (bytes: number) => void,
): Promise<{ url: string; closed: () => boolean }> {
  const chunk = Buffer.alloc(64 * 1024, 'x');
  let closed = false;
  const { url } = await serve((request, response) => {
    request.resume();
    response.writeHead(status);
    response.on('close', () => (closed = true));
    const pour = (): void => {
      if (closed) return;
      onSent(chunk.length);
      if (response.write(chunk)) setImmediate(pour);
      else response.once('drain', pour);
    };
    pour();
  });
  return { url, closed: () => closed };
}

describe('trouble on the way', () => {
  it('W2 a connection that is refused is tried again, with the reason', async () => {
    const server = await serve((_request, response) => void response.end());
    const destination = await opened({ url: server.url });
    await server.stop();
    expect(await deliver(destination)).toMatchObject({
      kind: 'retry',
      code: 'connection_failed',
      remoteCode: 'ECONNREFUSED',
    });
  });

  it('W2 a server that restarts in the middle costs the deliveries under way, and no later ones', async () => {
    let held = 0;
    const first = await serve((request) => {
      request.resume();
      held += 1;
    });
    const destination = await opened({ url: first.url });
    const cut = Promise.all([deliver(destination), deliver(destination)]);
    await waitFor(() => held === 2, { what: 'both deliveries' });
    await first.stop();
    for (const outcome of await cut)
      expect(outcome).toMatchObject({ kind: 'retry', code: 'connection_failed' });
    await serve((request, response) => {
      request.resume();
      response.writeHead(204).end();
    }, first.port);
    expect(await deliver(destination)).toEqual({ kind: 'delivered' });
  });

  it('P9 an abort closes the connection, also in the middle of the answer', async () => {
    const closed: string[] = [];
    const { url } = await serve((request, response) => {
      request.resume();
      const name = String(request.headers['x-name']);
      response.on('close', () => closed.push(name));
      // one has sent nothing yet, the other has begun its answer
      if (name === 'begun') response.writeHead(200).write('beginning');
    });
    for (const name of ['silent', 'begun']) {
      const destination = await opened({ url, headers: { 'x-name': name } });
      const controller = new AbortController();
      const outcome = deliver(destination, undefined, controller.signal);
      setTimeout(() => controller.abort(new Error('enough')), 100);
      expect(await outcome).toMatchObject({ kind: 'retry', code: 'connection_failed' });
      await waitFor(() => closed.includes(name), { what: `the close of ${name}` });
    }
  });

  it('an answer that is not HTTP is tried again', async () => {
    const server = createServer();
    server.on('connection', (socket) => socket.end('SSH-2.0-OpenSSH_9.9\r\n'));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const destination = await opened({ url: `http://127.0.0.1:${port}/` });
    expect(await deliver(destination)).toMatchObject({ kind: 'retry', code: 'connection_failed' });
  });

  it('M12 a close gives up what is still under way, and leaves no connection open', async () => {
    let held = 0;
    let closed = 0;
    const { url } = await serve((request, response) => {
      request.resume();
      held += 1;
      response.on('close', () => (closed += 1));
    });
    const destination = webhook({ url });
    await destination.open?.();
    const outcome = deliver(destination);
    await waitFor(() => held === 1, { what: 'the delivery' });
    await destination.close?.();
    expect(await outcome).toMatchObject({ kind: 'retry', code: 'connection_failed' });
    await waitFor(() => closed === 1, { what: 'the connection to be closed' });
  });
});

describe('its options', () => {
  const url = 'https://example.com/hook';

  it.each<[string, Record<string, string>]>([
    ['a line feed', { 'x-a': 'b\nc: d' }],
    ['a carriage return', { 'x-a': 'b\rc' }],
    ['a NUL', { 'x-a': 'b\u0000' }],
    ['a name with a space', { 'x a': 'b' }],
    ['a name with a line break', { 'x\r\na': 'b' }],
    ['an empty name', { '': 'b' }],
    ['content-length', { 'Content-Length': '1' }],
    ['content-type', { 'content-type': 'text/plain' }],
    ['host', { Host: 'other.example' }],
    ['transfer-encoding', { 'Transfer-Encoding': 'chunked' }],
    ['connection', { connection: 'close' }],
    ['one of its own', { 'Webhook-Id': '1' }],
    ['a value that is no text', { 'x-a': 7 as unknown as string }],
  ])('a header with %s is refused, and its value is not shown', (_what, headers) => {
    const make = (): unknown => webhook({ url, headers: { authorization: 'geheim', ...headers } });
    expect(make).toThrow(/^webhook\.headers\./);
    expect(make).not.toThrow(/geheim/);
  });

  it.each([
    ['nothing', undefined],
    ['no address', 'example.com'],
    ['another protocol', 'ftp://example.com/'],
    ['a file', 'file:///etc/passwd'],
  ])('an address with %s is refused with the key and what is allowed', (_what, wrong) => {
    expect(() => webhook({ url: wrong as unknown as string })).toThrow(
      /^webhook\.url is .*: give an http:\/\/ or https:\/\/ address$/,
    );
  });

  it.each([
    'https://user:geheim@example.com/hook',
    'http://geheim@example.com',
    'ftp://user:geheim@example.com/',
  ])('an address with credentials is refused without showing them: %#', (wrong) => {
    expect(() => webhook({ url: wrong })).toThrow(/^webhook\.url is .*headers/);
    expect(() => webhook({ url: wrong })).not.toThrow(/geheim/);
  });

  it.each([null, 'x-a: b', ['x-a']])('headers that are no object are refused: %j', (wrong) => {
    expect(() => webhook({ url, headers: wrong as unknown as Record<string, string> })).toThrow(
      /^webhook\.headers is /,
    );
  });

  it('an option that does not exist is refused, with those that do', () => {
    expect(() => webhook({ url, timeout: 5 } as WebhookOptions)).toThrow(
      /^webhook\.timeout is not an option: use .*timeoutMs/,
    );
  });
});
