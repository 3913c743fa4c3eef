// drain: how fast a backlog is delivered, from the first handler call until the queue is empty and every outcome is
// recorded. Waybill runs the real relay in its own process. The run fails unless every message was handled exactly
// once. A second table shows where Waybill's processor time goes.

import { contenderModule, contenders, ratio } from './harness/bench.js';
import type { Bench, BenchOptions, Contender } from './harness/bench.js';
import { relayUrl, runToEnd, startRelay, Worker } from './harness/processes.js';
import { processorMs } from './harness/processor-time.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { clockMs, interleave, median, until } from './harness/rounds.js';
import { ask, watchWal } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';

const payloadBytes = 500;
/** As in handler.config.mjs. */
const batchSize = 2000;

/** True while a delivery is pending or in flight. */
export const unfinished: Record<Contender, string> = {
  waybill: `SELECT EXISTS (SELECT FROM outbox.deliveries WHERE key_id IS NULL) OR EXISTS (SELECT FROM outbox.leases)
        OR EXISTS (SELECT FROM outbox.lane_tickets) OR EXISTS (
             SELECT FROM outbox.lanes WHERE available_at IS NOT NULL AND blocked_by IS NULL) AS answer`,
  'graphile-worker': 'SELECT EXISTS (SELECT FROM graphile_worker._private_jobs) AS answer',
  'pg-boss': "SELECT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed') AS answer",
  'pg-boss-notify': "SELECT EXISTS (SELECT FROM pgboss.job WHERE state < 'completed') AS answer",
  bullmq: "SELECT EXISTS (SELECT FROM bullmq.job WHERE state IN ('waiting', 'active')) AS answer",
  dbos: "SELECT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING')) AS answer",
};

/** Peers that take one message at a time, and so get a tenth of the messages. */
const slowPeers: Contender[] = ['bullmq', 'dbos'];

function messagesOf(name: Contender, messages: number): number {
  return slowPeers.includes(name)
    ? Math.max(Math.floor(messages / 10), Math.min(messages, 500))
    : messages;
}

export type DrainFigure = {
  perSecond: number;
  walBytesPerMessage: number;
  handled: number;
  distinct: number;
  settings: Settings;
  /** CPU time of the worker's process, without PostgreSQL's. */
  cpuMsPerThousand: number;
};

type Settings = Record<string, unknown>;
type Counted = { handled: number; distinct: number; firstMs: number; cpuMs: number };

export const drain: Bench = async (server, options) => {
  const messages = messageCount(options);
  const names = contenders(options, slowPeers);
  const limits: number[] = [];
  const figures = await interleave(options.rounds, names, async (name, round) => {
    const database = await server.createDatabase(name);
    try {
      const figure = await drainOnce(name, database, {
        messages: messagesOf(name, messages),
      });
      progress(`round ${round + 1}: ${name} ${shown(figure.perSecond)}/s`);
      if (name === 'waybill') limits.push(await readLog(database, messages));
      return figure;
    } finally {
      await database.drop();
    }
  });
  const parts = await measureParts(server, messages);

  const rate = (name: Contender): number => median(figures[name]?.map((f) => f.perSecond) ?? []);
  const wal = (name: Contender): number =>
    median(figures[name]?.map((f) => f.walBytesPerMessage) ?? []);
  const peers = names.filter((name) => name !== 'waybill');
  const limit = median(limits);
  const bestPeer = Math.max(...peers.map(rate));
  printSettings('Drain', { messages, slowPeers, payloadBytes, rounds: options.rounds });
  const settings = Object.fromEntries(
    names.map((name) => [name, figures[name][0]?.settings ?? {}]),
  );
  for (const [name, own] of Object.entries(settings)) printSettings(name, own);
  printTable(
    ['contender', 'messages/s', 'lowest', 'highest', 'WAL bytes/message'],
    [
      ...names.map((name) => {
        const rates = figures[name].map((figure) => figure.perSecond);
        return [name, rate(name), Math.min(...rates), Math.max(...rates), wal(name)];
      }),
      ['limit: bare cursor read', limit, Math.min(...limits), Math.max(...limits), ''],
    ],
  );
  const relay = median(figures.waybill.map((figure) => figure.cpuMsPerThousand));
  printTable(
    ['processor time of Waybill', 'µs a message'],
    [
      ['PostgreSQL: claim', parts.claim],
      ['PostgreSQL: settle', parts.settle],
      ['relay: reading the claims', parts.reading],
      ['relay: dispatch and outcomes', relay - parts.reading],
    ],
  );
  const ratioToBestPeer = ratio(rate('waybill'), peers.length > 0 ? bestPeer : undefined);
  const ratioToLimit = ratio(rate('waybill'), limit);
  return {
    waybill: rate('waybill'),
    peers: Object.fromEntries(peers.map((name) => [name, rate(name)])),
    limit,
    ratioToBestPeer,
    ratioToLimit,
    messages,
    distinct: Math.min(...figures.waybill.map((figure) => figure.distinct)),
    attempts: Math.max(...figures.waybill.map((figure) => figure.handled)),
    contenderSettings: settings,
    walBytesPerMessage: Object.fromEntries(names.map((name) => [name, wal(name)])),
    processorMicroseconds: { ...parts, relay },
    aims: [
      ...(ratioToBestPeer === null
        ? []
        : [{ what: 'times the best peer', atLeast: 2.5, actual: ratioToBestPeer }]),
      { what: 'share of the limit', atLeast: 0.25, actual: ratioToLimit ?? 0 },
      { what: 'WAL bytes per message', atMost: 200, actual: wal('waybill') },
    ],
  };
};

export function messageCount({ tiny, messages }: BenchOptions): number {
  return messages ?? (tiny ? 500 : 200_000);
}

export type DrainTask = {
  messages: number;
  /** The number of ordering keys; 0: messages without a key. */
  keys?: number;
  /** Called on the empty database, and on the loaded one. */
  beforeLoad?: () => Promise<void>;
  beforeDrain?: () => Promise<void>;
  whenDead?: string;
};

/** Preloads a fresh database and drains it once. */
export async function drainOnce(
  name: Contender,
  database: BenchDatabase,
  { messages, keys = 0, beforeLoad, beforeDrain, whenDead = 'continue' }: DrainTask,
): Promise<DrainFigure> {
  const { url, client } = database;
  await client.query('CHECKPOINT');
  const parameters = (count: number): string[] => [
    contenderModule[name],
    ...[count, payloadBytes, keys].map(String),
  ];
  if (beforeLoad !== undefined) {
    await runToEnd('bench/processes/prepare.mjs', parameters(0), { DATABASE_URL: url });
    await beforeLoad();
  }
  await runToEnd('bench/processes/prepare.mjs', parameters(messages), { DATABASE_URL: url });
  await client.query('VACUUM ANALYZE');
  await beforeDrain?.();
  const walBytes = await watchWal(client);
  const environment = {
    BENCH_PROBE: 'count',
    BENCH_EXPECTED: String(messages),
    BENCH_WHEN_DEAD: whenDead,
  };
  const worker =
    name === 'waybill'
      ? startRelay('handler.config.mjs', url, environment)
      : new Worker(
          'bench/processes/worker.mjs',
          [contenderModule[name], keys > 0 ? 'keyed' : 'drain'],
          {
            DATABASE_URL: url,
            ...environment,
          },
        );
  try {
    const { settings } = await worker.next<{ settings: Settings }>('settings');
    await worker.next('reached');
    await until(async () => !(await ask<boolean>(client, unfinished[name])));
    const endMs = clockMs();
    const wal = await walBytes();
    const { handled, distinct, firstMs, cpuMs } = await worker.ask<Counted>(
      { type: 'collect' },
      'counted',
    );
    await check(name, database, messages, handled, distinct);
    return {
      perSecond: (messages / (endMs - firstMs)) * 1000,
      walBytesPerMessage: wal / messages,
      handled,
      distinct,
      settings,
      cpuMsPerThousand: (cpuMs / messages) * 1000,
    };
  } finally {
    await worker.stop();
  }
}

/** Checks that every message was handled once and, for Waybill, has exactly one recorded attempt. */
async function check(
  name: Contender,
  { client }: BenchDatabase,
  messages: number,
  handled: number,
  distinct: number,
): Promise<void> {
  const counts: Record<string, number> = { handled, distinct };
  if (name === 'waybill') {
    counts['attempts'] = await ask(
      client,
      "SELECT count(*)::int AS answer FROM outbox.attempts WHERE state <> 'failed'",
    );
    counts['delivered'] = await ask(
      client,
      "SELECT count(DISTINCT message_id)::int AS answer FROM outbox.attempts WHERE state = 'dispatched'",
    );
    counts['messages'] = await ask(
      client,
      "SELECT count(*)::int AS answer FROM outbox.messages WHERE key IS NULL OR key NOT LIKE 'blocked %'",
    );
  }
  for (const [what, count] of Object.entries(counts)) {
    if (count !== messages) throw new Error(`${name}: ${what} is ${count} and not ${messages}`);
  }
}

/** Microseconds of processor time a message. */
type Parts = { claim: number; settle: number; reading: number };

async function measureParts(server: BenchServer, messages: number): Promise<Parts> {
  const database = await server.createDatabase('parts');
  try {
    const parameters = [contenderModule.waybill, String(messages), String(payloadBytes)];
    await runToEnd('bench/processes/prepare.mjs', parameters, { DATABASE_URL: database.url });
    await database.client.query('VACUUM ANALYZE');
    const destination = await ask<number>(
      database.client,
      "SELECT id AS answer FROM outbox.destinations WHERE name = 'sink'",
    );
    const worker = new Worker('bench/processes/claims.mjs', [String(batchSize)], {
      DATABASE_URL: relayUrl(database.url),
      BENCH_DESTINATION: String(destination),
    });
    try {
      const pids = await worker.next<{ claimPid: number; settlePid: number }>('ready');
      const spentMs = (): { claim: number; settle: number } => ({
        claim: processorMs(pids.claimPid) ?? Number.NaN,
        settle: processorMs(pids.settlePid) ?? Number.NaN,
      });
      const before = spentMs();
      const { total, cpuMs } = await worker.ask<{ total: number; cpuMs: number }>(
        { type: 'drain' },
        'ended',
      );
      const after = spentMs();
      const each = (ms: number): number => (ms * 1000) / total;
      return {
        claim: each(after.claim - before.claim),
        settle: each(after.settle - before.settle),
        reading: each(cpuMs),
      };
    } finally {
      await worker.stop();
    }
  } finally {
    await database.drop();
  }
}

/** The upper limit: messages a second that a bare cursor reads. */
export async function readLog({ url }: BenchDatabase, messages: number): Promise<number> {
  const { count, ms } = await runToEnd<{ count: number; ms: number }>(
    'bench/processes/cursor.mjs',
    [],
    { DATABASE_URL: url },
  );
  if (count !== messages) throw new Error(`the cursor read ${count} messages and not ${messages}`);
  return (count / ms) * 1000;
}
