// Kafka on a real broker: order by key, batches that fail in part, sequence numbers by which a broker recognises
// duplicates, and the contents of a record.

import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';

import { ConnectionPool, NumericMap, initProducerIdV5, produceV11 } from '@platformatic/kafka';
import { Kafka } from 'cloudevents';
import type { KafkaMessage } from 'cloudevents';
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';

import type { BatchDestination } from '../../src/destinations/destination.js';
import { kafka } from '../../src/destinations/kafka/kafka.js';
import type { KafkaOptions } from '../../src/destinations/kafka/kafka.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import type { Outcome } from '../../src/core/outcome.js';
import { claimedMessage } from '../support/claimed-message.js';
import { kafkaClassPath, kafkaUnavailable, startKafka } from '../support/kafka-broker.js';
import type { KafkaBroker } from '../support/kafka-broker.js';
import { createTopics, idsIn, readTopic } from '../support/kafka-client.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { waitFor } from '../support/wait.js';
import { fields, messagesOf } from './sender.js';

const unavailable = kafkaUnavailable();
if (unavailable !== null) {
  if (process.env['CI']) throw new Error(unavailable);
  console.warn(`The tests of kafka are left out: ${unavailable}.`);
}
const startMs = 90_000;
const caseMs = 60_000;

describe.skipIf(unavailable !== null)('Kafka', { timeout: caseMs }, () => {
  let proxy: TcpProxy;
  let broker: KafkaBroker;
  let topicCount = 0;

  beforeAll(async () => {
    proxy = await TcpProxy.open();
    broker = await startKafka({ through: proxy.address });
    proxy.leadTo(broker.throughProxy);
  }, startMs);
  afterAll(async () => {
    await proxy?.close();
    await broker?.stop();
  }, startMs);
  beforeEach(() => proxy.comeBack());

  async function newTopic(settings: Record<string, string> = {}, partitions = 1): Promise<string> {
    topicCount += 1;
    const name = `topic-${topicCount}`;
    await createTopics(broker.direct, { [name]: settings }, partitions);
    return name;
  }

  async function opened(options: Partial<KafkaOptions> = {}): Promise<BatchDestination> {
    const { host, port } = proxy.address;
    const destination = kafka({ brokers: [`${host}:${port}`], topic: '{topic}', ...options });
    await destination.open?.();
    onTestFinished(() => destination.close?.());
    return destination;
  }

  function deliver(
    destination: BatchDestination,
    messages: readonly ClaimedMessage[],
    signal: AbortSignal = new AbortController().signal,
  ): Promise<readonly Outcome[]> {
    return destination.deliverBatch(messages, { signal });
  }

  const kinds = (outcomes: readonly Outcome[]): string[] => outcomes.map(({ kind }) => kind);
  const idsOf = (messages: readonly ClaimedMessage[]): string[] => messages.map(({ id }) => id);

  describe('order', () => {
    it('C8 messages of one key arrive in order on the partition that the Java client chooses, also while calls overlap', async () => {
      const topic = await newTopic({}, 6);
      const destination = await opened();
      const calls = [0, 1, 2].map(async (call) => {
        for (let round = 0; round < 8; round += 1) {
          const messages = messagesOf(10, (n) => ({
            topic,
            key: `key-${call}-${n}`,
            payload: String(round),
          }));
          expect(kinds(await deliver(destination, messages))).toEqual(
            idsOf(messages).map(() => 'delivered'),
          );
        }
      });
      await Promise.all(calls);
      const records = readWithJava(broker, topic);
      const rounds = new Map<string, string[]>();
      for (const { key, value, partition, chosenByJava } of records) {
        expect(partition).toBe(chosenByJava);
        rounds.set(key, [...(rounds.get(key) ?? []), value]);
      }
      expect(rounds.size).toBe(30);
      for (const values of rounds.values())
        expect(values).toEqual(['0', '1', '2', '3', '4', '5', '6', '7']);
      expect(new Set(records.map(({ partition }) => partition)).size).toBe(6);
    });

    it('messages without a key have no record key, share a partition within a call, and change it between calls', async () => {
      const topic = await newTopic({}, 3);
      const destination = await opened();
      for (let call = 0; call < 3; call += 1)
        await deliver(
          destination,
          messagesOf(5, () => ({ topic })),
        );
      const arrived = await readTopic(broker.direct, topic);
      expect(arrived.map(({ key }) => key)).toEqual(arrived.map(() => null));
      expect(arrived.map(({ partition }) => partition)).toEqual(
        [0, 1, 2].flatMap((n) => Array<number>(5).fill(n)),
      );
    });

    it('C8 concurrent calls to one partition all arrive, because each has its own numbers', async () => {
      const topic = await newTopic();
      const destination = await opened();
      const batches = Array.from({ length: 10 }, () => messagesOf(20, () => ({ topic })));
      const outcomes = await Promise.all(batches.map((batch) => deliver(destination, batch)));
      expect(new Set(outcomes.flatMap(kinds))).toEqual(new Set(['delivered']));
      expect((await idsIn(broker.direct, topic)).toSorted()).toEqual(
        batches.flatMap(idsOf).toSorted(),
      );
    });
  });

  describe('a batch that fails in part', () => {
    it('C8 P10 keeps the result of each message, and valid messages arrive once', async () => {
      const topic = await newTopic();
      const destination = await opened({ topic: '{aggregateType}' });
      const large = JSON.stringify('x'.repeat(1_100_000));
      const messages = messagesOf(7, (n) => ({
        aggregateType:
          [topic, topic, topic, 'no-such-topic', 'not/a topic', null, topic][n] ?? null,
        ...(n === 1 && { payload: large }),
      }));
      const outcomes = await deliver(destination, messages);
      expect(outcomes).toMatchObject([
        { kind: 'delivered', reference: `${topic}/0/0` },
        { kind: 'reject', code: 'message_too_large', remoteCode: 'MESSAGE_TOO_LARGE' },
        { kind: 'delivered', reference: `${topic}/0/1` },
        { kind: 'retry', code: 'topic_missing', remoteCode: 'UNKNOWN_TOPIC_OR_PARTITION' },
        { kind: 'reject', code: 'topic_invalid', remoteCode: 'INVALID_TOPIC_EXCEPTION' },
        { kind: 'reject', code: 'name_incomplete' },
        { kind: 'delivered', reference: `${topic}/0/2` },
      ]);
      const good = [0, 2, 6].map((n) => messages[n]?.id);
      expect(await idsIn(broker.direct, topic)).toEqual(good);
    });

    it('C8 the records that the broker names are refused, and the others of their batch are not', async () => {
      const topic = await newTopic({ 'cleanup.policy': 'compact' });
      const destination = await opened();
      const messages = messagesOf(9, (n) => ({ topic, key: n % 3 === 1 ? null : `k${n}` }));
      const outcomes = await deliver(destination, messages);
      const refused = { kind: 'reject', code: 'record_invalid', remoteCode: 'INVALID_RECORD' };
      expect(outcomes).toMatchObject(
        messages.map(({ key }) => (key === null ? refused : { kind: 'delivered' })),
      );
      const good = idsOf(messages.filter(({ key }) => key !== null));
      expect(await idsIn(broker.direct, topic)).toEqual(good);
    });

    it('C8 a message behind a refused one of its key is not sent before it', async () => {
      const topic = await newTopic();
      const destination = await opened();
      const large = JSON.stringify('x'.repeat(1_100_000));
      const messages = messagesOf(4, (n) => ({
        topic,
        key: n === 3 ? 'other' : 'one',
        ...(n === 1 && { payload: large }),
      }));
      expect(kinds(await deliver(destination, messages))).toEqual([
        'delivered',
        'reject',
        'release',
        'delivered',
      ]);
    });

    it.each([
      ['the batch limit of a broker', {}, 40, 60_000],
      ['a smaller limit of the topic', { 'max.message.bytes': '20000' }, 60, 1000],
    ])('C8 a batch above %s arrives in parts, in order', async (_what, settings, count, bytes) => {
      const topic = await newTopic(settings);
      const destination = await opened();
      const payload = JSON.stringify('x'.repeat(bytes));
      const messages = messagesOf(count, () => ({ topic, payload, key: 'one' }));
      const outcomes = await deliver(destination, messages);
      expect(outcomes).toEqual(
        messages.map((_, n) => ({ kind: 'delivered', reference: `${topic}/0/${n}` })),
      );
      expect(await idsIn(broker.direct, topic)).toEqual(idsOf(messages));
    });
  });

  describe('a batch with an unknown result', () => {
    it('is sent again with its number when the broker is back, and is stored once', async () => {
      const topic = await newTopic();
      const destination = await opened({ timeoutMs: 60_000 });
      await deliver(
        destination,
        messagesOf(3, () => ({ topic })),
      );
      proxy.behaviour = 'unanswered';
      const messages = messagesOf(20, () => ({ topic }));
      const outcomes = deliver(destination, messages);
      await waitFor(async () => (await idsIn(broker.direct, topic)).length === 23, {
        what: 'the batch',
      });
      await broker.kill();
      proxy.behaviour = 'pass';
      await broker.restart();
      expect(await outcomes).toEqual(
        messages.map((_, n) => ({ kind: 'delivered', reference: `${topic}/0/${n + 3}` })),
      );
      const arrived = await idsIn(broker.direct, topic);
      expect(arrived.slice(3)).toEqual(idsOf(messages));
    });

    it('keeps its numbers when it is given up: the next batch is not taken for a duplicate', async () => {
      const topic = await newTopic();
      const destination = await opened();
      await deliver(
        destination,
        messagesOf(3, () => ({ topic })),
      );
      proxy.behaviour = 'unanswered';
      const controller = new AbortController();
      const lost = deliver(
        destination,
        messagesOf(20, () => ({ topic })),
        controller.signal,
      );
      await waitFor(async () => (await idsIn(broker.direct, topic)).length === 23, {
        what: 'the batch',
      });
      controller.abort(new Error('enough'));
      expect(new Set(kinds(await lost))).toEqual(new Set(['retry']));
      proxy.behaviour = 'pass';
      const next = messagesOf(20, () => ({ topic }));
      expect(new Set(kinds(await deliver(destination, next)))).toEqual(new Set(['delivered']));
      expect(await idsIn(broker.direct, topic)).toEqual(expect.arrayContaining(idsOf(next)));
    });

    it('P9 an abort before the first byte sends nothing, also not later', async () => {
      const topic = await newTopic();
      const destination = await opened();
      proxy.behaviour = 'silent';
      const controller = new AbortController();
      const [lost] = messagesOf(1, () => ({ topic }));
      const outcomes = deliver(destination, [lost], controller.signal);
      await waitFor(() => proxy.connections > 0, { what: 'a connection' });
      controller.abort(new Error('enough'));
      expect(await outcomes).toMatchObject([{ kind: 'retry', code: 'connection_failed' }]);
      await waitFor(() => proxy.connections === 0, { what: 'the connection to be closed' });
      proxy.behaviour = 'pass';
      const [next] = messagesOf(1, () => ({ topic }));
      expect(kinds(await deliver(destination, [next]))).toEqual(['delivered']);
      expect(await idsIn(broker.direct, topic)).toEqual([next.id]);
    });

    it.each([
      ['INVALID_PRODUCER_EPOCH', { epoch: 1, sequence: 0 }],
      ['OUT_OF_ORDER_SEQUENCE_NUMBER', { epoch: 0, sequence: 3 }],
    ])(
      'a producer id that the broker no longer accepts (%s) is replaced',
      async (remoteCode, forged) => {
        const topic = await newTopic();
        const destination = await opened();
        await deliver(
          destination,
          messagesOf(3, () => ({ topic })),
        );
        await produceInItsName(broker, topic, forged);
        const [message] = messagesOf(1, () => ({ topic }));
        expect(await deliver(destination, [message])).toMatchObject([
          { kind: 'retry', code: 'producer_replaced', remoteCode },
        ]);
        expect(kinds(await deliver(destination, [message]))).toEqual(['delivered']);
      },
    );
  });

  describe('a record', () => {
    const told = claimedMessage({
      ...fields(),
      topic: 'order.placed',
      tenantId: 'acme',
      key: 'order-7',
      sequence: '12',
      dedupeKey: 'd',
      aggregateType: 'order',
      aggregateId: '7',
      headers: JSON.stringify({
        'x-own': 'Zoë 🚚',
        'waybill-id': 'mine',
        ce_id: 'mine',
        ce_invented: 'mine',
        traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
      }),
      payload: '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}',
    });

    it("has the exact payload, the key and the headers; Waybill's headers cannot be overridden", async () => {
      const topic = await newTopic();
      await deliver(await opened({ topic }), [told]);
      const [record] = await readTopic(broker.direct, topic);
      expect(record).toMatchObject({ key: 'order-7', value: told.payloadText });
      expect(record?.headers).toMatchObject({
        'x-own': 'Zoë 🚚',
        'waybill-id': told.id,
        'waybill-topic': 'order.placed',
        'waybill-namespace': 'default',
        'waybill-tenant': 'acme',
        'waybill-key': 'order-7',
        'waybill-sequence': '12',
      });
    });

    it('is a CloudEvent that other clients understand, if configured', async () => {
      const topic = await newTopic();
      await deliver(await opened({ topic, format: 'cloudevents', source: '/shop' }), [told]);
      const [record] = await readTopic(broker.direct, topic);
      if (record === undefined) throw new Error('nothing has arrived');
      const { key, value, headers } = record;
      const message: KafkaMessage<string> = { key: key ?? '', value, headers, body: undefined };
      const event = Kafka.toEvent(message);
      expect(event).toMatchObject({
        specversion: '1.0',
        id: told.id,
        source: '/shop',
        type: 'order.placed',
        subject: 'order/7',
        time: told.createdAt.toISOString(),
        partitionkey: 'order-7',
        tenantid: 'acme',
        sequence: '0000000000000000012',
        traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
        data: { b: 'Zoë 🚚' },
      });
      expect(headers).toMatchObject({ 'content-type': 'application/json', 'x-own': 'Zoë 🚚' });
      expect(headers).not.toHaveProperty('ce_datacontenttype');
      expect(headers).not.toHaveProperty('ce_invented');
    });

    it.each([
      ['none', 0],
      ['gzip', 1],
      ['snappy', 2],
      ['lz4', 3],
    ] as const)(
      'compressed with %s is stored compressed, and read by the Java client',
      async (compression, codec) => {
        const topic = await newTopic();
        const messages = messagesOf(50, (n) => ({
          topic,
          payload: JSON.stringify(`${n} ${'ab'.repeat(500)}`),
        }));
        const outcomes = await deliver(await opened({ compression }), messages);
        expect(new Set(kinds(outcomes))).toEqual(new Set(['delivered']));
        const values = readWithJava(broker, topic).map(({ value }) => value);
        expect(values).toEqual(messages.map(({ payloadText }) => payloadText));
        // the lowest bits of the batch's attributes, in the broker's file
        expect(readFileSync(broker.logFile(topic)).readInt16BE(21) & 7).toBe(codec);
      },
    );
  });
});

/** With Kafka's own consumer, which checks every batch. */
function readWithJava(
  { direct }: KafkaBroker,
  topic: string,
): { partition: number; chosenByJava: number; key: string; value: string }[] {
  const { status, stdout, stderr } = spawnSync(
    'java',
    [
      '-XX:TieredStopAtLevel=1',
      '-cp',
      kafkaClassPath,
      'test/contract/services/kafka/ReadTopic.java',
      `${direct.host}:${direct.port}`,
      topic,
    ],
    { encoding: 'utf8', maxBuffer: 64 * 1024 * 1024 },
  );
  if (status !== 0) throw new Error(`ReadTopic: ${stderr}`);
  return stdout
    .trim()
    .split('\n')
    .map((line) => {
      const [partition, chosenByJava, key = '', value = ''] = line.split('\t');
      return { partition: Number(partition), chosenByJava: Number(chosenByJava), key, value };
    });
}

/** The broker gives ids one after the other: the one before ours belongs to the producer that asked last. */
async function produceInItsName(
  { direct }: KafkaBroker,
  topic: string,
  { epoch, sequence }: { epoch: number; sequence: number },
): Promise<void> {
  const pool = new ConnectionPool('forger');
  try {
    const connection = await pool.get(direct);
    const { producerId } = await initProducerIdV5.api.async(connection, null, 0, -1n, -1);
    const sequences = new NumericMap();
    sequences.set(`${topic}:0`, sequence);
    const record = { topic, partition: 0, value: Buffer.from('forged') };
    await produceV11.api.async(connection, -1, 10_000, [record, { ...record }, { ...record }], {
      producerId: producerId - 1n,
      producerEpoch: epoch,
      sequences,
    });
  } finally {
    await pool.close();
  }
}
