// Kafka destination, also for systems with the same protocol. A message is delivered when all in-sync replicas have it;
// its topic, partition and offset are the receipt. Each call in flight has its own producer, so that an aborted call
// disturbs no other. A call has one outcome per message: producer.ts makes them of the brokers' answers, with the codes
// of error-codes.ts; partition-batches.ts finds the bad records of a rejected batch.

import { reject, retry } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import type { BatchDestination } from '../destination.js';
import { definitionOf } from '../definition.js';
import { loadOptionalDependency } from '../optional-dependency.js';
import { unlessOthersMay } from '../template.js';
import { Client } from './client.js';
import type { Library } from './client.js';
import { resolveKafkaOptions } from './options.js';
import type { KafkaOptions } from './options.js';
import { Producer } from './producer.js';
import { recordOf } from './records.js';
import type { Item } from './partition-batches.js';
import { Topics } from './topics.js';
import { codeName, innermostText } from './error-codes.js';

export type { KafkaOptions, KafkaSasl, KafkaTls } from './options.js';

export function kafka(options: KafkaOptions): BatchDestination {
  const checked = resolveKafkaOptions(options);
  const { topic, format, source, batchSize, allowAutoTopicCreation, ...settings } = checked;
  let library: Library | undefined;
  let topics: Topics | undefined;
  const producers = new Set<Producer>();
  const idle: Producer[] = [];

  function takeProducer(): Producer {
    const free = idle.pop();
    if (free !== undefined) return free;
    if (library === undefined || topics === undefined)
      throw new Error('the kafka destination is not open');
    const producer = new Producer(library, topics, settings);
    producers.add(producer);
    return producer;
  }

  function giveBack(producer: Producer): void {
    if (producer.usable) return void idle.push(producer);
    producers.delete(producer);
    producer.destroy(new Error('the producer is replaced'));
  }

  return {
    kind: 'kafka',
    settings,
    definition: definitionOf(options, checked, ['sasl', 'tls', 'clientId', 'batchSize']),
    batchSize,
    // a partition stores messages up to the first that fails, but topics are independent of each other
    keepsOrder: !options.topic.includes('{'),
    async open() {
      const loaded = await loadOptionalDependency(
        'kafka',
        '@platformatic/kafka',
        () => import('@platformatic/kafka'),
      );
      library = loaded;
      topics = new Topics(allowAutoTopicCreation, (key) => loaded.murmur2(key));
    },
    async deliverBatch(messages, { signal }) {
      const outcomes: Outcome[] = messages.map(() => unanswered);
      const items: Item[] = [];
      for (const [index, message] of messages.entries()) {
        const name = topic(message);
        if (name === null) {
          const missing = 'the message lacks a field of the topic template';
          outcomes[index] = reject({ code: 'name_incomplete', message: missing });
          continue;
        }
        const settle = (outcome: Outcome): void =>
          void (outcomes[index] = unlessOthersMay(outcome, topic));
        items.push({ topic: name, record: recordOf(message, format, source), settle });
      }
      if (items.length === 0) return outcomes;
      const producer = takeProducer();
      const abort = (): void => producer.destroy(signal.reason as Error);
      signal.addEventListener('abort', abort);
      if (signal.aborted) abort();
      try {
        await producer.send(items, signal);
      } finally {
        signal.removeEventListener('abort', abort);
        giveBack(producer);
      }
      return outcomes;
    },
    async health({ signal }) {
      if (library === undefined) throw new Error('the kafka destination is not open');
      const client = new Client(library, settings);
      const abort = (): void => client.destroy(signal.reason as Error);
      signal.addEventListener('abort', abort);
      if (signal.aborted) abort();
      try {
        const named = options.topic.includes('{') ? [] : [options.topic];
        const { topics: found } = await client.metadata(named, false);
        const bad = found.find(({ errorCode }) => errorCode !== 0);
        if (bad === undefined) return { ok: true };
        return { ok: false, problem: `topic ${options.topic}: ${codeName(bad.errorCode)}` };
      } catch (error) {
        return { ok: false, problem: `no broker can be asked: ${innermostText(error)}` };
      } finally {
        signal.removeEventListener('abort', abort);
        client.destroy(new Error('the question is answered'));
      }
    },
    close() {
      for (const producer of producers) producer.destroy(new Error('the destination was closed'));
      producers.clear();
      idle.length = 0;
      library = undefined;
    },
  };
}

const unanswered = retry({ code: 'broker_error', message: 'the broker did not answer' });
