// Messages that NATS JetStream refuses, on a real server: the outcome of each error.

import type { StreamConfig } from '@nats-io/jetstream';
import { describe, expect, it, onTestFinished } from 'vitest';

import { nats } from '../../src/destinations/nats/nats.js';
import { natsStreams, withoutNats } from './nats-streams.js';
import { Sender, messagesOf } from './sender.js';
import { startNats } from './services/nats.js';

describe.skipIf(withoutNats)('nats', () => {
  const streams = natsStreams();

  describe('P10 a message cannot be delivered when', () => {
    it('another stream takes the subject', async () => {
      const name = await streams.makeStream();
      const other = await streams.makeStream();
      const sender = await streams.open({ subject: `${name}.{topic}`, stream: other });
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'stream_mismatch', remoteCode: '10060' },
      ]);
      expect([...(await streams.stored(name)), ...(await streams.stored(other))]).toEqual([]);
      const right = await streams.open({ subject: `${name}.{topic}`, stream: name });
      expect(await right.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
    });

    it('no stream takes the subject, even if another client listens and answers', async () => {
      const sender = await streams.open({ subject: 'unclaimed.{topic}' });
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'stream_missing', remoteCode: 'NoResponders' },
      ]);
      await streams.server.use(async (connection) => {
        let answer = '';
        connection.subscribe('unclaimed.>', {
          callback: (_error, each) => void each.respond(answer),
        });
        await connection.flush();
        for (answer of ['{}', '{"stream":"x"}', '{"stream":"","seq":1}', 'null', 'thank you'])
          expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'retry' }]);
      });
    });

    it('the stream is full, or accepts only smaller messages', async () => {
      const full = await streams.makeStream({
        max_msgs: 1,
        discard: 'new' as StreamConfig['discard'],
      });
      const sender = await streams.open({ subject: `${full}.{topic}` });
      expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'store_failed', remoteCode: '10077' },
      ]);
      const small = await streams.makeStream({ max_msg_size: 300 });
      const other = await streams.open({ subject: `${small}.{topic}` });
      const payload = JSON.stringify('x'.repeat(300));
      expect(await other.send(messagesOf(1, () => ({ payload })))).toMatchObject([
        { kind: 'reject', code: 'message_too_large', remoteCode: '10054' },
      ]);
    });

    it.each([
      ['spaces', 'a b'],
      ['a wildcard', '*'],
      ['the wildcard for the rest', '>'],
      ['an empty word', 'a..b'],
      ['a dot at the end', 'a.'],
    ])('the subject has %s', async (_what, key) => {
      const sender = await streams.open({ subject: 'keys.{key}' });
      expect(await sender.send(messagesOf(1, () => ({ key })))).toMatchObject([
        { kind: 'reject', code: 'subject_invalid' },
      ]);
    });

    it('the subject is a command to the server', async () => {
      const name = await streams.makeStream();
      const sender = await streams.open({ subject: '{key}' });
      const key = `$JS.API.STREAM.DELETE.${name}`;
      expect(await sender.send(messagesOf(1, () => ({ key })))).toMatchObject([
        { kind: 'reject', code: 'subject_invalid' },
      ]);
      expect(await streams.stored(name)).toEqual([]);
    });

    it('a field is missing, or NATS cannot carry a header', async () => {
      const name = await streams.makeStream();
      const sender = await streams.open({ subject: `${name}.{key}` });
      const bad = [{ 'a b': '1' }, { 'a:b': '1' }, { a: 'one\r\nNats-Rollup: all' }];
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'reject', code: 'name_incomplete' },
      ]);
      for (const headers of bad) {
        const message = messagesOf(1, () => ({ key: 'k', headers: JSON.stringify(headers) }));
        expect(await sender.send(message)).toMatchObject([
          { kind: 'reject', code: 'header_invalid' },
        ]);
      }
      expect(await streams.stored(name)).toEqual([]);
    });

    it('the server has no JetStream', async () => {
      const plain = await startNats({ more: 'jetstream: disabled' });
      onTestFinished(() => plain.stop());
      const sender = await Sender.open(nats({ servers: plain.url }));
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'stream_missing' },
      ]);
      expect(await sender.health()).toMatchObject({ ok: false });
    });
  });
});
