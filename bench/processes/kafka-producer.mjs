// The upper limit of Kafka: the client library's producer with the same records and no database: kafka-producer.mjs
// COUNT BATCH CALLS BYTES. Each concurrent call has its own producer. With two batches at once, a single producer of
// this library gives both the same number, and the broker drops the second.

import { randomUUID } from 'node:crypto';

import { Producer } from '@platformatic/kafka';

import { payloadOf } from './payload.mjs';

const [count, batch, calls, bytes] = process.argv.slice(2).map(Number);
const { BENCH_BROKER: broker, BENCH_TOPIC: topic } = process.env;

const producers = Array.from(
  { length: calls },
  () => new Producer({ clientId: 'bare', bootstrapBrokers: [broker], idempotent: true }),
);
for (const producer of producers) {
  await producer.metadata({ topics: [topic] });
  await producer.initIdempotentProducer({});
}
let sent = 0;
const startedMs = performance.now();
await Promise.all(
  producers.map(async (producer, index) => {
    for (let partition = index; sent < count; partition += 1) {
      const size = Math.min(batch, count - sent);
      const first = sent;
      sent += size;
      await producer.send({
        messages: Array.from({ length: size }, (_, n) => recordOf(first + n, partition)),
      });
    }
  }),
);
process.send({ type: 'done', tookMs: performance.now() - startedMs });
for (const producer of producers) await producer.close();
process.disconnect();

function recordOf(n, partition) {
  const headers = {
    'waybill-id': randomUUID(),
    'waybill-topic': 'bench.message',
    'waybill-namespace': 'default',
    'waybill-created-at': new Date().toISOString(),
  };
  return {
    topic,
    partition: partition % 6,
    value: Buffer.from(JSON.stringify(payloadOf(n, bytes))),
    headers: new Map(
      Object.entries(headers).map(([name, text]) => [Buffer.from(name), Buffer.from(text)]),
    ),
  };
}
