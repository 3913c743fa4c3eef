// isolation: deliveries a second to a healthy webhook beside one that hangs and one that always answers 500,
// compared with the same webhook without the others. Each has the same number of pending messages. The webhook takes
// a few milliseconds, as webhooks do, so it limits the throughput, not the processor. Measured again with circuit
// breakers, which are off by default.

import { contenderModule } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { runToEnd, startRelay, Worker } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';

const connections = 20;
const answerMs = 10;
const payloadBytes = 500;

type Reached = { firstMs: number; lastMs: number; failed: number };

export const isolation: Bench = async (server, options) => {
  const messages = options.messages ?? (options.tiny ? 100 : 20_000);
  const receiver = new Worker('bench/processes/troubled-receiver.mjs', [], {
    BENCH_ANSWER_MS: String(answerMs),
  });
  try {
    const { url } = await receiver.next<{ url: string }>('ready');
    const figures = await interleave(
      options.rounds,
      ['alone', 'beside', 'breakers'] as const,
      async (name, round) => {
        const topics = name === 'alone' ? ['fine'] : ['fine', 'failing', 'hanging'];
        const { perSecond, failed } = await deliver(
          server,
          receiver,
          url,
          messages,
          topics,
          name === 'breakers',
        );
        progress(`round ${round + 1}: ${name} ${shown(perSecond)}/s, ${shown(failed)} failures`);
        if (name !== 'alone' && failed === 0) throw new Error('nothing has failed beside it');
        return perSecond;
      },
    );
    const beside = median(figures.beside);
    const alone = median(figures.alone);
    const breakers = median(figures.breakers);
    printSettings('Isolation', {
      messages,
      payloadBytes,
      connections,
      answerMs,
      rounds: options.rounds,
    });
    printTable(
      ['the healthy webhook', 'deliveries/s', 'lowest', 'highest'],
      [
        ['alone', alone, Math.min(...figures.alone), Math.max(...figures.alone)],
        ['beside the others', beside, Math.min(...figures.beside), Math.max(...figures.beside)],
        [
          'beside them, with breakers',
          breakers,
          Math.min(...figures.breakers),
          Math.max(...figures.breakers),
        ],
      ],
    );
    return {
      waybill: beside,
      peers: {},
      limit: alone,
      ratioToBestPeer: null,
      ratioToLimit: beside / alone,
      ratio: beside / alone,
      ratioWithBreakers: breakers / alone,
      messages,
      aims: [
        {
          what: 'beside one that hangs and one that fails / alone',
          atLeast: 0.95,
          actual: beside / alone,
        },
      ],
    };
  } finally {
    await receiver.stop();
  }
};

async function deliver(
  server: BenchServer,
  receiver: Worker,
  url: string,
  messages: number,
  topics: readonly string[],
  breakers: boolean,
): Promise<{ perSecond: number; failed: number }> {
  const database = await server.createDatabase('isolation');
  try {
    await runToEnd('bench/processes/prepare.mjs', [contenderModule.waybill, '0', '0'], {
      DATABASE_URL: database.url,
    });
    await preload(database, messages, topics);
    receiver.send({ type: 'expect', count: messages });
    const relay = startRelay('isolation.config.mjs', database.url, {
      BENCH_URL: url,
      BENCH_CONNECTIONS: String(connections),
      BENCH_BREAKERS: breakers ? '1' : '',
    });
    try {
      const { firstMs, lastMs, failed } = await receiver.next<Reached>('reached');
      return { perSecond: (messages / (lastMs - firstMs)) * 1000, failed };
    } finally {
      await relay.stop();
    }
  } finally {
    await database.drop();
  }
}

async function preload(
  { client }: BenchDatabase,
  messages: number,
  topics: readonly string[],
): Promise<void> {
  const names = ['fine', 'failing', 'hanging'];
  const definitions = {
    destinations: names.map((name) => ({
      name,
      kind: 'webhook',
      maxAttempts: 10,
      retryBaseMs: 1000,
      retryMaxMs: 300_000,
    })),
    routes: names.map((name) => ({ topic: name, to: name })),
  };
  await client.query('SELECT outbox.apply_definitions($1)', [JSON.stringify(definitions)]);
  const loaded = await ask<number>(
    client,
    `SELECT count(e)::int AS answer FROM generate_series(0, $1 - 1, 1000) first, unnest($2::text[]) topic, LATERAL outbox.enqueue_many((
       SELECT jsonb_agg(jsonb_build_object('topic', topic, 'payload', jsonb_build_object('n', n, 'text', repeat('x', $3))))
         FROM generate_series(first, least(first + 1000, $1) - 1) n)) e`,
    [messages, topics, payloadBytes - 20],
  );
  if (loaded !== messages * topics.length) throw new Error(`${loaded} messages were loaded`);
  await client.query('VACUUM ANALYZE');
  await client.query('CHECKPOINT');
}
