// soak: several minutes at 2,000 messages a second. The relay's memory, the hot tables with their indexes, and the
// latency must not grow. Messages and attempts do grow, until retention drops their day: their bytes per message are
// measured and extrapolated.

import type { Bench } from './harness/bench.js';
import { Flow } from './harness/flow.js';
import type { Worker } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { median, pause, percentile } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';

const rate = 2000;
const retentionDays = 7;
const daySeconds = 86_400;
const load = { rate, perTransaction: 1, heldEvery: 50, heldMs: 200 };

type Sample = { minute: number; memoryMiB: number; hotMiB: number; p50: number; p99: number };

export const soak: Bench = async (server, options) => {
  const minutes = options.minutes ?? (options.tiny ? 0.05 : 10);
  const windowMs = options.tiny ? 500 : 10_000;
  const database = await server.createDatabase('soak');
  const flow = await Flow.open('waybill', database.url);
  try {
    const startedMs = performance.now();
    const samples: Sample[] = [];
    const before = await keptBytes(database);
    flow.start(load);
    while (performance.now() - startedMs < minutes * 60_000) {
      await pause(windowMs);
      const latencies = await flow.take();
      const sample = {
        minute: (performance.now() - startedMs) / 60_000,
        memoryMiB: await memoryMiB(flow.worker),
        hotMiB: await hotMiB(database),
        p50: percentile(latencies, 50),
        p99: percentile(latencies, 99),
      };
      samples.push(sample);
      progress(
        `${sample.minute.toFixed(1)} min: memory ${shown(sample.memoryMiB)} MiB, hot tables ${shown(sample.hotMiB)} MiB, p99 ${shown(sample.p99)} ms`,
      );
    }
    await flow.stop();
    await flow.takeAll();
    const bytesPerMessage = ((await keptBytes(database)) - before) / (await messageCount(database));
    return report(samples, minutes, bytesPerMessage);
  } finally {
    await flow.close();
    await database.drop();
  }
};

function report(allSamples: readonly Sample[], minutes: number, bytesPerMessage: number) {
  // The beginning is left out: tables only grow until autovacuum has run a few times.
  const samples = allSamples.slice(Math.floor(allSamples.length / 5));
  const third = Math.max(Math.floor(samples.length / 3), 1);
  const early = samples.slice(0, third);
  const late = samples.slice(-third);
  const grown = (pick: (sample: Sample) => number): number =>
    median(late.map(pick)) / median(early.map(pick));
  const keptAt = (perSecond: number): number =>
    bytesPerMessage * perSecond * daySeconds * retentionDays;
  const growth = {
    memory: grown((sample) => sample.memoryMiB),
    hotTables: grown((sample) => sample.hotMiB),
    p50: grown((sample) => sample.p50),
    p99: grown((sample) => sample.p99),
  };
  const bytesAYear = {
    bytesPerMessage,
    retentionDays,
    /** The size at the end of a year (or of any week) with retention, at this rate and at 1,000 a minute. */
    withPruningAtThisRate: keptAt(rate),
    withPruningAt1000AMinute: keptAt(1000 / 60),
    withoutPruningAtThisRate: bytesPerMessage * rate * daySeconds * 365,
  };
  printSettings('Soak', { minutes, ...load, payloadBytes: 500 });
  printTable(
    ['', 'first third', 'last third', 'ratio'],
    (
      [
        ['memory of the relay, MiB', (sample) => sample.memoryMiB],
        ['hot tables and indexes, MiB', (sample) => sample.hotMiB],
        ['latency p50, ms', (sample) => sample.p50],
        ['latency p99, ms', (sample) => sample.p99],
      ] satisfies [string, (sample: Sample) => number][]
    ).map(([what, pick]) => [what, median(early.map(pick)), median(late.map(pick)), grown(pick)]),
  );
  printTable(
    ['extrapolated', 'GiB'],
    [
      [
        `after a year at ${rate}/s, ${retentionDays} days kept`,
        bytesAYear.withPruningAtThisRate / 2 ** 30,
      ],
      [
        `after a year at 1,000/min, ${retentionDays} days kept`,
        bytesAYear.withPruningAt1000AMinute / 2 ** 30,
      ],
      ['per million messages', (bytesPerMessage * 1e6) / 2 ** 30],
    ],
  );
  return {
    waybill: growth,
    peers: {},
    limit: null,
    ratioToBestPeer: null,
    ratioToLimit: null,
    minutes,
    samples,
    bytesAYear,
    aims: [
      { what: 'memory, last third / first third', atMost: 1.1, actual: growth.memory },
      { what: 'hot tables, last third / first third', atMost: 1.2, actual: growth.hotTables },
      { what: 'latency p50, last third / first third', atMost: 1.2, actual: growth.p50 },
      { what: 'latency p99, last third / first third', atMost: 1.5, actual: growth.p99 },
    ],
  };
}

async function memoryMiB(relay: Worker): Promise<number> {
  const { bytes } = await relay.ask<{ bytes: number }>({ type: 'measure' }, 'memory');
  return bytes / 2 ** 20;
}

/** All tables of the schema except messages and attempts, with indexes and TOAST. */
async function hotMiB({ client }: BenchDatabase): Promise<number> {
  return (await totalBytes(client, 'NOT')) / 2 ** 20;
}

/** Messages and attempts, with their indexes and TOAST. */
export async function keptBytes({ client }: BenchDatabase): Promise<number> {
  return totalBytes(client, '');
}

async function totalBytes(client: BenchDatabase['client'], not: 'NOT' | ''): Promise<number> {
  return ask<number>(
    client,
    `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::float8 AS answer
       FROM pg_class c
      WHERE c.relnamespace = 'outbox'::regnamespace AND c.relkind = 'r'
        AND ${not} c.relname ~ '^(messages|attempts)_'`,
  );
}

async function messageCount({ client }: BenchDatabase): Promise<number> {
  return ask<number>(client, 'SELECT count(*)::float8 AS answer FROM outbox.messages');
}
