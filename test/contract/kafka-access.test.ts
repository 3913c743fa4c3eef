// Access to Kafka: passwords, certificates, rights and missing topics; invalid options, and a missing client library.

import zlib from 'node:zlib';

import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { kafka } from '../../src/destinations/kafka/kafka.js';
import type { KafkaOptions } from '../../src/destinations/kafka/kafka.js';
import { kafkaUnavailable, startKafka } from '../support/kafka-broker.js';
import type { KafkaBroker } from '../support/kafka-broker.js';
import { createTopics, forbidWriting, idsIn, topicNames } from '../support/kafka-client.js';
import { credentials } from '../support/kafka-properties.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { Sender, messagesOf } from './sender.js';
import type { Address } from './services/service.js';
import { openWithoutLibraries } from './without-libraries.js';

const unavailable = kafkaUnavailable();
if (unavailable !== null) {
  if (process.env['CI']) throw new Error(unavailable);
  console.warn(`The tests of kafka are left out: ${unavailable}.`);
}
const startMs = 90_000;
const at = ({ host, port }: Address): string => `${host}:${port}`;

describe.skipIf(unavailable !== null)('a Kafka', { timeout: 60_000 }, () => {
  let broker: KafkaBroker;
  beforeAll(async () => {
    broker = await startKafka({ tls: true });
    await createTopics(broker.direct, { open: {}, forbidden: {} });
    await forbidWriting(broker.direct, 'forbidden', credentials.username);
  }, startMs);
  afterAll(() => broker?.stop(), startMs);

  const open = (address: Address, options: Partial<KafkaOptions> = {}): Promise<Sender> =>
    Sender.open(kafka({ brokers: [at(address)], topic: 'open', ...options }));

  describe('with passwords', () => {
    it.each(['plain', 'scram-sha-256', 'scram-sha-512'] as const)(
      'accepts messages from a client that logs in with %s',
      async (mechanism) => {
        const sender = await open(broker.withPassword, { sasl: { mechanism, ...credentials } });
        expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
        expect(await sender.health()).toEqual({ ok: true });
      },
    );

    it.each(['plain', 'scram-sha-256', 'scram-sha-512'] as const)(
      'P10 a wrong one (%s) pauses the destination, and is never shown',
      async (mechanism) => {
        const sasl = { mechanism, ...credentials, password: 'geheim' };
        const sender = await open(broker.withPassword, { sasl });
        const outcomes = await sender.send(messagesOf(1));
        expect(outcomes).toMatchObject([
          {
            kind: 'pause',
            code: 'not_authenticated',
            remoteCode: 'SASL_AUTHENTICATION_FAILED',
          },
        ]);
        expect(JSON.stringify([outcomes, await sender.health()])).not.toContain('geheim');
      },
    );

    it('a missing one is a failed connection', async () => {
      const sender = await open(broker.withPassword);
      expect(await sender.send(messagesOf(1), 5000)).toMatchObject([
        { kind: 'retry', code: 'connection_failed' },
      ]);
    });

    it('P10 C8 one forbidden topic among many is retried, while the others arrive', async () => {
      const sender = await open(broker.withPassword, {
        topic: '{topic}',
        sasl: { mechanism: 'plain', ...credentials },
      });
      const messages = messagesOf(3, (n) => ({ topic: n === 1 ? 'forbidden' : 'open' }));
      expect(await sender.send(messages)).toMatchObject([
        { kind: 'delivered' },
        { kind: 'retry', code: 'not_authorized', remoteCode: 'TOPIC_AUTHORIZATION_FAILED' },
        { kind: 'delivered' },
      ]);
    });

    it('P10 a forbidden topic pauses the destination if it is the only one', async () => {
      const sender = await open(broker.withPassword, {
        topic: 'forbidden',
        sasl: { mechanism: 'plain', ...credentials },
      });
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'pause', code: 'not_authorized', remoteCode: 'TOPIC_AUTHORIZATION_FAILED' },
      ]);
    });
  });

  describe('with TLS', () => {
    it('accepts messages from a client that trusts its certificate', async () => {
      const sender = await open(broker.withTls, { tls: { ca: broker.certificate } });
      expect(await sender.send(messagesOf(1))).toMatchObject([{ kind: 'delivered' }]);
    });

    it.each<[string, KafkaOptions['tls'], string]>([
      ['an unknown certificate', true, 'DEPTH_ZERO_SELF_SIGNED_CERT'],
      [
        'a certificate for another name',
        { servername: 'other.example' },
        'ERR_TLS_CERT_ALTNAME_INVALID',
      ],
    ])('%s is refused by the client', async (_what, tls, remoteCode) => {
      const given = typeof tls === 'object' ? { ...tls, ca: broker.certificate } : tls;
      const sender = await open(broker.withTls, { ...(given !== undefined && { tls: given }) });
      expect(await sender.send(messagesOf(1), 5000)).toMatchObject([
        { kind: 'retry', code: 'connection_failed', remoteCode },
      ]);
    });
  });

  describe('without the topic', () => {
    it('is not asked to create it, unless that is allowed', async () => {
      const sender = await open(broker.direct, { topic: 'not-wanted' });
      expect(await sender.send(messagesOf(1))).toMatchObject([
        { kind: 'retry', code: 'topic_missing' },
      ]);
      expect(await sender.health()).toEqual({
        ok: false,
        problem: 'topic not-wanted: UNKNOWN_TOPIC_OR_PARTITION',
      });
      const topic = 'wanted-{topic}';
      const creating = await open(broker.direct, { topic, allowAutoTopicCreation: true });
      const [message] = messagesOf(1, () => ({ topic: 'x' }));
      await creating.sendUntilDelivered([message]);
      expect(await idsIn(broker.direct, 'wanted-x')).toEqual([message.id]);
      // a topic that was requested earlier would exist by now
      expect(await topicNames(broker.direct)).not.toContain('not-wanted');
    });
  });

  it('M12 that does not answer keeps no connection open after the close', async () => {
    const proxy = await TcpProxy.open();
    onTestFinished(() => proxy.close());
    proxy.leadTo(broker.throughProxy);
    proxy.behaviour = 'silent';
    const sender = await open(proxy.address);
    const sent = sender.send(messagesOf(1), 30_000);
    await waitFor(() => proxy.connections > 0, { what: 'a connection' });
    await sender.close();
    // long before the timeout of the call
    await waitFor(() => proxy.connections === 0, { what: 'the connection to be closed' });
    expect(await sent).toMatchObject([{ kind: 'retry', code: 'connection_failed' }]);
  });
});

it('a broker address without a listener does not keep the destination from opening', async () => {
  const sender = await Sender.open(kafka({ brokers: ['127.0.0.1:1'], topic: 'a' }));
  expect(await sender.send(messagesOf(1), 5000)).toMatchObject([
    { kind: 'retry', code: 'connection_failed', remoteCode: 'ECONNREFUSED' },
  ]);
  expect(await sender.health()).toEqual({
    ok: false,
    problem: 'no broker can be asked: connect ECONNREFUSED 127.0.0.1:1',
  });
});

it('M11 a missing library is named when the destination is opened', async () => {
  const said = await openWithoutLibraries(
    'kafka/kafka.js',
    "kafka({ brokers: ['127.0.0.1:1'], topic: 'a' })",
  );
  expect(said).toBe(
    'configuration_invalid kafka() needs the package @platformatic/kafka, which is not installed: npm install @platformatic/kafka',
  );
});

describe('the options', () => {
  const sound: KafkaOptions = { brokers: ['kafka-1:9092'], topic: '{topic}' };

  it.each<[string, object, RegExp]>([
    ['no brokers', { brokers: [] }, /^kafka\.brokers is \[\]: give a list/],
    [
      'a broker without a port',
      { brokers: ['kafka-1'] },
      /^kafka\.brokers\[0\] is "kafka-1": give the host/,
    ],
    ['a broker with a scheme', { brokers: ['kafka://a:1'] }, /^kafka\.brokers\[0\] is /],
    ['an invalid port', { brokers: ['a:70000'] }, /^kafka\.brokers\[0\] is "a:70000"/],
    ['no topic', { topic: undefined }, /^kafka\.topic is undefined: give text/],
    ['an unknown field', { topic: '{nope}' }, /^kafka\.topic is "\{nope\}": in braces use topic, /],
    [
      'another format',
      { format: 'avro' },
      /^kafka\.format is "avro": give 'plain' or 'cloudevents'/,
    ],
    [
      'another compression',
      { compression: 'brotli' },
      /^kafka\.compression is "brotli": give 'none' or 'gzip'/,
    ],
    [
      'an empty batch',
      { batchSize: 0 },
      /^kafka\.batchSize is 0: give a whole number from 1 to 10000/,
    ],
    [
      'too many calls',
      { concurrency: 101 },
      /^kafka\.concurrency is 101: give a whole number from 1 to 100/,
    ],
    ['a client id with a space', { clientId: 'a b' }, /^kafka\.clientId is "a b": give letters/],
    [
      'text for a flag',
      { allowAutoTopicCreation: 'yes' },
      /^kafka\.allowAutoTopicCreation is "yes"/,
    ],
    ['an option that does not exist', { acks: 1 }, /^kafka\.acks is not an option: use .*brokers/],
    [
      'another mechanism',
      { sasl: { mechanism: 'gssapi', username: 'a', password: 'b' } },
      /^kafka\.sasl\.mechanism is "gssapi"/,
    ],
    [
      'a login without a name',
      { sasl: { mechanism: 'plain', password: 'geheim' } },
      /^kafka\.sasl\.username is undefined/,
    ],
    [
      'a password that is not text',
      { sasl: { username: 'a', password: ['geheim'] } },
      /^kafka\.sasl\.password is "…"/,
    ],
    ['a login as text', { sasl: 'user:geheim' }, /^kafka\.sasl is "…"/],
    [
      'a password in the address',
      { brokers: ['user:geheim@kafka-1:9092'] },
      /^kafka\.brokers\[0\] is "…"/,
    ],
    ['a key that is not text', { tls: { key: { geheim: 1 } } }, /^kafka\.tls\.key is "…"/],
    [
      'certificates that are not checked',
      { tls: { rejectUnauthorized: false } },
      /^kafka\.tls\.rejectUnauthorized is not an option/,
    ],
  ])('%s is refused, and no secret is shown', (_what, wrong, problem) => {
    const make = (): unknown => kafka({ ...sound, ...wrong });
    expect(make).toThrow(problem);
    expect(make).not.toThrow(/geheim/);
  });

  it.runIf(!('zstdCompressSync' in zlib))('zstd is refused by a Node version without it', () => {
    expect(() => kafka({ ...sound, compression: 'zstd' })).toThrow(
      /^kafka\.compression is "zstd": use another one: this Node cannot do it/,
    );
  });

  it.each([['[::1]:9092'], ['10.0.0.1:9092'], ['kafka-1.example.com:9092']])(
    '%s is a broker',
    (broker) => {
      expect(kafka({ ...sound, brokers: [broker] }).kind).toBe('kafka');
    },
  );
});
