// NATS JetStream on a real server: what an acknowledgement means, what arrives, and how a relay uses it. Refusals are
// in nats-refusals.test.ts, access in nats-access.test.ts.

import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';

import { HTTP } from 'cloudevents';
import type { CloudEvent } from 'cloudevents';
import { describe, expect, it, onTestFinished } from 'vitest';

import { nats } from '../../src/destinations/nats/nats.js';
import { testDatabase } from '../support/postgres.js';
import { attemptsOf, send, startRelay, untilPlaces } from '../support/relay.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { natsStreams, withoutNats } from './nats-streams.js';
import { Sender, messagesOf } from './sender.js';

const db = testDatabase();

describe.skipIf(withoutNats)('nats', () => {
  const streams = natsStreams();

  describe('an acknowledgement', () => {
    it('M11 is the position in the stream; a repeated message is a duplicate, which is a success', async () => {
      const name = await streams.makeStream();
      const sender = await streams.open({ subject: `${name}.{topic}` });
      const [first, second] = messagesOf(2);
      expect(await sender.send([first])).toEqual([{ kind: 'delivered', reference: `${name}/1` }]);
      expect(await sender.send([second])).toEqual([{ kind: 'delivered', reference: `${name}/2` }]);
      expect(await sender.send([first])).toEqual([
        { kind: 'delivered', reference: `${name}/1`, remoteCode: 'duplicate' },
      ]);
      expect(await streams.stored(name)).toHaveLength(2);
    });

    it('M11 of one destination is not mistaken for that of another one with the same stream', async () => {
      const name = await streams.makeStream();
      const ledger = await streams.open({ subject: `${name}.ledger.{topic}` });
      const mail = await streams.open({ subject: `${name}.mail.{topic}` });
      const messages = messagesOf(1);
      expect(await ledger.send(messages)).toEqual([{ kind: 'delivered', reference: `${name}/1` }]);
      expect(await mail.send(messages)).toEqual([{ kind: 'delivered', reference: `${name}/2` }]);
      expect(await streams.stored(name)).toHaveLength(2);
    });

    it('M11 that was lost costs no second message', async () => {
      const name = await streams.makeStream();
      const proxy = await TcpProxy.open();
      onTestFinished(() => proxy.close());
      proxy.leadTo(streams.server.address);
      const sender = await Sender.open(
        nats({
          servers: `${proxy.address.host}:${proxy.address.port}`,
          subject: `${name}.{topic}`,
        }),
      );
      const [first, second] = messagesOf(2);
      await sender.sendUntilDelivered([first]);
      proxy.behaviour = { delayMs: 400 };
      expect(await sender.send([second], 500)).toMatchObject([{ kind: 'retry', code: 'timeout' }]);
      proxy.behaviour = 'pass';
      await sender.sendUntilDelivered([second]);
      const ids = (await streams.stored(name)).map(({ headers }) => headers['waybill-id']);
      expect(ids).toEqual([first.id, second.id]);
    });

    it('of many messages is awaited concurrently, without a round trip for each', async () => {
      const name = await streams.makeStream();
      const proxy = await TcpProxy.open();
      onTestFinished(() => proxy.close());
      proxy.leadTo(streams.server.address);
      const sender = await Sender.open(
        nats({
          servers: `${proxy.address.host}:${proxy.address.port}`,
          subject: `${name}.{topic}`,
        }),
      );
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
    it('M11 is the exact payload, with the headers of the message and of Waybill', async () => {
      const name = await streams.makeStream();
      const sender = await streams.open({ subject: `${name}.{tenantId}.{topic}` });
      const payload = '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}';
      const [message] = messagesOf(1, () => ({
        payload,
        topic: 'order.placed',
        tenantId: 'acme',
        key: 'order-1',
        sequence: '7',
        headers: JSON.stringify({ colour: 'grün', 'waybill-id': 'another' }),
      }));
      expect(await sender.send([message])).toMatchObject([{ kind: 'delivered' }]);
      expect(await streams.stored(name)).toEqual([
        {
          subject: `${name}.acme.order.placed`,
          body: payload,
          headers: {
            'Nats-Msg-Id': `${message.id} ${name}.acme.order.placed`,
            colour: 'grün',
            'waybill-id': message.id,
            'waybill-topic': 'order.placed',
            'waybill-namespace': 'default',
            'waybill-created-at': '2026-01-02T03:04:05.678Z',
            'waybill-tenant': 'acme',
            'waybill-key': 'order-1',
            'waybill-sequence': '7',
          },
        },
      ]);
    });

    it('M11 is a CloudEvent that other clients can read, if configured', async () => {
      const name = await streams.makeStream();
      const sender = await streams.open({ subject: `${name}.{topic}`, format: 'cloudevents' });
      const [message] = messagesOf(1, () => ({
        topic: 'order.placed',
        key: 'Zoë 100 % "sure"',
        sequence: '7',
        headers: JSON.stringify({ 'CE-id': 'another', colour: 'green' }),
      }));
      expect(await sender.send([message])).toMatchObject([{ kind: 'delivered' }]);
      const [arrived] = await streams.stored(name);
      if (arrived === undefined) throw new Error('nothing arrived');
      expect(arrived.headers).toMatchObject({
        'Nats-Msg-Id': `${message.id} ${name}.order.placed`,
        colour: 'green',
        'ce-datacontenttype': 'application/json',
        'ce-partitionkey': 'Zo%C3%AB%20100%20%25%20%22sure%22',
      });
      expect(Object.keys(arrived.headers)).not.toContain('CE-id');
      expect(Object.keys(arrived.headers).filter((each) => each.startsWith('waybill-'))).toEqual(
        [],
      );
      const event = HTTP.toEvent({
        headers: { ...arrived.headers, 'content-type': 'application/json' },
        body: arrived.body,
      }) as CloudEvent<unknown>;
      expect(event.validate()).toBe(true);
      expect(event).toMatchObject({
        id: message.id,
        source: '/waybill/default',
        type: 'order.placed',
        time: '2026-01-02T03:04:05.678Z',
        sequence: '0000000000000000007',
        data: { is: 'small' },
      });
    });

    it('has no header that would command the stream', async () => {
      const name = await streams.makeStream({ allow_rollup_hdrs: true });
      const sender = await streams.open({ subject: `${name}.{topic}` });
      const [first, second] = messagesOf(2, (index) => ({
        headers: index === 0 ? null : JSON.stringify({ 'Nats-Rollup': 'all', 'nats-x': '1' }),
      }));
      expect(await sender.send([first])).toMatchObject([{ kind: 'delivered' }]);
      expect(await sender.send([second])).toMatchObject([{ kind: 'delivered' }]);
      const headers = (await streams.stored(name)).map((each) => Object.keys(each.headers));
      expect(headers).toHaveLength(2);
      expect(headers[1]?.filter((each) => /^nats-/i.test(each))).toEqual(['Nats-Msg-Id']);
    });
  });

  describe('health', () => {
    it('reports whether the stream exists', async () => {
      const name = await streams.makeStream();
      expect(await (await streams.open({ stream: name })).health()).toEqual({ ok: true });
      expect(await (await streams.open({})).health()).toEqual({ ok: true });
      expect(await (await streams.open({ stream: 'missing' })).health()).toEqual({
        ok: false,
        problem: 'stream_missing (10059): stream not found',
      });
    });
  });

  it('P2 M11 a relay keeps the order of each key, and stores the receipt with the attempt', async () => {
    const stream = await streams.makeStream();
    const name = 'nats-relay';
    await startRelay(db, {
      destinations: { [name]: nats({ servers: streams.server.url, subject: `${stream}.{topic}` }) },
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
    const arrived = (await streams.stored(stream)).map(
      ({ headers }) => headers['waybill-id'] ?? '',
    );
    for (const [offset] of keys.entries())
      expect(arrived.filter((id) => ids.indexOf(id) % 3 === offset)).toEqual(
        ids.filter((_, n) => n % 3 === offset),
      );
    const [first = ''] = ids;
    expect(await attemptsOf(db, first, name)).toMatchObject([
      { state: 'dispatched', reference: `${stream}/${arrived.indexOf(first) + 1}` },
    ]);
  });

  it('the first server that answers is used', async () => {
    const name = await streams.makeStream();
    const rude = createServer((socket) => socket.end()).listen(0, '127.0.0.1');
    onTestFinished(() => void rude.close());
    await once(rude, 'listening');
    const sender = await streams.open({
      servers: [
        '127.0.0.1:1',
        `127.0.0.1:${(rude.address() as AddressInfo).port}`,
        streams.server.url,
      ],
      subject: `${name}.{topic}`,
    });
    expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
  });
});
