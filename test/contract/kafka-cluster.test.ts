// Two Kafka brokers: partitions that move between them, and partitions without a leader.

import * as library from '@platformatic/kafka';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';

import { Client } from '../../src/destinations/kafka/client.js';
import { kafka } from '../../src/destinations/kafka/kafka.js';
import type { Outcome } from '../../src/core/outcome.js';
import { kafkaUnavailable, startKafka } from '../support/kafka-broker.js';
import type { KafkaBroker } from '../support/kafka-broker.js';
import { idsIn, placePartitions } from '../support/kafka-client.js';
import { waitFor } from '../support/wait.js';
import { Sender, messagesOf } from './sender.js';

const unavailable = kafkaUnavailable();
if (unavailable !== null) {
  if (process.env['CI']) throw new Error(unavailable);
  console.warn(`The tests of kafka are left out: ${unavailable}.`);
}
const startMs = 120_000;

describe.skipIf(unavailable !== null)('a Kafka of two brokers', { timeout: 90_000 }, () => {
  let first: KafkaBroker;
  let second: KafkaBroker;
  beforeAll(async () => {
    first = await startKafka();
    second = await startKafka({ beside: first });
  }, startMs);
  afterAll(async () => {
    await second?.stop();
    await first?.stop();
  }, startMs);

  const open = (topic: string): Promise<Sender> => {
    const { host, port } = first.direct;
    return Sender.open(kafka({ brokers: [`${host}:${port}`], topic }));
  };

  it('is followed within one call when some partitions have moved', async () => {
    const topic = 'moved';
    await placePartitions(first.direct, topic, [1, 1, 1, 1, 1, 1]);
    const sender = await open(topic);
    const before = messagesOf(30, (n) => ({ key: `key-${n}` }));
    const partitions = (await sender.send(before)).map(partitionOf);
    expect(new Set(partitions).size).toBe(6);
    await placePartitions(first.direct, topic, [2, 1, 2, 1, 2, 1]);
    const after = messagesOf(30, (n) => ({ key: `key-${n}` }));
    expect((await sender.send(after)).map(partitionOf)).toEqual(partitions);
    const sent = [...before, ...after].map(({ id }) => id);
    expect((await idsIn(first.direct, topic)).toSorted()).toEqual(sent.toSorted());
  });

  it('C8 is understood when it answers for partitions that have moved', async () => {
    const topic = 'answered';
    await placePartitions(first.direct, topic, [2, 1, 2, 1, 2, 1]);
    const client = new Client(library, {
      brokers: [first.direct],
      clientId: 'test',
      timeoutMs: 10_000,
      tls: undefined,
      sasl: undefined,
    });
    onTestFinished(() => client.destroy(new Error('the test is over')));
    const records = [0, 1, 2, 3, 4, 5].map((partition) => ({
      topic,
      partition,
      value: Buffer.from('x'),
    }));
    const notLeader = 6;
    const wanted = JSON.stringify([0, 1, 2, 3, 4, 5].map((n) => [n, n % 2 === 0 ? notLeader : 0]));
    // a broker may take a moment to know which partitions it leads
    await waitFor(
      async () => {
        const answer = await client.produce(await client.connect(first.direct), records, {});
        const codes = answer.responses
          .flatMap(({ partitionResponses }) => partitionResponses)
          .toSorted((one, other) => one.index - other.index)
          .map(({ index, errorCode }) => [index, errorCode]);
        return JSON.stringify(codes) === wanted;
      },
      { what: `the answer ${wanted}` },
    );
  });

  it('C8 accepts messages of partitions with a leader at once, and the others when their leader is back', async () => {
    const topic = 'half';
    await placePartitions(first.direct, topic, [1, 2]);
    const sender = await open(topic);
    const messages = messagesOf(8, (n) => ({ key: `key-${n}` }));
    const partitions = (await sender.send(messages)).map(partitionOf);
    expect(new Set(partitions)).toEqual(new Set(['0', '1']));
    await second.kill();
    // at first connections fail there, and then the cluster has noticed
    await waitFor(
      async () => {
        const outcomes = await sender.send(messages);
        expect(outcomes.map(({ kind }) => kind)).toEqual(
          partitions.map((partition) => (partition === '0' ? 'delivered' : 'retry')),
        );
        return outcomes.some(
          (outcome) => 'code' in outcome && outcome.code === 'leader_unavailable',
        );
      },
      { what: 'the cluster to notice', timeoutMs: 30_000 },
    );
    await second.restart();
    await sender.sendUntilDelivered(messages);
  });
});

/** The partition of the message, or its outcome if it was not delivered. */
function partitionOf(outcome: Outcome): string | undefined {
  return outcome.kind === 'delivered' ? outcome.reference?.split('/')[1] : outcome.kind;
}
