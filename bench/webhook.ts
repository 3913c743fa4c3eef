// webhook: signed deliveries a second to a web server in another process, from its first request until everything
// is recorded as delivered. The limit is undici alone against the same server; beside it, undici that signs as a
// webhook does. How near one can come to it on a machine of so many cores is shown by the parts: undici, signing,
// beside a relay whose handler does nothing, each in a process of its own, until both are done. The peers have no
// webhooks of their own: what a user writes inside a job would be measured, not they.

import { unfinished } from './drain.js';
import { contenderModule, ratio } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { runToEnd, startRelay, Worker } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { clockMs, interleave, median, until } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';

const payloadBytes = 500;
const connections = 64;
const secret = Buffer.alloc(32, 7).toString('base64');

type Reached = { firstMs: number; lastMs: number };

export const webhook: Bench = async (server, options) => {
  const messages = options.messages ?? (options.tiny ? 200 : 200_000);
  const receiver = new Worker('bench/processes/receiver.mjs', [], {});
  try {
    const { url } = await receiver.next<{ url: string }>('ready');
    const figures = await interleave(
      options.rounds,
      ['waybill', 'undici', 'signing', 'parts'] as const,
      async (name, round) => {
        receiver.send({ type: 'expect', count: messages });
        const perSecond = await measured[name](server, receiver, url, messages);
        progress(`round ${round + 1}: ${name} ${shown(perSecond)}/s`);
        return perSecond;
      },
    );
    const waybill = median(figures.waybill);
    const limit = median(figures.undici);
    const signing = median(figures.signing);
    const parts = median(figures.parts);
    printSettings('Webhook', { messages, payloadBytes, connections, rounds: options.rounds });
    const row = (name: string, values: readonly number[]) => [
      name,
      median(values),
      Math.min(...values),
      Math.max(...values),
    ];
    printTable(
      ['contender', 'deliveries/s', 'lowest', 'highest'],
      [
        row('waybill', figures.waybill),
        row('limit: raw undici', figures.undici),
        row('undici, signing', figures.signing),
        row('undici, signing, beside a relay', figures.parts),
      ],
    );
    const ratioToLimit = ratio(waybill, limit);
    const ratioToSigning = ratio(waybill, signing);
    return {
      waybill,
      peers: {},
      limit,
      ratioToBestPeer: null,
      ratioToLimit,
      signing,
      ratioToSigning,
      parts,
      ratioToParts: ratio(waybill, parts),
      messages,
      connections,
      aims: [
        { what: 'share of raw undici', atLeast: 0.7, actual: ratioToLimit ?? 0 },
        { what: 'share of raw undici that signs', atLeast: 0.7, actual: ratioToSigning ?? 0 },
      ],
    };
  } finally {
    await receiver.stop();
  }
};

type Measure = (
  server: BenchServer,
  receiver: Worker,
  webhookUrl: string,
  messages: number,
) => Promise<number>;

const measured: Record<'waybill' | 'undici' | 'signing' | 'parts', Measure> = {
  waybill: (server, receiver, webhookUrl, messages) =>
    withBacklog(server, messages, async (database) => {
      const relay = startRelay('webhook.config.mjs', database.url, {
        BENCH_URL: webhookUrl,
        BENCH_CONNECTIONS: String(connections),
        BENCH_SECRET: secret,
      });
      try {
        const { firstMs } = await receiver.next<Reached>('reached');
        await drained(database);
        const endMs = clockMs();
        await countBoth(database, receiver, messages);
        return (messages / (endMs - firstMs)) * 1000;
      } finally {
        await relay.stop();
      }
    }),

  undici: (_server, receiver, webhookUrl, messages) => bareRate(receiver, webhookUrl, messages, {}),

  signing: (_server, receiver, webhookUrl, messages) =>
    bareRate(receiver, webhookUrl, messages, { BENCH_SECRET: secret }),

  parts: (server, receiver, webhookUrl, messages) =>
    withBacklog(server, messages, async (database) => {
      const relay = startRelay('handler.config.mjs', database.url, { BENCH_PROBE: 'count' });
      try {
        await relay.next('settings');
        const [{ firstMs }] = await Promise.all([
          sendBare(receiver, webhookUrl, messages, { BENCH_SECRET: secret }),
          drained(database),
        ]);
        const endMs = clockMs();
        await countBoth(database, receiver, messages);
        return (messages / (endMs - firstMs)) * 1000;
      } finally {
        await relay.stop();
      }
    }),
};

async function bareRate(
  receiver: Worker,
  webhookUrl: string,
  messages: number,
  environment: Record<string, string>,
): Promise<number> {
  const { firstMs, lastMs } = await sendBare(receiver, webhookUrl, messages, environment);
  return (messages / (lastMs - firstMs)) * 1000;
}

async function withBacklog(
  server: BenchServer,
  messages: number,
  measure: (database: BenchDatabase) => Promise<number>,
): Promise<number> {
  const database = await server.createDatabase('webhook');
  try {
    await database.client.query('CHECKPOINT');
    await runToEnd(
      'bench/processes/prepare.mjs',
      [contenderModule.waybill, String(messages), String(payloadBytes)],
      { DATABASE_URL: database.url },
    );
    await database.client.query('VACUUM ANALYZE');
    return await measure(database);
  } finally {
    await database.drop();
  }
}

async function drained({ client }: BenchDatabase): Promise<void> {
  await until(async () => !(await ask<boolean>(client, unfinished.waybill)));
}

async function countBoth(
  { client }: BenchDatabase,
  receiver: Worker,
  messages: number,
): Promise<void> {
  const { count } = await receiver.ask<{ count: number }>({ type: 'collect' }, 'counted');
  const delivered = await ask<number>(
    client,
    "SELECT count(*)::int AS answer FROM outbox.attempts WHERE state = 'dispatched'",
  );
  if (count !== messages || delivered !== messages)
    throw new Error(`${count} requests and ${delivered} deliveries of ${messages} messages`);
}

async function sendBare(
  receiver: Worker,
  url: string,
  messages: number,
  environment: Record<string, string>,
): Promise<Reached> {
  await runToEnd('bench/processes/sender.mjs', [messages, connections, payloadBytes].map(String), {
    BENCH_URL: url,
    ...environment,
  });
  return receiver.next<Reached>('reached');
}
