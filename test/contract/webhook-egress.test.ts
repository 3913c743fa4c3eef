// The way of a webhook to its receiver: through an HTTP proxy, with a client certificate, and with a login. The proxy,
// the receivers and the token server are real servers on this machine.

import { describe, expect, it, onTestFinished } from 'vitest';

import { webhook } from '../../src/destinations/webhook/webhook.js';
import type { WebhookOptions } from '../../src/destinations/webhook/webhook.js';
import { serveNames } from '../support/dns-server.js';
import { startProxy, startTlsReceiver, startTokenServer, tlsFiles } from '../support/egress.js';
import { loopback, serve } from '../support/relay-partner.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { deliver, opened, received, receiver } from '../support/webhook.js';

const url = 'https://example.com/hooks';
const both = [...loopback, '::1/128'];

/** The error that refuses these options. */
function refusal(options: Partial<WebhookOptions> | Record<string, unknown>): string {
  try {
    webhook({ url, ...options });
  } catch (error) {
    return (error as Error).message;
  }
  throw new Error('the options were accepted');
}

describe('a proxy', () => {
  it('gets a tunnel to the address of the receiver, with its credentials, and the request is the same', async () => {
    const proxy = await startProxy();
    const { url: target, requests } = await receiver();
    const destination = await opened({
      url: target,
      proxy: proxy.url.replace('://', '://relay:p%40ss%3Aword@'),
    });
    for (let n = 0; n < 3; n += 1) expect((await deliver(destination)).kind).toBe('delivered');
    expect(requests.map(({ path }) => path)).toEqual(['/hook', '/hook', '/hook']);
    expect(requests[0]?.headers).not.toHaveProperty('proxy-authorization');
    expect(requests[0]?.headers.host).toBe(new URL(target).host);
    expect(new Set(proxy.targets)).toEqual(new Set([new URL(target).host]));
    expect(proxy.authorization).toBe(`Basic ${Buffer.from('relay:p@ss:word').toString('base64')}`);
  });

  it('gets the address that the relay resolved and checked, never a name', async () => {
    const proxy = await startProxy();
    const { url: target, requests } = await receiver();
    const { port } = new URL(target);
    const { server } = await serveNames(({ type }) => (type === 'A' ? ['127.0.0.1'] : []));
    const destination = await opened({
      url: `http://hooks.example.test:${port}/hook`,
      dnsServers: [server],
      proxy: proxy.url,
    });
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    expect(proxy.targets).toEqual([`127.0.0.1:${port}`]);
    expect(requests[0]?.headers.host).toBe(`hooks.example.test:${port}`);
  });

  it.each([['10.0.0.1'], ['169.254.169.254'], ['::1'], ['::ffff:7f00:1']])(
    'is not asked for %s, which a name leads to',
    async (address) => {
      const proxy = await startProxy();
      const { server } = await serveNames(({ type }) =>
        address.includes(':') === (type === 'AAAA') ? [address] : [],
      );
      const destination = await opened({
        url: 'http://hooks.example.test/hook',
        dnsServers: [server],
        allowedNetworks: [],
        proxy: proxy.url,
      });
      expect(await deliver(destination)).toMatchObject({ kind: 'retry', code: 'target_refused' });
      expect(proxy.targets).toEqual([]);
    },
  );

  it('does not open addresses that are refused without it', () => {
    expect(refusal({ url: 'http://10.0.0.1/', proxy: 'http://10.0.0.2:3128' })).toContain(
      'webhook.url is "http://10.0.0.1/…": 10.0.0.1 is not a public address',
    );
  });

  it('is asked for the next address of a name when it cannot reach one', async () => {
    const proxy = await startProxy();
    const { url: target } = await receiver();
    const { port } = new URL(target);
    const { server } = await serveNames(({ type }) =>
      type === 'A' ? ['127.0.0.2', '127.0.0.1'] : ['::1'],
    );
    proxy.status = (asked) => (asked.startsWith('127.0.0.1:') ? 200 : 502);
    const destination = await opened({
      url: `http://hooks.example.test:${port}/hook`,
      dnsServers: [server],
      allowedNetworks: both,
      proxy: proxy.url,
    });
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    expect(proxy.targets.at(-1)).toBe(`127.0.0.1:${port}`);
    expect(proxy.targets).not.toContain(`[::1]:${port}`);
  });

  it.each([
    [407, 'the proxy answered 407 Proxy Authentication Required'],
    [403, 'the proxy answered 403 Forbidden'],
    [502, 'the proxy answered 502 Bad Gateway'],
  ])('that answers %i makes the delivery fail, with a retry', async (status, words) => {
    const proxy = await startProxy();
    proxy.status = status;
    const { url: target, requests } = await receiver();
    const destination = await opened({ url: target, proxy: proxy.url });
    expect(await deliver(destination)).toMatchObject({
      kind: 'retry',
      code: 'connection_failed',
      remoteCode: 'PROXY_REFUSED',
      message: words,
    });
    expect(requests).toEqual([]);
  });

  it('that cannot be reached is an error without its address', async () => {
    const { url: target } = await receiver();
    const destination = await opened({ url: target, proxy: 'http://u:secret@127.0.0.1:1' });
    const outcome = await deliver(destination);
    expect(outcome).toMatchObject({
      kind: 'retry',
      code: 'connection_failed',
      remoteCode: 'PROXY_UNREACHABLE',
      message: 'the proxy cannot be reached (ECONNREFUSED)',
    });
    expect(JSON.stringify(outcome)).not.toMatch(/secret|127\.0\.0\.1/);
  });

  it('that does not answer ends with the time for a connection, and with a close', async () => {
    const silent = await TcpProxy.open();
    onTestFinished(() => silent.leave());
    silent.behaviour = 'silent';
    silent.leadTo({ host: '127.0.0.1', port: (await startProxy()).port });
    const proxy = `http://127.0.0.1:${silent.address.port}`;
    const { url: target } = await receiver();
    const slow = await opened({ url: target, proxy, timeoutMs: 200 });
    expect(await deliver(slow)).toMatchObject({ remoteCode: 'UND_ERR_CONNECT_TIMEOUT' });
    const closed = await opened({ url: target, proxy });
    const outcome = deliver(closed);
    await waitFor(() => silent.connections > 0, { what: 'a connection' });
    await closed.close?.();
    expect(await outcome).toMatchObject({ kind: 'retry', code: 'connection_failed' });
  });

  it('carries TLS to the receiver, and may be reached over TLS itself', async () => {
    const tls = tlsFiles();
    const proxy = await startProxy(tls);
    const { port, clients } = await startTlsReceiver(tls);
    const { server } = await serveNames(() => []);
    const destination = await opened({
      url: `https://localhost:${port}/hook`,
      dnsServers: [server],
      allowedNetworks: both,
      proxy: proxy.url,
      tls,
    });
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    expect(proxy.targets).toEqual([`127.0.0.1:${port}`]);
    expect(clients).toEqual(['localhost']);
    const health = await destination.health?.({ signal: new AbortController().signal });
    expect(health).toEqual({ ok: true });
  });

  it('must be an address without a path, and its password is not shown', () => {
    const words = 'give an address such as http://proxy.example.com:3128, without a path';
    expect(refusal({ proxy: 'proxy.example.com' })).toBe(`webhook.proxy is "…": ${words}`);
    expect(refusal({ proxy: 'socks5://u:secret@proxy:1080' })).toBe(
      `webhook.proxy is "socks5:…": ${words}`,
    );
    expect(refusal({ proxy: 'http://u:secret@proxy/path' })).toBe(
      `webhook.proxy is "http:…": ${words}`,
    );
    expect(refusal({ proxy: undefined })).toBe(
      'webhook.proxy is undefined: give the address of a proxy, or leave the option out to connect directly',
    );
  });
});

describe('a client certificate', () => {
  it('opens a receiver that demands one', async () => {
    const { ca, cert, key } = tlsFiles();
    const { port, clients } = await startTlsReceiver({ ca, cert, key });
    const target = `https://127.0.0.1:${port}/hook`;
    const without = await opened({ url: target, tls: { ca } });
    expect(await deliver(without)).toMatchObject({ kind: 'retry', code: 'connection_failed' });
    expect(clients).toEqual([]);
    const destination = await opened({ url: target, tls: { ca, cert, key } });
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    expect(clients).toEqual(['localhost']);
  });

  it('does not make an unknown authority of the receiver trusted', async () => {
    const { ca, cert, key } = tlsFiles();
    const { port } = await startTlsReceiver({ ca, cert, key });
    const destination = await opened({ url: `https://127.0.0.1:${port}/`, tls: { cert, key } });
    expect(await deliver(destination)).toMatchObject({
      kind: 'retry',
      remoteCode: 'SELF_SIGNED_CERT_IN_CHAIN',
    });
  });

  it('is tried out when the webhook is made, and is not shown', () => {
    const one = tlsFiles();
    const other = tlsFiles();
    const words = {
      key: 'webhook.tls.key is "…": give the private key of cert as PEM text, without a passphrase',
      cert: 'webhook.tls.cert is "…": give a certificate as PEM text, its own first and then those that signed it',
      ca: 'webhook.tls.ca is "…": give certificates of authorities as PEM text',
    };
    expect(refusal({ tls: { cert: one.cert, key: other.key } })).toBe(words.key);
    expect(refusal({ tls: { cert: one.cert, key: 'nonsense' } })).toBe(words.key);
    expect(refusal({ tls: { cert: 'nonsense', key: one.key } })).toBe(words.cert);
    expect(refusal({ tls: { ca: 'nonsense' } })).toBe(words.ca);
    expect(refusal({ tls: { cert: one.cert } })).toContain('give cert and key together');
  });
});

describe('basic authentication', () => {
  const auth = { type: 'basic', user: 'waybill', password: 'pa:ss wörd' } as const;

  it('is sent with every request', async () => {
    const { headers } = await received({ auth });
    const credentials = Buffer.from('waybill:pa:ss wörd').toString('base64');
    expect(headers.authorization).toBe(`Basic ${credentials}`);
  });

  it('is hidden in stored responses', async () => {
    const { url: target } = await serve((request, response) => {
      request.resume();
      response.writeHead(500).end(`${request.headers.authorization} is waybill:pa:ss wörd`);
    });
    expect(await deliver(await opened({ url: target, auth }))).toMatchObject({
      response: '[redacted] is [redacted]',
    });
  });

  it('must be complete, is not shown, and replaces no header', () => {
    expect(refusal({ auth: { type: 'basic', user: 'a:b', password: 'secret' } })).toBe(
      'webhook.auth.user is "…": give text of 1 to 1024 characters without a colon',
    );
    expect(refusal({ auth: { type: 'basic', user: 'a', password: 'sec\nret' } })).toBe(
      'webhook.auth.password is "…": give text of 1 to 1024 characters',
    );
    expect(refusal({ auth: { type: 'basic', user: 'a' } })).toContain('password is undefined');
    expect(refusal({ auth: { type: 'digest', user: 'a' } })).toBe(
      `webhook.auth.type is "digest": give 'basic' or 'oauth2'`,
    );
    expect(refusal({ auth: undefined })).toContain('webhook.auth is undefined');
    expect(refusal({ auth: 'secret' })).not.toContain('secret');
    expect(refusal({ auth, headers: { Authorization: 'Bearer x' } })).toBe(
      'webhook.headers.Authorization is "…": leave it out: auth sets this header',
    );
  });
});

describe('OAuth 2', () => {
  const client = { type: 'oauth2', clientId: 'way bill', clientSecret: 'client+secret' } as const;

  /** A receiver that accepts tokens of the server, and echoes the token. */
  async function guarded() {
    const tokens = await startTokenServer();
    const seen: (string | undefined)[] = [];
    const refused: (string | undefined)[] = [];
    const { url: target } = await serve((request, response) => {
      request.resume();
      const { authorization } = request.headers;
      seen.push(authorization);
      const isValid = tokens.accepts(authorization);
      if (!isValid) refused.push(authorization);
      response.writeHead(isValid ? 200 : 401).end(`got ${authorization}`);
    });
    const destination = await opened({
      url: target,
      auth: { ...client, tokenUrl: tokens.url, scope: 'hooks:write other', audience: 'hooks' },
    });
    return { tokens, seen, refused, destination };
  }

  it('asks for one token for many calls, and sends it as a bearer token', async () => {
    const { tokens, seen, destination } = await guarded();
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => deliver(destination)));
    outcomes.push(await deliver(destination));
    expect(outcomes.map(({ kind }) => kind)).toEqual(Array(21).fill('delivered'));
    expect(new Set(seen)).toEqual(new Set(['Bearer token-1-of-the-token-server']));
    expect(tokens.requests).toHaveLength(1);
    const [request] = tokens.requests;
    expect(Object.fromEntries(request?.body ?? [])).toEqual({
      grant_type: 'client_credentials',
      scope: 'hooks:write other',
      audience: 'hooks',
    });
    const credentials = Buffer.from('way+bill:client%2Bsecret').toString('base64');
    expect(request?.authorization).toBe(`Basic ${credentials}`);
  });

  it('can send the client in the body', async () => {
    const tokens = await startTokenServer();
    const { url: target } = await receiver();
    const auth = { ...client, tokenUrl: tokens.url, sendClientIn: 'body' } as const;
    expect(await deliver(await opened({ url: target, auth }))).toMatchObject({ kind: 'delivered' });
    expect(tokens.requests[0]?.authorization).toBeUndefined();
    expect(Object.fromEntries(tokens.requests[0]?.body ?? [])).toEqual({
      grant_type: 'client_credentials',
      client_id: 'way bill',
      client_secret: 'client+secret',
    });
  });

  it('renews a token before its end', async () => {
    const { tokens, seen, refused, destination } = await guarded();
    tokens.expiresIn = 1;
    await deliver(destination);
    await waitFor(
      async () => {
        await deliver(destination);
        return seen.at(-1) === 'Bearer token-2-of-the-token-server';
      },
      { what: 'a new token' },
    );
    expect(refused).toEqual([]);
    expect(tokens.requests).toHaveLength(2);
  });

  it('does not ask for a token for each call because the token ends at once', async () => {
    const tokens = await startTokenServer();
    tokens.expiresIn = 0.001;
    const { url: target } = await receiver();
    const auth = { ...client, tokenUrl: tokens.url };
    const destination = await opened({ url: target, auth });
    await deliver(destination);
    await new Promise((resolve) => setTimeout(resolve, 20));
    await deliver(destination);
    expect(tokens.requests).toHaveLength(1);
  });

  it('asks for another token once after a 401, and repeats the request in the same delivery', async () => {
    const { tokens, seen, destination } = await guarded();
    await deliver(destination);
    tokens.revoke();
    const outcomes = await Promise.all(Array.from({ length: 5 }, () => deliver(destination)));
    expect(outcomes.map(({ kind }) => kind)).toEqual(Array(5).fill('delivered'));
    expect(tokens.requests).toHaveLength(2);
    expect(seen.at(-1)).toBe('Bearer token-2-of-the-token-server');
  });

  it('asks for no more tokens when the receiver refuses new ones too', async () => {
    const tokens = await startTokenServer();
    const { url: target } = await serve((request, response) => {
      request.resume();
      response.writeHead(401).end();
    });
    const destination = await opened({ url: target, auth: { ...client, tokenUrl: tokens.url } });
    for (let n = 0; n < 5; n += 1)
      expect(await deliver(destination)).toMatchObject({ kind: 'retry', remoteCode: '401' });
    expect(tokens.requests).toHaveLength(2);
  });

  it('hides the token and the secret of the client in stored responses, also of a renewed token', async () => {
    const { tokens, destination } = await guarded();
    expect(await deliver(destination)).toMatchObject({ response: 'got [redacted]' });
    tokens.revoke();
    expect(await deliver(destination)).toMatchObject({ response: 'got [redacted]' });
  });

  it.each([
    [{ status: 401, body: '{"error": "invalid_client"}' }, '401 Unauthorized (invalid_client)'],
    [{ status: 400, body: '{"error": "client+secret"}' }, '400 Bad Request'],
    [{ status: 302, body: '' }, '302 Found'],
  ])('retries when the token server answers %j', async (answer, words) => {
    const { tokens, seen, destination } = await guarded();
    tokens.answer = answer;
    const outcome = await deliver(destination);
    expect(outcome).toMatchObject({
      kind: 'retry',
      code: 'token_failed',
      remoteCode: String(answer.status),
      message: `no access token: the token server answered ${words}`,
    });
    expect(seen).toEqual([]);
    tokens.answer = undefined;
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
  });

  it.each([
    ['an empty object', '{}', 'the answer of the token server has no access_token'],
    ['no JSON', 'no JSON', 'the answer of the token server has no access_token'],
    [
      'a line break',
      '{"access_token": "a\\r\\nb"}',
      'the answer of the token server has no access_token',
    ],
    [
      'another type',
      '{"access_token": "a", "token_type": "mac"}',
      'the token server gave a token that is not a bearer token',
    ],
    ['much text', `"${'x'.repeat(70_000)}"`, 'the answer of the token server is too long'],
  ])('refuses a token server that answers with %s', async (_what, body, words) => {
    const { tokens, destination } = await guarded();
    tokens.answer = { status: 200, body };
    expect(await deliver(destination)).toMatchObject({
      kind: 'retry',
      code: 'token_failed',
      remoteCode: 'TOKEN_INVALID',
      message: `no access token: ${words}`,
    });
  });

  it('uses the old token until its end when the token server fails meanwhile', async () => {
    const { tokens, seen, destination } = await guarded();
    tokens.expiresIn = 3;
    await deliver(destination);
    tokens.answer = { status: 503, body: '' };
    await waitFor(
      async () => {
        expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
        return tokens.requests.length > 1;
      },
      { what: 'a renewal' },
    );
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    expect(new Set(seen)).toEqual(new Set(['Bearer token-1-of-the-token-server']));
  });

  it('ends with the call when the token server does not answer; the request serves later calls', async () => {
    const { tokens, destination } = await guarded();
    let letGo = (): void => {};
    tokens.hold = new Promise((resolve) => (letGo = resolve));
    const stop = new AbortController();
    const outcome = deliver(destination, {}, stop.signal);
    await waitFor(() => tokens.requests.length === 1, { what: 'a token request' });
    stop.abort(new Error('too late'));
    expect(await outcome).toMatchObject({ kind: 'retry', message: 'too late' });
    letGo();
    expect(await deliver(destination)).toMatchObject({ kind: 'delivered' });
    expect(tokens.requests).toHaveLength(1);
  });

  it('reaches its token server only at checked addresses, and through the proxy', async () => {
    const { server } = await serveNames(() => ['10.0.0.1']);
    const { url: target } = await receiver();
    const options = { url: target, dnsServers: [server] };
    const auth = { ...client, tokenUrl: 'http://tokens.example.test/token' };
    expect(await deliver(await opened({ ...options, auth }))).toMatchObject({
      kind: 'retry',
      code: 'target_refused',
    });
    expect(refusal({ auth: { ...client, tokenUrl: 'http://169.254.169.254/latest' } })).toContain(
      'webhook.auth.tokenUrl is "http://169.254.169.254/…"',
    );
    const proxy = await startProxy();
    const tokens = await startTokenServer();
    const through = await opened({
      url: target,
      proxy: proxy.url,
      auth: { ...client, tokenUrl: tokens.url },
    });
    expect(await deliver(through)).toMatchObject({ kind: 'delivered' });
    expect(proxy.targets).toEqual([new URL(tokens.url).host, new URL(target).host]);
  });

  it('must be complete, and its secret is not shown', () => {
    const tokenUrl = 'https://example.com/token';
    const { clientSecret: _, ...half } = client;
    expect(refusal({ auth: { ...half, tokenUrl } })).toContain('auth.clientSecret is undefined');
    expect(refusal({ auth: { ...client, tokenUrl: 'ftp://x' } })).toContain('auth.tokenUrl is');
    expect(refusal({ auth: { ...client, tokenUrl, clientSecret: 'geheim–' } })).toBe(
      'webhook.auth.clientSecret is "…": give text of 1 to 1024 characters of printable ASCII characters',
    );
    expect(refusal({ auth: { ...client, tokenUrl, sendClientIn: 'query' } })).toContain(
      "give 'header' or 'body'",
    );
  });
});
