// kafka: deliveries a second to a real broker, from its first record until everything is recorded as delivered. The
// upper limit is the client library's idempotent producer on the same broker, with the same records, batch size and
// concurrency. Also measured: the same destination in stream mode, which reads the log, with one partition and with four.

import { Admin, ListOffsetTimestamps } from '@platformatic/kafka';

import { kafkaUnavailable, startKafka } from '../test/support/kafka-broker.js';
import { createTopics } from '../test/support/kafka-client.js';
import { contenderModule, ratio } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { runToEnd, startRelay } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { clockMs, interleave, median, until } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';
import { streamEnd } from './stream.js';

const payloadBytes = 500;
const partitions = 6;
const batchSize = 500;
/** Larger, because the log is read one batch after the other. */
const streamBatchSize = 2000;
const calls = 5;
const javaOptions = ['-Xms512m', '-Xmx512m', '-XX:+UseSerialGC'];

/** True while a delivery is pending or in flight, or the cursor has unread messages. */
const unfinished = {
  deliveries:
    'SELECT EXISTS (SELECT FROM outbox.deliveries) OR EXISTS (SELECT FROM outbox.leases) AS answer',
  stream: `SELECT NOT EXISTS (${streamEnd}) AS answer`,
};

/** The topic of one measurement, and the number of its records. */
type Target = { broker: string; topic: string; count: () => Promise<number> };

export const kafka: Bench = async (server, options) => {
  const unavailable = kafkaUnavailable();
  if (unavailable !== null) throw new Error(`there is no Kafka to measure with: ${unavailable}`);
  const messages = options.messages ?? (options.tiny ? 200 : 100_000);
  const kafkaBroker = await startKafka({ javaOptions });
  const { direct } = kafkaBroker;
  const broker = `${direct.host}:${direct.port}`;
  const admin = new Admin({ clientId: 'waybill-bench', bootstrapBrokers: [broker] });
  try {
    const newTarget = async (topic: string): Promise<Target> => {
      await createTopics(direct, { [topic]: {} }, partitions);
      return { broker, topic, count: () => countRecords(admin, topic) };
    };
    const contenders = ['deliveries', 'stream', 'partitions', 'producer'] as const;
    const figures = await interleave(options.rounds, contenders, async (name, round) => {
      const target = await newTarget(`${name}-${round}`);
      const perSecond =
        name === 'producer'
          ? await produceBare(target, messages)
          : await deliver(server, target, messages, name);
      progress(`round ${round + 1}: ${name} ${shown(perSecond)}/s`);
      return perSecond;
    });
    const waybill = median(figures.deliveries);
    const stream = median(figures.stream);
    const limit = median(figures.producer);
    const settings = { messages, payloadBytes, partitions, batchSize, calls, acks: 'all' };
    printSettings('Kafka', { ...settings, brokers: 1, rounds: options.rounds });
    printTable(
      ['contender', 'deliveries/s', 'lowest', 'highest'],
      (
        [
          ['waybill', figures.deliveries],
          ["waybill, mode: 'stream'", figures.stream],
          ["waybill, mode: 'stream', 4 partitions", figures.partitions],
          ['limit: bare producer', figures.producer],
        ] as const
      ).map(([what, rates]) => [what, median(rates), Math.min(...rates), Math.max(...rates)]),
    );
    const ratioToLimit = ratio(waybill, limit);
    const streamRatioToLimit = ratio(stream, limit);
    return {
      waybill,
      stream,
      streamWithPartitions: median(figures.partitions),
      peers: {},
      limit,
      ratioToBestPeer: null,
      ratioToLimit,
      streamRatioToLimit,
      ...settings,
      aims: [
        { what: 'deliveries / bare producer', atLeast: 0.6, actual: ratioToLimit ?? 0 },
        { what: "mode: 'stream' / bare producer", atLeast: 0.8, actual: streamRatioToLimit ?? 0 },
      ],
    };
  } finally {
    await admin.close();
    await kafkaBroker.stop();
  }
};

async function deliver(
  server: BenchServer,
  { broker, topic, count }: Target,
  messages: number,
  name: 'deliveries' | 'stream' | 'partitions',
): Promise<number> {
  const mode = name === 'deliveries' ? 'deliveries' : 'stream';
  const database = await server.createDatabase('kafka');
  try {
    await database.client.query('CHECKPOINT');
    await runToEnd(
      'bench/processes/prepare.mjs',
      [contenderModule.waybill, String(messages), String(payloadBytes)],
      { DATABASE_URL: database.url, BENCH_MODE: mode },
    );
    await database.client.query('VACUUM ANALYZE');
    const relay = startRelay('kafka.config.mjs', database.url, {
      BENCH_MODE: mode,
      BENCH_BROKER: broker,
      BENCH_TOPIC: topic,
      BENCH_BATCH: String(mode === 'stream' ? streamBatchSize : batchSize),
      BENCH_CALLS: String(calls),
      BENCH_PARTITIONS: name === 'partitions' ? '4' : '1',
    });
    try {
      await until(async () => (await count()) > 0);
      const firstMs = clockMs();
      await until(async () => !(await ask<boolean>(database.client, unfinished[mode])));
      const endMs = clockMs();
      await checkCount(count, messages);
      if (mode === 'deliveries') await checkDelivered(database, messages);
      return (messages / (endMs - firstMs)) * 1000;
    } finally {
      await relay.stop();
    }
  } finally {
    await database.drop();
  }
}

async function produceBare({ broker, topic, count }: Target, messages: number): Promise<number> {
  const { tookMs } = await runToEnd<{ tookMs: number }>(
    'bench/processes/kafka-producer.mjs',
    [messages, batchSize, calls, payloadBytes].map(String),
    { BENCH_BROKER: broker, BENCH_TOPIC: topic },
  );
  await checkCount(count, messages);
  return (messages / tookMs) * 1000;
}

async function checkDelivered({ client }: BenchDatabase, messages: number): Promise<void> {
  const delivered = await ask<number>(
    client,
    "SELECT count(*)::int AS answer FROM outbox.attempts WHERE state = 'dispatched'",
  );
  if (delivered !== messages) throw new Error(`${delivered} deliveries of ${messages}`);
}

async function checkCount(count: Target['count'], messages: number): Promise<void> {
  const records = await count();
  if (records !== messages) throw new Error(`${records} records of ${messages} messages`);
}

async function countRecords(admin: Admin, topic: string): Promise<number> {
  const asked = Array.from({ length: partitions }, (_, partitionIndex) => ({
    partitionIndex,
    timestamp: ListOffsetTimestamps.LATEST,
  }));
  const [answer] = await admin.listOffsets({ topics: [{ name: topic, partitions: asked }] });
  return (answer?.partitions ?? []).reduce((sum, { offset }) => sum + Number(offset), 0);
}
