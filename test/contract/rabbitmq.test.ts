// RabbitMQ on a real broker: what a confirm means, what arrives, the outcome of each error, and which of many messages
// in flight an error belongs to. Access is tested in rabbitmq-access.test.ts.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import { CloudEvent } from 'cloudevents';
import { describe, expect, it, onTestFinished } from 'vitest';

import { rabbitmq } from '../../src/destinations/rabbitmq/rabbitmq.js';
import type { Outcome } from '../../src/core/outcome.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, send, startRelay, untilPlaces } from '../support/relay.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { rabbitmqQueues, withoutRabbitmq } from './rabbitmq-queues.js';
import { messagesOf } from './sender.js';

const host = '127.0.0.1';
const largestBytes = 50_000;

const db = testDatabase();

describe.skipIf(withoutRabbitmq)('rabbitmq', () => {
  const queues = rabbitmqQueues(() => Promise.resolve({ largestBytes }));

  describe('a confirm', () => {
    it('M11 is a success, with the message id as receipt, because RabbitMQ gives none', async () => {
      const exchange = await queues.makeQueue();
      const sender = await queues.open({ exchange });
      const [message] = messagesOf(1);
      expect(await sender.send([message])).toEqual([{ kind: 'delivered', reference: message.id }]);
      expect(await queues.idsIn(exchange)).toEqual([message.id]);
    });

    it('M11 of a message that no queue takes is a failure of this message only: the broker returns it', async () => {
      const exchange = await queues.makeQueue(['wanted.#']);
      const sender = await queues.open({ exchange });
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
      expect(await queues.idsIn(exchange)).toHaveLength(20);
    });

    it('of many messages is awaited concurrently, without a round trip for each', async () => {
      const exchange = await queues.makeQueue();
      const proxy = await TcpProxy.open();
      onTestFinished(() => proxy.close());
      proxy.leadTo(queues.broker.address);
      const sender = await queues.open({ exchange, url: `amqp://${host}:${proxy.address.port}` });
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
      const queue = await queues.makeQueue();
      const tapped = await tap(queues.broker.address.port);
      const url = `amqp://${host}:${tapped.port}`;
      const sender = await queues.open({ url, exchange: queue, routingKey: '{tenantId}.{topic}' });
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
      const [arrived] = await queues.inQueue(queue);
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

    it('M11 is a CloudEvent that other clients can read, if configured', async () => {
      const exchange = await queues.makeQueue();
      const sender = await queues.open({ exchange, format: 'cloudevents', source: '/shop' });
      const [message] = messagesOf(1, () => ({
        topic: 'order.placed',
        key: 'Zoë',
        headers: JSON.stringify({ 'cloudEvents:id': 'another', colour: 'green' }),
      }));
      expect(await sender.send([message])).toMatchObject([{ kind: 'delivered' }]);
      const [arrived] = await queues.inQueue(exchange);
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
      const red = await queues.makeQueue(['red.*']);
      const blue = await queues.makeQueue([]);
      await queues.broker.use((channel) =>
        channel.queueBind({ exchange: red, queue: blue, routingKey: 'blue.*' }),
      );
      const sender = await queues.open({ exchange: red, routingKey: '{aggregateType}.{topic}' });
      const [first, second, third] = messagesOf(3, (index) => ({
        topic: 'x',
        aggregateType: index === 0 ? 'red' : 'blue',
        aggregateId: '1',
      }));
      await sender.sendUntilDelivered([first, second]);
      const direct = await queues.open({ routingKey: red });
      await direct.sendUntilDelivered([third]);
      expect(await queues.idsIn(red)).toEqual([first.id, third.id]);
      expect(await queues.idsIn(blue)).toEqual([second.id]);
    });
  });

  describe('P10 delivery fails for', () => {
    it('a missing exchange, and for no other exchange of the same batch', async () => {
      const exchange = await queues.makeQueue();
      const sender = await queues.open({ exchange: '{namespace}' });
      const messages = messagesOf(60, (index) => ({
        namespace: index % 3 === 0 ? 'nowhere' : exchange,
      }));
      const outcomes = await sender.send(messages);
      expect(outcomes.map(nameOf)).toEqual(
        messages.map((_, index) => (index % 3 === 0 ? 'retry exchange_missing' : 'delivered')),
      );
      expect(outcomes[0]).toMatchObject({ remoteCode: 'NOT_FOUND' });
      expect(await queues.idsIn(exchange)).toHaveLength(40);
    });

    it('a missing exchange, until it is created', async () => {
      const queue = await queues.makeQueue();
      const exchange = `${queue}-later`;
      const sender = await queues.open({ exchange });
      const [message] = messagesOf(1);
      expect((await sender.send([message])).map(nameOf)).toEqual(['retry exchange_missing']);
      await queues.broker.use(async (channel) => {
        await channel.exchangeDeclare({ exchange, type: 'fanout' });
        await channel.queueBind({ exchange, queue });
      });
      expect((await sender.send([message])).map(nameOf)).toEqual(['delivered']);
      expect(await queues.idsIn(queue)).toEqual([message.id]);
    });

    it('a message that is too large, and for no other message in flight', async () => {
      const exchange = await queues.makeQueue();
      const sender = await queues.open({ exchange });
      const large = JSON.stringify('x'.repeat(largestBytes + 1));
      const messages = messagesOf(30, (index) => (index % 10 === 5 ? { payload: large } : {}));
      const outcomes = await sender.send(messages);
      expect(outcomes.map(nameOf)).toEqual(
        messages.map((_, index) => (index % 10 === 5 ? 'reject message_too_large' : 'delivered')),
      );
      const small = messages.filter((_, index) => index % 10 !== 5).map(({ id }) => id);
      expect([...new Set(await queues.idsIn(exchange))].toSorted()).toEqual(small.toSorted());
    });

    it('a full queue that refuses', async () => {
      const exchange = await queues.makeQueue(['#'], {
        'x-max-length': 1,
        'x-overflow': 'reject-publish',
      });
      const sender = await queues.open({ exchange });
      await sender.sendUntilDelivered(messagesOf(1));
      // the queue may not count its last message yet
      const outcomes = await waitFor(
        async () => {
          const [outcome] = await sender.send(messagesOf(1));
          return outcome?.kind === 'delivered' ? undefined : outcome;
        },
        { what: 'the queue to refuse' },
      );
      expect(outcomes).toMatchObject({ kind: 'retry', code: 'nacked', remoteCode: 'NACK' });
    });

    it('a missing field, and names and headers that the protocol cannot carry, while the rest arrives', async () => {
      const exchange = await queues.makeQueue();
      const sender = await queues.open({ exchange, routingKey: '{key}' });
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

    it('a broker without memory, which accepts messages again later', async () => {
      const exchange = await queues.makeQueue();
      const sender = await queues.open({ exchange });
      await sender.sendUntilDelivered(messagesOf(1));
      const [first, second] = messagesOf(2);
      await queues.broker.control('set_vm_memory_high_watermark', 'absolute', '1');
      onTestFinished(() => queues.broker.control('set_vm_memory_high_watermark', '0.4'));
      const blocked = { kind: 'retry', code: 'destination_full' };
      expect(await sender.send([first])).toMatchObject([blocked]);
      expect(await sender.send([second])).toMatchObject([blocked]);
      expect(await sender.health()).toMatchObject({ ok: false });
      await queues.broker.control('set_vm_memory_high_watermark', '0.4');
      await sender.sendUntilDelivered([first, second]);
      expect(await sender.health()).toEqual({ ok: true });
    }, 60_000);
  });

  it('P2 M11 a relay keeps the order of each key, and stores the receipt with the attempt', async () => {
    const exchange = await queues.makeQueue();
    const name = 'rabbitmq-relay';
    await startRelay(db, {
      destinations: { [name]: rabbitmq({ url: queues.broker.url, exchange }) },
    });
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
    const arrived = await queues.idsIn(exchange);
    for (const [offset] of keys.entries())
      expect(arrived.filter((id) => ids.indexOf(id) % 3 === offset)).toEqual(
        ids.filter((_, n) => n % 3 === offset),
      );
    const [first = ''] = ids;
    expect(await attemptsOf(db, first, name)).toMatchObject([
      { state: 'dispatched', reference: first },
    ]);
  });

  it('health reports whether the exchange exists', async () => {
    const exchange = await queues.makeQueue();
    expect(await (await queues.open({ exchange })).health()).toEqual({ ok: true });
    expect(await (await queues.open({ exchange: '{topic}' })).health()).toEqual({ ok: true });
    expect(await (await queues.open({ exchange: 'nowhere' })).health()).toMatchObject({
      ok: false,
      problem: expect.stringContaining('exchange_missing (NOT_FOUND)') as unknown,
    });
  });

  it('there may be more exchanges than cached channels', async () => {
    const exchange = await queues.makeQueue();
    const sender = await queues.open({ exchange: '{namespace}', routingKey: 'k' });
    const names = Array.from({ length: 100 }, (_, index) => `${exchange}-${index}`);
    await queues.broker.use(async (channel) => {
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
    expect(await queues.idsIn(exchange)).toHaveLength(200);
  });
});

function nameOf(outcome: Outcome): string {
  return 'code' in outcome ? `${outcome.kind} ${outcome.code}` : outcome.kind;
}

/** Forwards everything, and records what was sent. */
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
