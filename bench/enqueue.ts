// enqueue: the cost for producers. Single: one message in its own transaction; batch: a thousand in one. Then 1, 16
// and 64 writers at once, in three modes: with wake-up notifications on (a relay is active, so producers check and
// do not notify), off, and with a plain NOTIFY in every transaction instead. And what one message adds to a transaction
// that writes one row of its own, compared with an INSERT into a plain outbox table.

import { contenderModule, contenders, ratio } from './harness/bench.js';
import type { Bench, BenchOptions, Contender } from './harness/bench.js';
import { runToEnd, Worker } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median, spread } from './harness/rounds.js';
import type { Spread } from './harness/rounds.js';
import { ask, connect } from './harness/server.js';
import type { BenchServer } from './harness/server.js';

const batchSize = 1000;
const writerCounts = [1, 16, 64] as const;
const wakeUpModes = ['on', 'off', 'notify'] as const;
const awakeMs = 3_600_000;

type Mode = (typeof wakeUpModes)[number];
type Task = { writers: number; perTransaction: number; seconds: number; mode?: Mode };
type Entrant = Contender | 'plain table';

export const enqueue: Bench = async (server, options) => {
  const seconds = options.seconds ?? (options.tiny ? 0.2 : 3);
  const entrants: Entrant[] = [...contenders(options), 'plain table'];
  const single = await race(server, options, entrants, { writers: 1, perTransaction: 1, seconds });
  const batch = await race(server, options, entrants, {
    writers: 1,
    perTransaction: batchSize,
    seconds,
  });
  const wakeUps = await measureWakeUps(server, options, seconds);
  const ownRow = await measureOwnRow(server, options);

  printSettings('Enqueue', { payloadBytes: 500, batchSize, seconds, rounds: options.rounds });
  printTable(
    ['contender', 'single messages/s', 'batch messages/s'],
    entrants.map((name) => [
      name === 'plain table' ? 'limit: plain table' : name,
      single[name],
      batch[name],
    ]),
  );
  printTable(
    ['writers', 'wake-ups on/s', 'off/s', 'plain NOTIFY/s', 'on/off', 'NOTIFY/off'],
    Object.entries(wakeUps).map(([writers, rates]) => [
      writers,
      rates.on,
      rates.off,
      rates.notify,
      rates.on / rates.off,
      rates.notify / rates.off,
    ]),
  );
  printTable(
    ['a transaction with one row of its own, ms', 'p50', 'p99', 'added, p50', 'added, p99'],
    Object.entries(ownRow).map(([kind, { p50, p99 }]) => [
      ownRowTitles[kind as OwnRowKind],
      p50,
      p99,
      p50 - ownRow.alone.p50,
      p99 - ownRow.alone.p99,
    ]),
  );
  const peers = entrants.filter((name) => name !== 'waybill' && name !== 'plain table');
  const wakeUpRatios = Object.entries(wakeUps).map(
    ([writers, { on, off }]) => [Number(writers), on / off] as const,
  );
  const bestBatch = Math.max(...peers.map((name) => batch[name]));
  return {
    waybill: { single: single.waybill, batch: batch.waybill },
    peers: Object.fromEntries(
      peers.map((name) => [name, { single: single[name], batch: batch[name] }]),
    ),
    limit: { single: single['plain table'], batch: batch['plain table'] },
    ratioToBestPeer:
      peers.length === 0
        ? null
        : ratio(single.waybill, Math.max(...peers.map((name) => single[name]))),
    ratioToLimit: ratio(single.waybill, single['plain table']),
    wakeUps,
    wakeUpRatios: Object.fromEntries(wakeUpRatios),
    ownRow,
    aims: [
      ...(peers.length === 0
        ? []
        : [
            {
              what: 'batches: times the best peer',
              atLeast: 1,
              actual: ratio(batch.waybill, bestBatch) ?? 0,
            },
          ]),
      {
        what: 'batches: share of the limit',
        atLeast: 0.55,
        actual: ratio(batch.waybill, batch['plain table']) ?? 0,
      },
      {
        what: 'single: share of the limit',
        atLeast: 0.8,
        actual: ratio(single.waybill, single['plain table']) ?? 0,
      },
      ...wakeUpRatios
        .filter(([writers]) => writers > 1)
        .map(([writers, actual]) => ({
          what: `wake-ups on / off at ${writers} writers`,
          atLeast: 0.97,
          actual,
        })),
    ],
  };
};

/** Messages a second of each entrant: medians over the rounds, with a fresh database in each. */
async function race(
  server: BenchServer,
  { rounds }: BenchOptions,
  entrants: readonly Entrant[],
  task: Task,
): Promise<Record<Entrant, number>> {
  const rates = await interleave(rounds, entrants, async (name, round) => {
    const database = await server.createDatabase(name);
    try {
      const module = name === 'plain table' ? 'processes/plain-table.mjs' : contenderModule[name];
      const rate = await withWriters(module, database.url, async (write) => write(task));
      progress(
        `round ${round + 1}: ${name}, ${task.perTransaction} a transaction: ${shown(rate)}/s`,
      );
      return rate;
    } finally {
      await database.drop();
    }
  });
  return Object.fromEntries(entrants.map((name) => [name, median(rates[name])])) as Record<
    Entrant,
    number
  >;
}

async function measureWakeUps(
  server: BenchServer,
  { rounds, tiny }: BenchOptions,
  seconds: number,
): Promise<Record<string, Record<Mode, number>>> {
  const results: Record<string, Record<Mode, number>> = {};
  for (const writers of tiny ? [1, 4] : writerCounts) {
    const database = await server.createDatabase('wakeups');
    const listener = await connect(database.url);
    try {
      results[writers] = await withWriters(contenderModule.waybill, database.url, async (write) => {
        await listener.query('LISTEN "waybill:outbox"; LISTEN bench_plain');
        await ask(
          database.client,
          `SELECT outbox.register_listener(gen_random_uuid(), ARRAY (SELECT id FROM outbox.destinations), ${awakeMs}, ${awakeMs}) AS answer`,
        );
        const rates = await interleave(rounds, wakeUpModes, async (mode, round) => {
          const rate = await write({ writers, perTransaction: 1, seconds, mode });
          progress(`round ${round + 1}: ${writers} writers, wake-ups ${mode}: ${shown(rate)}/s`);
          return rate;
        });
        return { on: median(rates.on), off: median(rates.off), notify: median(rates.notify) };
      });
    } finally {
      await listener.end();
      await database.drop();
    }
  }
  return results;
}

const ownRowTitles = {
  alone: 'nothing more',
  plain: 'and an INSERT into a plain outbox table',
  enqueue: 'and an enqueue',
};
type OwnRowKind = keyof typeof ownRowTitles;

async function measureOwnRow(
  server: BenchServer,
  { rounds, tiny }: BenchOptions,
): Promise<Record<OwnRowKind, Spread>> {
  const times: Record<OwnRowKind, number[]> = { alone: [], plain: [], enqueue: [] };
  for (let round = 0; round < rounds; round += 1) {
    const database = await server.createDatabase('ownrow');
    try {
      const { times: measured } = await runToEnd<{ times: typeof times }>(
        'bench/processes/own-row.mjs',
        [contenderModule.waybill, tiny ? '20' : '1000'],
        { DATABASE_URL: database.url },
      );
      for (const kind of Object.keys(times) as OwnRowKind[]) times[kind].push(...measured[kind]);
    } finally {
      await database.drop();
    }
  }
  return { alone: spread(times.alone), plain: spread(times.plain), enqueue: spread(times.enqueue) };
}

async function withWriters<T>(
  module: string,
  url: string,
  work: (write: (task: Task) => Promise<number>) => Promise<T>,
): Promise<T> {
  const writers = new Worker('bench/processes/writers.mjs', [module], { DATABASE_URL: url });
  try {
    await writers.next('ready');
    return await work(async (task) => {
      const { transactions, ms } = await writers.ask<{ transactions: number; ms: number }>(
        { type: 'write', ...task },
        'written',
      );
      return ((transactions * task.perTransaction) / ms) * 1000;
    });
  } finally {
    await writers.stop();
  }
}
