// The webhook against real servers, good and bad: what is sent, and what a broken or absent receiver cannot cause.
// Signatures, bodies, responses, broken responses and targets have their own files.

import { getEventListeners } from 'node:events';

import { describe, expect, it } from 'vitest';

import { webhook } from '../../src/destinations/webhook/webhook.js';
import { loopback, serve } from '../support/relay-partner.js';
import { waitFor } from '../support/wait.js';
import { deliver, opened, receiver } from '../support/webhook.js';

describe('the request', () => {
  it.each(['POST', 'PUT', 'PATCH'] as const)(
    'W2 M11 is a %s to the address with the configured headers',
    async (method) => {
      const { url, requests } = await receiver();
      const headers = { 'x-key': 'secret', 'X-Name': 'Zoë', 'User-Agent': 'shop/1' };
      const destination = await opened({ url: `${url}/in?a=1&b=%20#c`, headers, method });
      expect(await deliver(destination)).toEqual({ kind: 'delivered', remoteCode: '200' });
      expect(requests).toHaveLength(1);
      expect(requests[0]).toMatchObject({
        method,
        path: '/hook/in?a=1&b=%20',
        headers: {
          'webhook-timestamp': expect.stringMatching(/^\d{10}$/) as unknown,
          'x-key': 'secret',
          'x-name': 'Zoë',
          'user-agent': 'shop/1',
        },
      });
    },
  );

  it('M11 a retry has the same id, and the time of its own attempt', async () => {
    const { url, requests } = await receiver();
    const destination = await opened({ url });
    await deliver(destination, { tries: '1' });
    const firstSecond = Math.floor(Date.now() / 1000);
    await waitFor(() => Date.now() / 1000 > firstSecond + 1, { what: 'the next second' });
    await deliver(destination, { tries: '2' });
    const [first, second] = requests.map(({ headers }) => headers);
    expect(second?.['webhook-id']).toBe(first?.['webhook-id']);
    expect(Number(second?.['webhook-timestamp'])).toBeGreaterThan(
      Number(first?.['webhook-timestamp']),
    );
  });
});

describe('network failures', () => {
  it('W2 a refused connection is retried, with the reason', async () => {
    const server = await serve((_request, response) => void response.end());
    const destination = await opened({ url: server.url });
    await server.stop();
    expect(await deliver(destination)).toMatchObject({
      kind: 'retry',
      code: 'connection_failed',
      remoteCode: 'ECONNREFUSED',
    });
  });

  it('W2 a server restart fails the deliveries in flight, and no later ones', async () => {
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
    expect(await deliver(destination)).toEqual({ kind: 'delivered', remoteCode: '204' });
  });

  it('P9 W2 an abort closes the connection, and a response that has begun counts', async () => {
    const closed: string[] = [];
    const { url } = await serve((request, response) => {
      request.resume();
      const name = String(request.headers['x-name']);
      response.on('close', () => closed.push(name));
      // one has sent nothing yet, the other has begun its response
      if (name === 'begun') response.writeHead(200).write('beginning');
    });
    for (const [name, expected] of [
      ['silent', { kind: 'retry', code: 'connection_failed' }],
      ['begun', { kind: 'delivered', remoteCode: '200', response: 'beginning[cut off]' }],
    ] as const) {
      const destination = await opened({ url, headers: { 'x-name': name } });
      const controller = new AbortController();
      const outcome = deliver(destination, {}, controller.signal);
      setTimeout(() => controller.abort(new Error('enough')), 100);
      expect(await outcome).toMatchObject(expected);
      await waitFor(() => closed.includes(name), { what: `the close of ${name}` });
    }
  });

  it('P9 a call that is already aborted is not sent, and no listener is left behind', async () => {
    const { url, requests } = await receiver();
    const destination = await opened({ url });
    const aborted = AbortSignal.abort(new Error('enough'));
    expect(await deliver(destination, {}, aborted)).toMatchObject({ code: 'connection_failed' });
    expect(requests).toEqual([]);
    const { signal } = new AbortController();
    expect(await deliver(destination, {}, signal)).toMatchObject({ kind: 'delivered' });
    expect(getEventListeners(signal, 'abort')).toEqual([]);
  });

  it('M12 a close aborts calls in flight, and leaves no connection open', async () => {
    let held = 0;
    let closed = 0;
    const { url } = await serve((request, response) => {
      request.resume();
      held += 1;
      response.on('close', () => (closed += 1));
    });
    const destination = webhook({ url, allowedNetworks: loopback });
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
    ['keep-alive', { 'Keep-Alive': 'timeout=5' }],
    ['upgrade', { upgrade: 'h2c' }],
    ['expect', { Expect: '100-continue' }],
    ['te', { TE: 'trailers' }],
    ['a header for a proxy', { 'Proxy-Authorization': 'geheim' }],
    ['content-encoding', { 'content-encoding': 'gzip' }],
    ['an attribute of CloudEvents', { 'ce-id': '1' }],
    ['a trace', { traceparent: '00-1' }],
    ['a control character', { 'x-a': 'b\u001b' }],
    ['a character that HTTP cannot carry', { 'x-a': '🚚' }],
    ['a duplicate name', { 'x-a': 'b', 'X-A': 'c' }],
    ['a name that Waybill sets', { 'Webhook-Id': '1' }],
    ['a value that is not text', { 'x-a': 7 as unknown as string }],
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

  it.each([null, 'x-a: b', ['x-a']])('headers that are not an object are refused: %j', (wrong) => {
    expect(() => webhook({ url, headers: wrong as unknown as Record<string, string> })).toThrow(
      /^webhook\.headers is /,
    );
  });

  it('too many headers, long ones and long addresses are refused without showing them', () => {
    const many = Object.fromEntries(Array.from({ length: 21 }, (_, at) => [`x-${at}`, 'geheim']));
    const cases: [object, string][] = [
      [{ headers: many }, 'webhook.headers has 21 headers: give at most 20'],
      [
        { headers: { 'x-key': 'geheim'.repeat(1365) } },
        'webhook.headers has 8195 bytes of names and values: give at most 8192',
      ],
      [
        { url: `${url}/${'geheim'.repeat(340)}` },
        `webhook.url is "${new URL(url).origin}/…": give an address of at most 2048 bytes`,
      ],
    ];
    for (const [wrong, words] of cases) expect(() => webhook({ url, ...wrong })).toThrow(words);
  });

  it.each<[string, object, RegExp]>([
    ['a method', { method: 'GET' }, /^webhook\.method is "GET": give 'POST' or 'PUT' or 'PATCH'$/],
    ['a body', { body: 'xml' }, /^webhook\.body is "xml": give 'payload' or /],
    ['a source', { source: 'a b' }, /^webhook\.source is "a b": give a URI reference$/],
    ['a success code', { successCodes: [99] }, /^webhook\.successCodes\[0\] is 99: .* 200 to 599$/],
    ['no success code', { successCodes: [] }, /^webhook\.successCodes is /],
    ['a terminal code', { terminalCodes: ['4xx'] }, /^webhook\.terminalCodes\[0\] is "4xx": /],
    ['a code of both kinds', { terminalCodes: [204] }, /^webhook\.terminalCodes is 204: /],
    [
      'a code of both lists',
      { successCodes: [409], terminalCodes: [400, 409] },
      /^webhook\.terminalCodes is 409: leave out what means delivered/,
    ],
    ['a cap', { maxRetryAfterMs: 999 }, /^webhook\.maxRetryAfterMs is 999: .* 1000 to /],
    [
      'a choice of kept responses',
      { keepResponses: 'some' },
      /^webhook\.keepResponses is "some": give 'all' or 'failures' or 'none'$/,
    ],
  ])('%s that is invalid is refused', (_what, wrong, refusal) => {
    expect(() => webhook({ url, ...wrong })).toThrow(refusal);
  });

  it('its secrets are not among its settings, which may be shown', () => {
    const secrets = `whsec_${Buffer.alloc(32, 5).toString('base64')}`;
    const destination = webhook({ url, secrets, headers: { authorization: 'geheim' } });
    for (const key of ['url', 'secrets', 'headers'])
      expect(destination.settings).not.toHaveProperty(key);
    expect(JSON.stringify(destination)).not.toMatch(/geheim|whsec|BQUF/);
  });

  it('an unknown option is refused with the list of known ones', () => {
    expect(() => webhook({ url, timeout: 5 } as Parameters<typeof webhook>[0])).toThrow(
      /^webhook\.timeout is not an option: use .*timeoutMs/,
    );
  });
});
