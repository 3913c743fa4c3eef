// Redis on a real server: the contents of an entry, trimming, streams that must exist, and what each error code means
// for the message.

import { execFileSync } from 'node:child_process';
import { connect } from 'node:net';
import path from 'node:path';

import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import type { Config } from '../../src/config.js';
import { redis } from '../../src/destinations/redis/redis.js';
import type { RedisOptions } from '../../src/destinations/redis/redis.js';
import { claimedMessage, claimedRow } from '../support/claimed-message.js';
import { destinationUrl, packageUrl, runNode, temporaryDirectory } from '../support/cli.js';
import { only } from '../support/only.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { Sender, fields, messagesOf } from './sender.js';
import { freePort } from '../support/free-port.js';
import { redisUnavailable, startRedis } from './services/redis.js';
import type { RunningRedis } from './services/redis.js';
import { openWithoutLibraries } from './without-libraries.js';

const unavailable = redisUnavailable();
if (unavailable !== null) {
  if (process.env['CI']) throw new Error(unavailable);
  console.warn(`The tests of redis are left out: ${unavailable}.`);
}

type Entry = [string, string[]];
const password = 'correct-horse';

describe.skipIf(unavailable !== null)('redis', () => {
  let server: RunningRedis;
  beforeAll(async () => void (server = await startRedis()), 60_000);
  afterAll(() => server.stop());

  const open = (options: Partial<RedisOptions> = {}): Promise<Sender> =>
    Sender.open(redis({ url: server.url, stream: 'orders', ...options }));
  const entries = (key: string): Promise<Entry[]> =>
    server.command<Entry[]>('XRANGE', key, '-', '+');

  it('M11 an entry has the id, the topic, the exact payload and the headers, and its id is the receipt', async () => {
    const message = claimedMessage({
      ...fields(),
      topic: 'order.placed',
      key: 'order-7',
      sequence: '3',
      headers: '{"traceparent":"00-1-2-01","waybill-id":"forged"}',
      payload: '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}',
    });
    const sender = await open({ stream: 'out:{topic}' });
    const outcome = only(await sender.send([message]));
    const [entryId, pairs] = only(await entries('out:order.placed'));
    expect(outcome).toEqual({ kind: 'delivered', reference: entryId });
    expect(pairs.filter((_, index) => index % 2 === 0)).toEqual([
      'id',
      'topic',
      'payload',
      'headers',
    ]);
    expect([pairs[1], pairs[3], pairs[5]]).toEqual([
      message.id,
      'order.placed',
      message.payloadText,
    ]);
    expect(JSON.parse(pairs[7] ?? '')).toEqual({
      traceparent: '00-1-2-01',
      'waybill-id': message.id,
      'waybill-topic': 'order.placed',
      'waybill-namespace': 'default',
      'waybill-created-at': '2026-01-02T03:04:05.678Z',
      'waybill-key': 'order-7',
      'waybill-sequence': '3',
    });
  });

  it('M11 a batch takes one round trip, not one for each message', async () => {
    const proxy = await TcpProxy.open();
    proxy.leadTo(server.address);
    const { host, port } = proxy.address;
    const sender = await open({ url: `redis://${host}:${port}` });
    await sender.send(messagesOf(1));
    proxy.behaviour = { delayMs: 100 };
    const startedMs = performance.now();
    const outcomes = await sender.send(messagesOf(100));
    expect(outcomes.every(({ kind }) => kind === 'delivered')).toBe(true);
    // a round trip takes 200 ms: one after the other they would take 20 s
    expect(performance.now() - startedMs).toBeLessThan(5000);
    await sender.close();
    await proxy.close();
  });

  it('trims to an exact or approximate length, and by default not at all', async () => {
    const lengthOf = async (stream: string, options: Partial<RedisOptions>): Promise<number> => {
      const sender = await open({ stream, ...options });
      await sender.send(messagesOf(250));
      return server.command<number>('XLEN', stream);
    };
    expect(await lengthOf('kept', {})).toBe(250);
    expect(await lengthOf('exact', { maxLength: { count: 7, approximate: false } })).toBe(7);
    // whole nodes of 100 entries are dropped
    const about = await lengthOf('about', { maxLength: { count: 7 } });
    expect(about).toBeGreaterThan(7);
    expect(about).toBeLessThan(250);
  });

  it('M11 with createStream: false a message waits for its stream', async () => {
    const sender = await open({ stream: 'later', createStream: false });
    const messages = messagesOf(1);
    expect(await sender.send(messages)).toMatchObject([{ kind: 'retry', code: 'stream_missing' }]);
    expect(await server.command('EXISTS', 'later')).toBe(0);
    await server.command('XGROUP', 'CREATE', 'later', 'readers', '$', 'MKSTREAM');
    expect(await sender.send(messages)).toMatchObject([{ kind: 'delivered' }]);
  });

  it("a message without a field of the stream's name is refused, and sent nowhere", async () => {
    const sender = await open({ stream: 'by-tenant:{tenantId}' });
    const messages = messagesOf(3, (index) => ({ tenantId: index === 1 ? null : 'acme' }));
    const outcomes = await sender.send(messages);
    expect(outcomes.map((outcome) => outcome.kind)).toEqual(['delivered', 'reject', 'delivered']);
    expect(outcomes[1]).toMatchObject({ code: 'name_incomplete' });
    const ids = (await entries('by-tenant:acme')).map(([, pairs]) => pairs[1]);
    expect(ids).toEqual([messages[0].id, messages[2].id]);
  });

  it('P10 each refusal has its code and does not affect the others of the batch', async () => {
    await server.command('SET', 'taken', 'text');
    const sender = await open({ stream: '{topic}' });
    const messages = messagesOf(3, (index) => ({ topic: index === 1 ? 'taken' : 'free' }));
    const outcomes = await sender.send(messages);
    expect(outcomes[1]).toMatchObject({
      kind: 'reject',
      code: 'not_a_stream',
      remoteCode: 'WRONGTYPE',
    });
    expect([outcomes[0]?.kind, outcomes[2]?.kind]).toEqual(['delivered', 'delivered']);
  });

  it('P10 a full, read-only or replica-less server is retried', async () => {
    const own = await startRedis({ maxmemory: '100kb' });
    const sender = await Sender.open(redis({ url: own.url, stream: 'orders' }));
    const messages = messagesOf(1);
    try {
      expect(await sender.send(messages)).toMatchObject([
        { kind: 'retry', code: 'destination_full', remoteCode: 'OOM' },
      ]);
      await own.command('CONFIG', 'SET', 'maxmemory', '0');
      await own.command('REPLICAOF', '127.0.0.1', '1');
      expect(await sender.send(messages)).toMatchObject([
        { kind: 'retry', code: 'destination_read_only', remoteCode: 'READONLY' },
      ]);
      await own.command('CONFIG', 'SET', 'replica-serve-stale-data', 'no');
      expect(await sender.send(messages)).toMatchObject([
        { kind: 'retry', code: 'destination_unavailable', remoteCode: 'MASTERDOWN' },
      ]);
      await own.command('REPLICAOF', 'NO', 'ONE');
      await own.command('CONFIG', 'SET', 'min-replicas-to-write', '1');
      expect(await sender.send(messages)).toMatchObject([
        { kind: 'retry', code: 'destination_unavailable', remoteCode: 'NOREPLICAS' },
      ]);
      await own.command('CONFIG', 'SET', 'min-replicas-to-write', '0');
      expect(await sender.send(messages)).toMatchObject([{ kind: 'delivered' }]);
    } finally {
      await own.stop();
    }
  });

  it('after a fail-over it reconnects, because the address may lead to another server', async () => {
    const own = await startRedis();
    const sender = await Sender.open(redis({ url: own.url, stream: 'orders' }));
    const clientOf = async (): Promise<string | undefined> =>
      (await own.command<string>('CLIENT', 'LIST')).match(/^id=\d+(?=.*cmd=xadd)/m)?.[0];
    try {
      await sender.send(messagesOf(1));
      const before = await clientOf();
      await own.command('REPLICAOF', '127.0.0.1', '1');
      await sender.send(messagesOf(1));
      await own.command('REPLICAOF', 'NO', 'ONE');
      await sender.send(messagesOf(1));
      expect(before).toMatch(/^id=/);
      expect(await clientOf()).not.toBe(before);
    } finally {
      await own.stop();
    }
  });

  it('P10 an error that needs an operator pauses the destination, and no password is shown', async () => {
    const own = await startRedis();
    await own.command('ACL', 'SETUSER', 'writer', 'on', `>${password}`, '~*', '+xadd');
    await own.command('ACL', 'SETUSER', 'reader', 'on', `>${password}`, '~*', '+xread');
    await own.command('ACL', 'SETUSER', 'default', 'off');
    const { host, port } = own.address;
    const as = async (credentials: string): Promise<unknown[]> => {
      const url = `redis://${credentials}${host}:${port}`;
      const sender = await Sender.open(redis({ url, stream: 'orders' }));
      const said = [...(await sender.send(messagesOf(1))), await sender.health()];
      expect(JSON.stringify(said)).not.toContain(password);
      return said;
    };
    try {
      expect(await as('')).toMatchObject([
        { kind: 'pause', code: 'not_authenticated', remoteCode: 'NOAUTH' },
        { ok: false },
      ]);
      expect(await as(`writer:not-${password}@`)).toMatchObject([
        { kind: 'pause', code: 'not_authenticated', remoteCode: 'WRONGPASS' },
        { ok: false },
      ]);
      expect(await as(`reader:${password}@`)).toMatchObject([
        { kind: 'pause', code: 'not_authorized', remoteCode: 'NOPERM' },
        { ok: true },
      ]);
      expect(await as(`writer:${password}@`)).toMatchObject([{ kind: 'delivered' }, { ok: true }]);
    } finally {
      await own.stop();
    }
  });

  it('M11 a message too long for the server breaks the connection, and later ones arrive', async () => {
    const own = await startRedis({ 'proto-max-bulk-len': String(1024 * 1024) });
    const sender = await Sender.open(redis({ url: own.url, stream: 'orders' }));
    try {
      const payload = JSON.stringify('x'.repeat(1024 * 1024));
      expect(await sender.send(messagesOf(1, () => ({ payload })))).toMatchObject([
        { kind: 'retry' },
      ]);
      await sender.sendUntilDelivered(messagesOf(1));
    } finally {
      await own.stop();
    }
  });

  it('rediss:// uses TLS, with a certificate that Node trusts', async () => {
    const directory = temporaryDirectory();
    const [key, certificate] = ['key.pem', 'certificate.pem'].map((name) =>
      path.join(directory, name),
    ) as [string, string];
    const args =
      'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 ' +
      `-subj /CN=localhost -addext subjectAltName=DNS:localhost -keyout ${key} -out ${certificate}`;
    execFileSync('openssl', args.split(' '), { stdio: 'ignore' });
    const tlsPort = await freePort();
    const own = await startRedis({
      'tls-port': String(tlsPort),
      'tls-key-file': key,
      'tls-cert-file': certificate,
      'tls-auth-clients': 'no',
    });
    const script = `
      import { redis } from ${JSON.stringify(destinationUrl('redis'))};
      import { ClaimedMessage } from ${JSON.stringify(new URL('core/claimed-message.js', packageUrl).href)};
      const destination = redis({ url: 'rediss://localhost:${tlsPort}', stream: 'orders' });
      await destination.open();
      const message = new ClaimedMessage(${JSON.stringify(claimedRow(fields()))});
      const [outcome] = await destination.deliverBatch([message], { signal: AbortSignal.timeout(5000) });
      await destination.close();
      console.log(outcome.kind, outcome.remoteCode ?? '');
    `;
    const run = async (environment: Record<string, string>): Promise<string> =>
      (await runNode(['--input-type=module', '-e', script], { environment }).ended()).stdout;
    try {
      expect(await run({ NODE_EXTRA_CA_CERTS: certificate })).toBe('delivered \n');
      expect(await run({})).toBe('retry DEPTH_ZERO_SELF_SIGNED_CERT\n');
    } finally {
      await own.stop();
    }
  });

  it('P9 a call is aborted at once even if the connection is never accepted', async () => {
    const full = await fullListener();
    const sender = await open({ url: `redis://127.0.0.1:${full.port}` });
    const startedMs = performance.now();
    expect(await sender.send(messagesOf(1), 200)).toMatchObject([
      { kind: 'retry', code: 'connection_failed' },
    ]);
    expect(performance.now() - startedMs).toBeLessThan(2000);
    full.stop();
  });

  it('after the close nothing is sent and no connection is made', async () => {
    const destination = redis({ url: server.url, stream: 'closed' });
    await destination.open?.();
    await destination.close?.();
    const outcomes = await destination.deliverBatch(messagesOf(1), {
      signal: AbortSignal.timeout(5000),
    });
    expect(outcomes).toMatchObject([{ kind: 'retry', code: 'connection_failed' }]);
    expect(await server.command('EXISTS', 'closed')).toBe(0);
  });

  it('the database number of the address is used', async () => {
    const sender = await open({ url: `${server.url}/3`, stream: 'third' });
    expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
    expect(await server.command('EXISTS', 'third')).toBe(0);
    expect(await server.command('INFO', 'keyspace')).toMatch(/db3:keys=1/);
  });

  it('a missing library is named when the destination is opened', async () => {
    const said = await openWithoutLibraries(
      'redis/redis.js',
      "redis({ url: 'redis://127.0.0.1' })",
    );
    expect(said).toBe(
      'configuration_invalid redis() needs the package redis, which is not installed: npm install redis',
    );
  });
});

/** A port whose owner never accepts and whose backlog is full: one more connection waits, and is not refused. */
async function fullListener(): Promise<{ port: number; stop: () => void }> {
  const child = runNode([
    '-e',
    `require('net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, function () {
      console.log('port ' + this.address().port);
    });`,
  ]);
  await child.says(/port \d+/);
  const port = Number(/\d+/.exec(child.stdout)?.[0]);
  child.process.kill('SIGSTOP');
  const sockets = Array.from({ length: 4 }, () => connect(port, '127.0.0.1'));
  for (const socket of sockets) socket.on('error', () => undefined);
  await waitFor(() => sockets.filter(({ connecting }) => !connecting).length >= 2, {
    what: 'the queue to be full',
  });
  return { port, stop: () => sockets.forEach((socket) => socket.destroy()) };
}

it('the configuration in the documents is valid', async () => {
  const { default: config } = (await import(
    path.resolve('examples/first-steps/redis.config.mjs')
  )) as { default: Config };
  expect(config.destinations).toMatchObject({ streams: { kind: 'redis' } });
});

describe('options that are refused', () => {
  const url = 'redis://127.0.0.1:6379';
  it.each([
    [{}, /redis\.url is undefined: give redis:/],
    [{ url: 'http://127.0.0.1' }, /redis\.url is "…": give redis:/],
    [{ url: `redis:${password}` }, /redis\.url is "…"/],
    [{ url: `redis://u:${password}@host/not-a-number` }, /redis\.url is "redis:\/\/…@host…"/],
    [{ url: `redis://u:${password}@host?db=1` }, /redis\.url is "redis:\/\/…@host…"/],
    [{ url: `redis://u:${password}%@host` }, /redis\.url is "…": write %/],
    [{ url, stream: 'a{b}' }, /redis\.stream is "a\{b\}": in braces use topic/],
    [{ url, maxLength: 5 }, /redis\.maxLength is 5: give \{ count/],
    [{ url, maxLength: { count: 0 } }, /redis\.maxLength\.count is 0: give a whole number from 1/],
    [{ url, maxLength: { count: 1, limit: 1 } }, /redis\.maxLength\.limit is not an option/],
    [{ url, createStream: 'no' }, /redis\.createStream is "no": give true or false/],
    [{ url, maxMessageBytes: 0 }, /redis\.maxMessageBytes is 0/],
    [{ url, batchSize: 0 }, /redis\.batchSize is 0/],
    [{ url, streem: 'x' }, /redis\.streem is not an option: use concurrency/],
  ])('%j', (options, problem) => {
    let said = '';
    try {
      redis(options as RedisOptions);
    } catch (error) {
      said = (error as Error).message;
    }
    expect(said).toMatch(problem);
    expect(said).not.toContain(password);
  });
});
