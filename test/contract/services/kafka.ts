// Apache Kafka: one broker in KRaft mode. Clients of the proxy are told the proxy's address; arrived records are read
// on a separate listener.

import { kafka } from '../../../src/destinations/kafka/kafka.js';
import { kafkaUnavailable, startKafka } from '../../support/kafka-broker.js';
import { createTopics, idsIn } from '../../support/kafka-client.js';
import type { Address, ServiceKind } from './service.js';

const topic = 'contract';
/** This topic is compacted, and refuses records without a key. */
const refusing = 'picky.refused.one';
const at = ({ host, port }: Address): string => `${host}:${port}`;

export const kafkaService: ServiceKind = {
  kind: 'kafka',
  service: 'Apache Kafka, one broker, KRaft',
  unavailable: kafkaUnavailable,
  async start(through) {
    const broker = await startKafka({ through });
    const { direct, throughProxy: address } = broker;
    await createTopics(direct, { [topic]: {}, 'picky.taken': {} });
    await createTopics(direct, { [refusing]: { 'cleanup.policy': 'compact' } });
    return { ...broker, address, received: () => idsIn(direct, topic) };
  },
  make: (through, { missing, picky, ...settings } = {}) =>
    kafka({
      ...settings,
      brokers: [at(through)],
      topic: missing ? 'no-such-topic' : picky ? 'picky.{topic}' : topic,
    }),
  source: (through) => `waybill.kafka({ brokers: ['${at(through)}'], topic: '${topic}' })`,
  // the broker's own default is slightly more than 1 MiB
  tooLargeBytes: 1_100_000,
  expected: {
    missing: { kind: 'retry', code: 'topic_missing' },
    oversized: { kind: 'reject', code: 'message_too_large' },
    refusedInBatch: { kind: 'reject', code: 'record_invalid' },
  },
};
