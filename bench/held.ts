// held: half an hour at 2,000 messages a second while another session holds a snapshot, so vacuum removes nothing, with
// a tenth of that time before and after it. Dead rows, sizes, deliveries a second and latency over time. Nothing may be
// left undelivered.

import { contenders } from './harness/bench.js';
import type { Bench, Contender } from './harness/bench.js';
import { Flow } from './harness/flow.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { median, pause, percentile } from './harness/rounds.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';
import { holdSnapshot } from './xmin.js';

const load = { rate: 2000, perTransaction: 10, heldEvery: 1_000_000, heldMs: 0 };
const defaultSeconds = 1800;
const windows = { before: 3, held: 15, after: 3 };

/** The tables of the queue itself. Waybill's log, which is only appended to, is not among them. */
const queueTables: Partial<Record<Contender, string>> = {
  waybill: "schemaname = 'outbox' AND relname !~ '^(messages|attempts)_'",
  'graphile-worker': "schemaname = 'graphile_worker'",
  'pg-boss': "schemaname = 'pgboss'",
};

type Part = keyof typeof windows;
type Size = { deadRows: number; tablesMiB: number; indexesMiB: number };
type Sample = Size & { part: Part; minute: number; perSecond: number; p50: number; p99: number };

export const held: Bench = async (server, options) => {
  const seconds = options.seconds ?? (options.tiny ? 3 : defaultSeconds);
  const names = contenders(options);
  const samples: Partial<Record<Contender, Sample[]>> = {};
  for (const name of names) samples[name] = await hold(name, server, seconds);

  printSettings('Held', { ...load, seconds, payloadBytes: 500 });
  const columns = ['minute', 'messages/s', 'p50, ms', 'p99, ms', 'dead rows', 'tables', 'indexes'];
  for (const name of names)
    printTable(
      [`${name} (MiB)`, ...columns],
      (samples[name] ?? []).map((sample) => [
        sample.part,
        sample.minute,
        sample.perSecond,
        sample.p50,
        sample.p99,
        sample.deadRows,
        sample.tablesMiB,
        sample.indexesMiB,
      ]),
    );
  const summary = (name: Contender) => summarise(samples[name] ?? []);
  const own = summary('waybill');
  return {
    waybill: own,
    peers: Object.fromEntries(names.slice(1).map((name) => [name, summary(name)])),
    limit: null,
    ratioToBestPeer: null,
    ratioToLimit: null,
    seconds,
    samples,
    aims: [
      { what: 'rate at the end of the hold / before', atLeast: 0.95, actual: own.rate },
      { what: 'p50 at the end of the hold / before', atMost: 2, actual: own.p50 },
    ],
  };
};

async function hold(name: Contender, server: BenchServer, seconds: number): Promise<Sample[]> {
  const database = await server.createDatabase(`held ${name}`);
  const flow = await Flow.open(name, database.url);
  const samples: Sample[] = [];
  const startedMs = performance.now();
  try {
    flow.start(load);
    await sampleFor('before', seconds / 10);
    const release = await holdSnapshot(database);
    await sampleFor('held', seconds);
    await release();
    await sampleFor('after', seconds / 10);
    await flow.stop();
    await flow.takeAll();
  } finally {
    await flow.close();
    await database.drop();
  }
  return samples;

  async function sampleFor(part: Part, partSeconds: number): Promise<void> {
    for (let window = 0; window < windows[part]; window += 1) {
      const windowMs = performance.now();
      await pause((partSeconds / windows[part]) * 1000);
      const latencies = await flow.take();
      const nowMs = performance.now();
      const sample = {
        part,
        minute: (nowMs - startedMs) / 60_000,
        perSecond: (latencies.length / (nowMs - windowMs)) * 1000,
        p50: percentile(latencies, 50),
        p99: percentile(latencies, 99),
        ...(await sizeOf(database, name)),
      };
      samples.push(sample);
      progress(
        `${name}, ${part}, ${sample.minute.toFixed(1)} min: ${shown(sample.perSecond)}/s, p99 ${shown(sample.p99)} ms, ${shown(sample.deadRows)} dead rows, indexes ${shown(sample.indexesMiB)} MiB`,
      );
    }
  }
}

async function sizeOf({ client }: BenchDatabase, name: Contender): Promise<Size> {
  const { rows } = await client.query<Size>(
    `SELECT coalesce(sum(n_dead_tup), 0)::float8 AS "deadRows",
            coalesce(sum(pg_table_size(relid)), 0)::float8 / 1048576 AS "tablesMiB",
            coalesce(sum(pg_indexes_size(relid)), 0)::float8 / 1048576 AS "indexesMiB"
       FROM pg_stat_user_tables
      WHERE ${queueTables[name] ?? 'false'}`,
  );
  return rows[0] ?? { deadRows: 0, tablesMiB: 0, indexesMiB: 0 };
}

/** The end of the hold compared with the time before it, and the sizes at the end of the hold. */
function summarise(samples: readonly Sample[]) {
  const before = samples.filter(({ part }) => part === 'before');
  const late = samples.filter(({ part }) => part === 'held').slice(-windows.held / 3);
  const ratio = (pick: (sample: Sample) => number): number =>
    median(late.map(pick)) / median(before.map(pick));
  const { deadRows, tablesMiB, indexesMiB } = late.at(-1) ?? {};
  return {
    rate: ratio(({ perSecond }) => perSecond),
    p50: ratio(({ p50 }) => p50),
    p99: ratio(({ p99 }) => p99),
    deadRows,
    tablesMiB,
    indexesMiB,
  };
}
