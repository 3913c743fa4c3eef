// RabbitMQ on a real broker: what a confirm means and what it does not, what arrives, what each error becomes, and
// which message an error belongs to when many are under way.

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import os from 'node:os';
import path from 'node:path';

import { CloudEvent } from 'cloudevents';
import type { SyncMessage } from 'rabbitmq-client';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { rabbitmq } from '../../src/destinations/rabbitmq/rabbitmq.js';
import type { RabbitmqOptions } from '../../src/destinations/rabbitmq/rabbitmq.js';
import type { Outcome } from '../../src/model/outcome.js';
import { makeCertificates } from '../support/certificates.js';
import type { Certificates } from '../support/certificates.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, send, startRelay, untilPlaces } from '../support/relay.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { outcomesOfNobody } from './in-a-process.js';
import { Sender, messagesOf } from './sender.js';
import { freePort } from './services/process.js';
import { peek, rabbitmqService, startRabbitmq } from './services/rabbitmq.js';
import type { Broker } from './services/rabbitmq.js';
import { openWithoutLibraries } from './without-libraries.js';

const unavailable = rabbitmqService.unavailable();
if (unavailable !== null) console.warn(`The tests of RabbitMQ are left out: ${unavailable}.`);
const host = '127.0.0.1';
const largestBytes = 50_000;

const db = testDatabase();
let broker: Broker;
let securePort: number;
let certificates: Certificates;
let count = 0;

describe.skipIf(unavailable !== null && !process.env['CI'])('rabbitmq', () => {
  let folder: string;
  beforeAll(async () => {
    folder = mkdtempSync(path.join(os.tmpdir(), 'waybill-test-'));
    securePort = await freePort();
    certificates = makeCertificates(folder);
    const definitions = path.join(folder, 'definitions.json');
    writeFileSync(definitions, JSON.stringify(users()));
    broker = await startRabbitmq({
      largestBytes,
      more: `load_definitions = ${definitions}
listeners.ssl.1 = ${host}:${securePort}
ssl_options.cacertfile = ${certificates.caFile}
ssl_options.certfile = ${certificates.certFile}
ssl_options.keyfile = ${certificates.keyFile}
ssl_options.verify = verify_none`,
    });
  });
  afterAll(async () => {
    await broker?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** An exchange and a queue of one name, bound by these keys. */
  async function makeQueue(
    keys: readonly string[] = ['#'],
    queueArguments: Record<string, unknown> = {},
  ): Promise<string> {
    const name = `queue${(count += 1)}`;
    await broker.use(async (channel) => {
      await channel.exchangeDeclare({ exchange: name, type: 'topic', durable: true });
      await channel.queueDeclare({ queue: name, durable: true, arguments: queueArguments });
      for (const routingKey of keys)
        await channel.queueBind({ exchange: name, queue: name, routingKey });
    });
    return name;
  }

  async function open(options: Partial<RabbitmqOptions>): Promise<Sender> {
    return Sender.open(rabbitmq({ url: broker.url, ...options }));
  }

  async function inQueue(queue: string): Promise<SyncMessage[]> {
    return broker.use((channel) => peek(channel, queue));
  }

  async function idsIn(queue: string): Promise<string[]> {
    return (await inQueue(queue)).map(({ messageId }) => messageId ?? '');
  }

  describe('a confirm', () => {
    it('M11 is a success, with the id of the message for want of another receipt', async () => {
      const exchange = await makeQueue();
      const sender = await open({ exchange });
      const [message] = messagesOf(1);
      expect(await sender.send([message])).toEqual([{ kind: 'delivered', reference: message.id }]);
      expect(await idsIn(exchange)).toEqual([message.id]);
    });

    it('M11 of a message that no queue takes is none: it comes back, and only it fails', async () => {
      const exchange = await makeQueue(['wanted.#']);
      const sender = await open({ exchange });
      const messages = messagesOf(40, (index) => ({
        topic: index % 2 === 0 ? 'wanted.one' : 'other',
      }));
      const outcomes = await sender.send(messages);
      expect(outcomes.map(({ kind }) => kind)).toEqual(
        messages.map((_, index) => (index % 2 === 0 ? 'delivered' : 'retry')),
      );
      expect(outcomes[1]).toEqual({
        kind: 'retry',
        code: 'unroutable',
        remoteCode: 'ReturnedError',
        message: 'NO_ROUTE',
      });
      expect(await idsIn(exchange)).toHaveLength(20);
    });

    it('many are waited for at once: a round trip is not paid for each message', async () => {
      const exchange = await makeQueue();
      const proxy = await TcpProxy.open();
      onTestFinished(() => proxy.close());
      proxy.leadTo(broker.address);
      const sender = await open({ exchange, url: `amqp://${host}:${proxy.address.port}` });
      await sender.sendUntilDelivered(messagesOf(1));
      proxy.behaviour = { delayMs: 100 };
      const startedMs = performance.now();
      const outcomes = await sender.send(messagesOf(200));
      expect(outcomes.every(({ kind }) => kind === 'delivered')).toBe(true);
      // one after the other it would take 40 seconds
      expect(performance.now() - startedMs).toBeLessThan(5000);
    });
  });

  describe('what arrives', () => {
    it('M11 is the exact payload, persistent, with properties and headers', async () => {
      const queue = await makeQueue();
      const tapped = await tap(broker.address.port);
      const url = `amqp://${host}:${tapped.port}`;
      const sender = await open({ url, exchange: queue, routingKey: '{tenantId}.{topic}' });
      const payload = '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}';
      const [message] = messagesOf(1, () => ({
        payload,
        topic: 'order.placed',
        tenantId: 'acme',
        key: 'order-1',
        sequence: '7',
        headers: JSON.stringify({ colour: 'grün', 'waybill-id': 'another', CC: 'elsewhere' }),
      }));
      expect(await sender.send([message])).toMatchObject([{ kind: 'delivered' }]);
      expect(tapped.sent()).toContain(payload);
      const [arrived] = await inQueue(queue);
      expect(arrived).toMatchObject({
        exchange: queue,
        routingKey: 'acme.order.placed',
        durable: true,
        contentType: 'application/json',
        messageId: message.id,
        type: 'order.placed',
        timestamp: Math.floor(Date.UTC(2026, 0, 2, 3, 4, 5) / 1000),
      });
      expect(arrived?.headers).toEqual({
        colour: 'grün',
        'waybill-id': message.id,
        'waybill-topic': 'order.placed',
        'waybill-namespace': 'default',
        'waybill-created-at': '2026-01-02T03:04:05.678Z',
        'waybill-tenant': 'acme',
        'waybill-key': 'order-1',
        'waybill-sequence': '7',
      });
    });

    it('M11 is a CloudEvent that others can read, where that is wanted', async () => {
      const exchange = await makeQueue();
      const sender = await open({ exchange, format: 'cloudevents', source: '/shop' });
      const [message] = messagesOf(1, () => ({
        topic: 'order.placed',
        key: 'Zoë',
        headers: JSON.stringify({ 'cloudEvents:id': 'another', colour: 'green' }),
      }));
      expect(await sender.send([message])).toMatchObject([{ kind: 'delivered' }]);
      const [arrived] = await inQueue(exchange);
      const headers = (arrived?.headers ?? {}) as Record<string, string>;
      const prefix = 'cloudEvents:';
      const attributes = Object.entries(headers)
        .filter(([name]) => name.startsWith(prefix))
        .map(([name, value]) => [name.slice(prefix.length), value]);
      expect(Object.keys(headers).filter((name) => !name.startsWith(prefix))).toEqual(['colour']);
      const event = new CloudEvent({
        ...(Object.fromEntries(attributes) as { type: string; source: string }),
        datacontenttype: arrived?.contentType ?? '',
        data: arrived?.body as unknown,
      });
      expect(event.validate()).toBe(true);
      expect(event).toMatchObject({
        id: message.id,
        source: '/shop',
        type: 'order.placed',
        time: '2026-01-02T03:04:05.678Z',
        partitionkey: 'Zoë',
        datacontenttype: 'application/json',
        data: { is: 'small' },
      });
    });

    it('M11 goes by the routing key to its queue, or without an exchange to the queue of that name', async () => {
      const red = await makeQueue(['red.*']);
      const blue = await makeQueue([]);
      await broker.use((channel) =>
        channel.queueBind({ exchange: red, queue: blue, routingKey: 'blue.*' }),
      );
      const sender = await open({ exchange: red, routingKey: '{aggregateType}.{topic}' });
      const [first, second, third] = messagesOf(3, (index) => ({
        topic: 'x',
        aggregateType: index === 0 ? 'red' : 'blue',
        aggregateId: '1',
      }));
      await sender.sendUntilDelivered([first, second]);
      const direct = await open({ routingKey: red });
      await direct.sendUntilDelivered([third]);
      expect(await idsIn(red)).toEqual([first.id, third.id]);
      expect(await idsIn(blue)).toEqual([second.id]);
    });
  });

  describe('P10 what cannot be delivered', () => {
    it('an exchange that is missing, and no other of those that are sent beside it', async () => {
      const exchange = await makeQueue();
      const sender = await open({ exchange: '{namespace}' });
      const messages = messagesOf(60, (index) => ({
        namespace: index % 3 === 0 ? 'nowhere' : exchange,
      }));
      const outcomes = await sender.send(messages);
      expect(outcomes.map(nameOf)).toEqual(
        messages.map((_, index) => (index % 3 === 0 ? 'retry exchange_missing' : 'delivered')),
      );
      expect(outcomes[0]).toMatchObject({ remoteCode: 'NOT_FOUND' });
      expect(await idsIn(exchange)).toHaveLength(40);
    });

    it('an exchange that is missing, until somebody makes it', async () => {
      const queue = await makeQueue();
      const exchange = `${queue}-later`;
      const sender = await open({ exchange });
      const [message] = messagesOf(1);
      expect((await sender.send([message])).map(nameOf)).toEqual(['retry exchange_missing']);
      await broker.use(async (channel) => {
        await channel.exchangeDeclare({ exchange, type: 'fanout' });
        await channel.queueBind({ exchange, queue });
      });
      expect((await sender.send([message])).map(nameOf)).toEqual(['delivered']);
      expect(await idsIn(queue)).toEqual([message.id]);
    });

    it('a message that is too large, and none of those that are under way with it', async () => {
      const exchange = await makeQueue();
      const sender = await open({ exchange });
      const large = JSON.stringify('x'.repeat(largestBytes + 1));
      const messages = messagesOf(30, (index) => (index % 10 === 5 ? { payload: large } : {}));
      const outcomes = await sender.send(messages);
      expect(outcomes.map(nameOf)).toEqual(
        messages.map((_, index) => (index % 10 === 5 ? 'reject message_too_large' : 'delivered')),
      );
      const small = messages.filter((_, index) => index % 10 !== 5).map(({ id }) => id);
      expect([...new Set(await idsIn(exchange))].toSorted()).toEqual(small.toSorted());
    });

    it('a queue that is full and refuses', async () => {
      const exchange = await makeQueue(['#'], {
        'x-max-length': 1,
        'x-overflow': 'reject-publish',
      });
      const sender = await open({ exchange });
      await sender.sendUntilDelivered(messagesOf(1));
      // what the queue has just taken may not count yet
      const outcomes = await waitFor(
        async () => {
          const [outcome] = await sender.send(messagesOf(1));
          return outcome?.kind === 'delivered' ? undefined : outcome;
        },
        { what: 'the queue to refuse' },
      );
      expect(outcomes).toMatchObject({ kind: 'retry', code: 'nacked', remoteCode: 'NACK' });
    });

    it('a field that is missing; names and headers that the protocol cannot carry; and the rest goes on', async () => {
      const exchange = await makeQueue();
      const sender = await open({ exchange, routingKey: '{key}' });
      const long = 'x'.repeat(256);
      const messages = messagesOf(6, (index) => {
        if (index === 0) return {};
        if (index === 1) return { key: long };
        if (index === 2) return { key: 'k', headers: JSON.stringify({ [long]: '1' }) };
        if (index === 3) return { key: 'k', headers: JSON.stringify({ a: 'x'.repeat(9000) }) };
        if (index === 4) return { key: 'k', headers: JSON.stringify({ a: 'x'.repeat(7000) }) };
        return { key: 'x'.repeat(255) };
      });
      const outcomes = await sender.send(messages);
      expect(outcomes.map(nameOf)).toEqual([
        'reject name_incomplete',
        'reject routing_key_invalid',
        'reject header_invalid',
        'reject header_invalid',
        'delivered',
        'delivered',
      ]);
    });

    it('a broker that takes nothing for want of memory says so, and takes it again later', async () => {
      const exchange = await makeQueue();
      const sender = await open({ exchange });
      await sender.sendUntilDelivered(messagesOf(1));
      const [first, second] = messagesOf(2);
      await broker.control('set_vm_memory_high_watermark', 'absolute', '1');
      onTestFinished(() => broker.control('set_vm_memory_high_watermark', '0.4'));
      const blocked = { kind: 'retry', code: 'destination_full' };
      expect(await sender.send([first])).toMatchObject([blocked]);
      expect(await sender.send([second])).toMatchObject([blocked]);
      expect(await sender.health()).toMatchObject({ ok: false });
      await broker.control('set_vm_memory_high_watermark', '0.4');
      await sender.sendUntilDelivered([first, second]);
      expect(await sender.health()).toEqual({ ok: true });
    }, 60_000);
  });

  describe('who may', () => {
    const at = (user: string, vhost = ''): string =>
      broker.url.replace('guest:guest', user) + vhost;

    async function tryWith(options: Partial<RabbitmqOptions>): Promise<unknown> {
      return (await (await open(options)).send(messagesOf(1)))[0];
    }

    it('P10 a wrong password pauses the destination, and is not told', async () => {
      const sender = await open({ url: at('guest:hunter2') });
      const [outcome] = await sender.send(messagesOf(1));
      expect(outcome).toMatchObject({
        kind: 'pause',
        code: 'access_refused',
        remoteCode: 'ACCESS_REFUSED',
      });
      const health = await sender.health();
      expect(health.ok).toBe(false);
      expect(JSON.stringify([outcome, health])).not.toContain('hunter2');
    });

    it('P10 no right to publish pauses', async () => {
      const exchange = await makeQueue();
      expect(await tryWith({ url: at('clerk:a%2Fb'), exchange })).toMatchObject({
        kind: 'pause',
        code: 'access_refused',
        remoteCode: 'ACCESS_REFUSED',
      });
    });

    it('P10 a virtual host of its own, and one that is missing', async () => {
      expect(await tryWith({ url: at('guest:guest', '/shop%2F1') })).toMatchObject({
        kind: 'retry',
        code: 'unroutable',
      });
      expect(await tryWith({ url: at('guest:guest', '/nowhere') })).toMatchObject({
        kind: 'retry',
        code: 'vhost_refused',
        remoteCode: 'NOT_ALLOWED',
      });
    });

    it('TLS: an authority that is trusted, one that is not, and a broker without', async () => {
      const exchange = await makeQueue();
      const { ca } = certificates;
      const url = `amqps://${host}:${securePort}`;
      expect(await tryWith({ url, exchange, tls: { ca } })).toMatchObject({ kind: 'delivered' });
      expect(await tryWith({ url, exchange })).toMatchObject({
        kind: 'retry',
        code: 'connection_failed',
        remoteCode: 'SELF_SIGNED_CERT_IN_CHAIN',
      });
      const plain = `amqps://${host}:${broker.address.port}`;
      expect(await tryWith({ url: plain, exchange, tls: { ca } })).toMatchObject({
        kind: 'retry',
        code: 'connection_failed',
      });
    });
  });

  it('P2 M11 a relay keeps the order of each key, and the receipt with the attempt', async () => {
    const exchange = await makeQueue();
    const name = 'rabbitmq-relay';
    await startRelay(db, { destinations: { [name]: rabbitmq({ url: broker.url, exchange }) } });
    const keys = ['a', 'b', 'c'];
    const ids = await send(
      db,
      Array.from({ length: 60 }, (_, n) => ({
        topic: name,
        key: keys[n % 3] ?? '',
        payload: { n },
      })),
    );
    await untilPlaces(db, name, { delivered: 60, waiting: 0, leased: 0 });
    const arrived = await idsIn(exchange);
    for (const [offset] of keys.entries())
      expect(arrived.filter((id) => ids.indexOf(id) % 3 === offset)).toEqual(
        ids.filter((_, n) => n % 3 === offset),
      );
    const [first = ''] = ids;
    expect(await attemptsOf(db, first, name)).toMatchObject([
      { state: 'dispatched', reference: first },
    ]);
  });

  it('health says whether the exchange is there', async () => {
    const exchange = await makeQueue();
    expect(await (await open({ exchange })).health()).toEqual({ ok: true });
    expect(await (await open({ exchange: '{topic}' })).health()).toEqual({ ok: true });
    expect(await (await open({ exchange: 'nowhere' })).health()).toMatchObject({
      ok: false,
      problem: expect.stringContaining('exchange_missing (NOT_FOUND)') as unknown,
    });
  });

  it('there may be more exchanges than channels are kept for', async () => {
    const exchange = await makeQueue();
    const sender = await open({ exchange: '{namespace}', routingKey: 'k' });
    const names = Array.from({ length: 100 }, (_, index) => `${exchange}-${index}`);
    await broker.use(async (channel) => {
      for (const name of names) {
        await channel.exchangeDeclare({ exchange: name, type: 'topic' });
        await channel.queueBind({ exchange: name, queue: exchange, routingKey: '#' });
      }
    });
    const messages = messagesOf(200, (index) => ({ namespace: names[index % 100] ?? '' }));
    const outcomes = [
      ...(await sender.send(messages.slice(0, 100))),
      ...(await sender.send(messages.slice(100))),
    ];
    expect(outcomes.every(({ kind }) => kind === 'delivered')).toBe(true);
    expect(await idsIn(exchange)).toHaveLength(200);
  });
});

it('M12 where nobody is, or nobody answers, it fails with a reason and leaves nothing behind', async () => {
  const outcomes = await outcomesOfNobody("waybill.rabbitmq({ url: 'amqp://127.0.0.1:' + port })");
  expect(outcomes).toEqual(['retry connection_failed', 'retry timeout']);
});

describe('options', () => {
  const given = { url: 'amqp://localhost' };

  it.each<[string, object, RegExp]>([
    ['no address', {}, /rabbitmq\.url is undefined: give an address/],
    ['a web address', { url: 'http://localhost' }, /rabbitmq\.url is/],
    ['an unknown one', { ...given, queue: 'x' }, /rabbitmq\.queue is not an option/],
    ['an unknown field', { ...given, routingKey: '{name}' }, /rabbitmq\.routingKey is .*in braces/],
    ['an empty exchange', { ...given, exchange: '' }, /rabbitmq\.exchange is ""/],
    ['a format', { ...given, format: 'xml' }, /rabbitmq\.format is "xml"/],
    ['tls without amqps', { ...given, tls: true }, /rabbitmq\.tls .*amqps/],
  ])('%s is refused', (_what, options, text) => {
    expect(() => rabbitmq(options as RabbitmqOptions)).toThrow(text);
  });

  it.each<[string, string]>([
    ['no address at all', 'hunter2'],
    ['another scheme', 'http://ada:hunter2@localhost'],
    ['parameters', 'amqp://ada:hunter2@localhost/?heartbeat=1'],
    ['two virtual hosts', 'amqp://ada:hunter2@localhost/a/b'],
    ['a bad escape', 'amqp://ada:hunter2%E0%A4%A@localhost'],
  ])('an address with a password and %s is refused without showing it', (_what, url) => {
    let text = '';
    try {
      rabbitmq({ url });
    } catch (error) {
      text = (error as Error).message;
    }
    expect(text).toMatch(/^rabbitmq\.url is "…"/);
    expect(text).not.toContain('hunter2');
  });

  it('the password is not among the settings', () => {
    expect(JSON.stringify(rabbitmq({ url: 'amqp://ada:hunter2@localhost' }))).not.toContain(
      'hunter2',
    );
  });

  it('without its library it says what to install', async () => {
    expect(
      await openWithoutLibraries('rabbitmq/rabbitmq.js', "rabbitmq({ url: 'amqp://localhost' })"),
    ).toMatch(
      /^configuration_invalid rabbitmq\(\) needs the package rabbitmq-client, .*npm install/,
    );
  });
});

function nameOf(outcome: Outcome): string {
  return 'code' in outcome ? `${outcome.kind} ${outcome.code}` : outcome.kind;
}

/** Passes everything on, and keeps what was sent. */
async function tap(target: number): Promise<{ port: number; sent: () => string }> {
  const chunks: Buffer[] = [];
  const server = createServer((client) => {
    const service = connect(target, host);
    client.on('data', (chunk: Buffer) => void chunks.push(chunk));
    client.on('error', () => undefined);
    service.on('error', () => undefined);
    client.on('close', () => service.destroy());
    client.pipe(service).pipe(client);
  }).listen(0, host);
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return {
    port: (server.address() as AddressInfo).port,
    sent: () => Buffer.concat(chunks).toString('utf8'),
  };
}

/** One that may do everything, one that may publish nowhere, and a second virtual host. */
function users(): object {
  const hash = (password: string): string => {
    const salt = Buffer.from('salt');
    const digest = createHash('sha256').update(salt).update(password).digest();
    return Buffer.concat([salt, digest]).toString('base64');
  };
  const user = (name: string, password: string, tags: string) => ({
    name,
    password_hash: hash(password),
    hashing_algorithm: 'rabbit_password_hashing_sha256',
    tags,
  });
  const rights = (name: string, vhost: string, right: string) => ({
    user: name,
    vhost,
    configure: right,
    write: right,
    read: right,
  });
  return {
    users: [user('guest', 'guest', 'administrator'), user('clerk', 'a/b', '')],
    vhosts: [{ name: '/' }, { name: 'shop/1' }],
    permissions: [
      rights('guest', '/', '.*'),
      rights('guest', 'shop/1', '.*'),
      rights('clerk', '/', '^$'),
    ],
  };
}
