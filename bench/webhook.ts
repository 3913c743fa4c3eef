// webhook: signed deliveries a second to a web server in another process, from its first request until everything
// is recorded as delivered. The limit is undici alone against the same server. The peers have no webhooks of
// their own: what a user writes inside a job would be measured, not they.

import { contenderModule, ratio } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { runToEnd, startRelay, Worker } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { clockMs, interleave, median, until } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchServer } from './harness/server.js';

const payloadBytes = 500;
const connections = 64;

type Reached = { firstMs: number; lastMs: number };

export const webhook: Bench = async (server, options) => {
  const messages = options.messages ?? (options.tiny ? 200 : 100_000);
  const receiver = new Worker('bench/processes/receiver.mjs', [], {});
  try {
    const { url } = await receiver.next<{ url: string }>('ready');
    const figures = await interleave(
      options.rounds,
      ['waybill', 'undici'] as const,
      async (name, round) => {
        receiver.send({ type: 'expect', count: messages });
        const perSecond =
          name === 'waybill'
            ? await deliver(server, receiver, url, messages)
            : await sendBare(receiver, url, messages);
        progress(`round ${round + 1}: ${name} ${shown(perSecond)}/s`);
        return perSecond;
      },
    );
    const waybill = median(figures.waybill);
    const limit = median(figures.undici);
    printSettings('Webhook', { messages, payloadBytes, connections, rounds: options.rounds });
    printTable(
      ['contender', 'deliveries/s', 'lowest', 'highest'],
      [
        ['waybill', waybill, Math.min(...figures.waybill), Math.max(...figures.waybill)],
        ['limit: raw undici', limit, Math.min(...figures.undici), Math.max(...figures.undici)],
      ],
    );
    const ratioToLimit = ratio(waybill, limit);
    return {
      waybill,
      peers: {},
      limit,
      ratioToBestPeer: null,
      ratioToLimit,
      messages,
      connections,
      aims: [{ what: 'share of raw undici', atLeast: 0.7, actual: ratioToLimit ?? 0 }],
    };
  } finally {
    await receiver.stop();
  }
};

async function deliver(
  server: BenchServer,
  receiver: Worker,
  webhookUrl: string,
  messages: number,
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
    const relay = startRelay('webhook.config.mjs', database.url, {
      BENCH_URL: webhookUrl,
      BENCH_CONNECTIONS: String(connections),
    });
    try {
      const { firstMs } = await receiver.next<Reached>('reached');
      await until(
        async () =>
          !(await ask<boolean>(
            database.client,
            'SELECT EXISTS (SELECT FROM outbox.deliveries) OR EXISTS (SELECT FROM outbox.leases) AS answer',
          )),
      );
      const endMs = clockMs();
      const { count } = await receiver.ask<{ count: number }>({ type: 'collect' }, 'counted');
      const delivered = await ask<number>(
        database.client,
        "SELECT count(*)::int AS answer FROM outbox.attempts WHERE state = 'dispatched'",
      );
      if (count !== messages || delivered !== messages) {
        throw new Error(`${count} requests and ${delivered} deliveries of ${messages} messages`);
      }
      return (messages / (endMs - firstMs)) * 1000;
    } finally {
      await relay.stop();
    }
  } finally {
    await database.drop();
  }
}

async function sendBare(receiver: Worker, url: string, messages: number): Promise<number> {
  await runToEnd('bench/processes/sender.mjs', [messages, connections, payloadBytes].map(String), {
    BENCH_URL: url,
  });
  const { firstMs, lastMs } = await receiver.next<Reached>('reached');
  return (messages / (lastMs - firstMs)) * 1000;
}
