// webhook: signed deliveries a second to a web server in another process, from its first request until everything is
// recorded as delivered. The upper limit is bare undici against the same server; also measured is undici with
// signing. The measurement "parts" shows how close a relay can come to that on this machine: undici with signing
// beside a relay whose handler does nothing, each in its own process, until both are done. The aim is about processor
// time, because two cores that also run the receiver and PostgreSQL cannot show more. The peers have no webhooks, so
// only the code of a job would be measured; they are left out.

import { unfinished } from './drain.js';
import { contenderModule, ratio } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import type { BenchResult } from './harness/report.js';
import { runToEnd, startRelay, Worker } from './harness/processes.js';
import { countProcessorTime } from './harness/processor-time.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { clockMs, interleave, median, until } from './harness/rounds.js';
import { ask, serverProcesses } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';

const payloadBytes = 500;
const connections = 64;
const secret = Buffer.alloc(32, 7).toString('base64');

type Reached = { firstMs: number; lastMs: number };

/** The processor time of each process in a measurement. */
type Spent = Record<'sender' | 'receiver' | 'postgres', number | null>;
type Figure = { perSecond: number; spentMs: Spent };

const contenders = ['waybill', 'undici', 'signing', 'parts'] as const;
type Name = (typeof contenders)[number];

const titles: Record<Name, string> = {
  waybill: 'waybill',
  undici: 'limit: raw undici',
  signing: 'undici, signing',
  parts: 'undici, signing, beside a relay',
};

export const webhook: Bench = async (server, options) => {
  const messages = options.messages ?? (options.tiny ? 200 : 200_000);
  const receiver = new Worker('bench/processes/receiver.mjs', [], {});
  try {
    const { url } = await receiver.next<{ url: string }>('ready');
    const figures = await interleave(options.rounds, contenders, async (name, round) => {
      receiver.send({ type: 'expect', count: messages });
      const figure = await measured[name](server, receiver, url, messages);
      progress(`round ${round + 1}: ${name} ${shown(figure.perSecond)}/s`);
      return figure;
    });
    return report(figures, messages, options.rounds);
  } finally {
    await receiver.stop();
  }
};

function report(figures: Record<Name, Figure[]>, messages: number, rounds: number): BenchResult {
  const rates = (name: Name): number[] => figures[name].map(({ perSecond }) => perSecond);
  const [waybill, limit, signing, parts] = [
    median(rates('waybill')),
    median(rates('undici')),
    median(rates('signing')),
    median(rates('parts')),
  ];
  const microseconds = (name: Name, who: keyof Spent): number =>
    median(figures[name].map(({ spentMs }) => ((spentMs[who] ?? Number.NaN) * 1000) / messages));
  printSettings('Webhook', { messages, payloadBytes, connections, rounds });
  printTable(
    [
      'contender',
      'deliveries/s',
      'lowest',
      'highest',
      'µs of the sender',
      'receiver',
      'PostgreSQL',
    ],
    contenders.map((name) => [
      titles[name],
      median(rates(name)),
      Math.min(...rates(name)),
      Math.max(...rates(name)),
      microseconds(name, 'sender'),
      microseconds(name, 'receiver'),
      microseconds(name, 'postgres'),
    ]),
  );
  const processorRatio = ratio(
    microseconds('waybill', 'sender'),
    microseconds('signing', 'sender'),
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
    processorRatio,
    aims: [
      {
        what: 'processor time of the relay / of undici that signs',
        atMost: 1.1,
        actual: processorRatio ?? Number.NaN,
      },
      { what: 'share of raw undici that signs', atLeast: 0.7, actual: ratioToSigning ?? 0 },
    ],
  };
}

type Measure = (
  server: BenchServer,
  receiver: Worker,
  webhookUrl: string,
  messages: number,
) => Promise<Figure>;

const measured: Record<Name, Measure> = {
  waybill: (server, receiver, webhookUrl, messages) =>
    withBacklog(server, messages, async (database) => {
      const relay = startRelay('webhook.config.mjs', database.url, {
        BENCH_URL: webhookUrl,
        BENCH_CONNECTIONS: String(connections),
        BENCH_SECRET: secret,
      });
      try {
        const spent = await spending(receiver, [relay], database);
        const { firstMs } = await receiver.next<Reached>('reached');
        await drained(database);
        const endMs = clockMs();
        const spentMs = await spent();
        await countBoth(database, receiver, messages);
        return { perSecond: (messages / (endMs - firstMs)) * 1000, spentMs };
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
        const sender = startSender(webhookUrl, messages, { BENCH_SECRET: secret });
        try {
          const spent = await spending(receiver, [sender, relay], database);
          const [{ firstMs }] = await Promise.all([
            receiver.next<Reached>('reached'),
            drained(database),
          ]);
          const endMs = clockMs();
          const spentMs = await spent();
          await countBoth(database, receiver, messages);
          return { perSecond: (messages / (endMs - firstMs)) * 1000, spentMs };
        } finally {
          await sender.stop();
        }
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
): Promise<Figure> {
  const sender = startSender(webhookUrl, messages, environment);
  try {
    const spent = await spending(receiver, [sender]);
    const { firstMs, lastMs } = await receiver.next<Reached>('reached');
    return { perSecond: (messages / (lastMs - firstMs)) * 1000, spentMs: await spent() };
  } finally {
    await sender.stop();
  }
}

function startSender(url: string, messages: number, environment: Record<string, string>): Worker {
  const parameters = [messages, connections, payloadBytes].map(String);
  return new Worker('bench/processes/sender.mjs', parameters, { BENCH_URL: url, ...environment });
}

/** Counts from the first request on, without the time to start. */
async function spending(
  receiver: Worker,
  senders: readonly Worker[],
  database?: BenchDatabase,
): Promise<() => Promise<Spent>> {
  await receiver.next('begun');
  return countProcessorTime(async () => ({
    sender: senders.map(({ pid }) => pid),
    receiver: [receiver.pid],
    postgres: database === undefined ? [] : await serverProcesses(database),
  }));
}

async function withBacklog(
  server: BenchServer,
  messages: number,
  measure: (database: BenchDatabase) => Promise<Figure>,
): Promise<Figure> {
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
