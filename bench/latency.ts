// latency: from COMMIT to the start of the handler in another process, at 10, 1,000 and 5,000 messages a second (the
// last with 10 messages a transaction), while some transactions are held open for 200 ms. 10 a second measures the
// latency from idle: relay and destination become idle between two messages. Also the processor time of a message: of
// the worker's process, and of PostgreSQL with the sessions of the producer.

import { contenders } from './harness/bench.js';
import type { Bench, Contender } from './harness/bench.js';
import { Flow } from './harness/flow.js';
import type { Load } from './harness/flow.js';
import { countProcessorTime } from './harness/processor-time.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median, spread } from './harness/rounds.js';
import type { Spread } from './harness/rounds.js';
import { serverProcesses } from './harness/server.js';

const held = { heldMs: 200 };

/** The slow load runs longer, because its p99 would otherwise depend on a single message. */
const loads: { load: Load; seconds: number }[] = [
  { load: { rate: 10, perTransaction: 1, heldEvery: 10, ...held }, seconds: 20 },
  { load: { rate: 1000, perTransaction: 1, heldEvery: 50, ...held }, seconds: 10 },
  { load: { rate: 5000, perTransaction: 10, heldEvery: 50, ...held }, seconds: 10 },
];

/** Peers that fall behind at a higher rate, where a latency would only show the length of the run. */
const highestRates: Partial<Record<Contender, number>> = { bullmq: 1000 };

function loadsOf(name: Contender): typeof loads {
  return loads.filter(({ load }) => load.rate <= (highestRates[name] ?? Infinity));
}

/** workerMs, postgresMs: milliseconds of processor time for a thousand messages. */
type Figure = Spread & { arrived: number; workerMs: number; postgresMs: number };
type ByRate = Record<string, Figure>;

export const latency: Bench = async (server, options) => {
  const names = contenders(options, ['pg-boss-notify', 'bullmq']);
  const settings: Record<string, Record<string, unknown>> = {};
  const figures = await interleave(options.rounds, names, async (name, round) => {
    const database = await server.createDatabase(name);
    const flow = await Flow.open(name, database.url);
    settings[name] = flow.settings;
    try {
      const byRate: ByRate = {};
      for (const { load, seconds } of loadsOf(name)) {
        const length = options.seconds ?? (options.tiny ? 0.5 : seconds);
        const spent = await countProcessorTime(async () => ({
          worker: [flow.worker.pid],
          postgres: await serverProcesses(database),
        }));
        const latencies = await flow.measure(load, length);
        const { worker, postgres } = await spent();
        const sent = load.rate * (length + Flow.warmUpSeconds(length));
        const figure = {
          ...spread(latencies),
          arrived: latencies.length / length,
          workerMs: ((worker ?? Number.NaN) / sent) * 1000,
          postgresMs: ((postgres ?? Number.NaN) / sent) * 1000,
        };
        byRate[load.rate] = figure;
        progress(
          `round ${round + 1}: ${name} at ${load.rate}/s: p50 ${shown(figure.p50)}, p99 ${shown(figure.p99)}, max ${shown(figure.max)} ms`,
        );
      }
      return byRate;
    } finally {
      await flow.close();
      await database.drop();
    }
  });

  const summary = (name: Contender, rate: number): Figure => {
    const rounds = figures[name].map((byRate) => byRate[rate]).filter((figure) => !!figure);
    const over = (pick: (figure: Figure) => number): number => median(rounds.map(pick));
    return {
      p50: over((figure) => figure.p50),
      p95: over((figure) => figure.p95),
      p99: over((figure) => figure.p99),
      max: over((figure) => figure.max),
      arrived: over((figure) => figure.arrived),
      workerMs: over((figure) => figure.workerMs),
      postgresMs: over((figure) => figure.postgresMs),
    };
  };
  const summaries = (name: Contender): ByRate =>
    Object.fromEntries(loadsOf(name).map(({ load }) => [load.rate, summary(name, load.rate)]));

  printSettings('Latency', { payloadBytes: 500, rounds: options.rounds, loads });
  for (const [name, own] of Object.entries(settings)) printSettings(name, own);
  for (const { load } of loads) {
    printTable(
      [
        `${shown(load.rate)}/s, ms`,
        'p50',
        'p95',
        'p99',
        'max',
        'messages/s',
        'processor ms per 1,000: worker',
        'PostgreSQL',
      ],
      names
        .filter((name) => loadsOf(name).some((own) => own.load === load))
        .map((name) => {
          const { p50, p95, p99, max, arrived, workerMs, postgresMs } = summary(name, load.rate);
          return [name, p50, p95, p99, max, arrived, workerMs, postgresMs];
        }),
    );
  }
  const peers = names.filter((name) => name !== 'waybill');
  const best = (rate: number, pick: 'p50' | 'p99'): number =>
    Math.min(...peers.map((name) => summary(name, rate)[pick]).filter(Number.isFinite));
  const timesBest = (rate: number, pick: 'p50' | 'p99'): number =>
    summary('waybill', rate)[pick] / best(rate, pick);
  return {
    waybill: summaries('waybill'),
    peers: Object.fromEntries(peers.map((name) => [name, summaries(name)])),
    limit: null,
    /** The ratio of the p99 at 1,000/s; above 1 is better than the best peer. */
    ratioToBestPeer: peers.length === 0 ? null : 1 / timesBest(1000, 'p99'),
    ratioToLimit: null,
    contenderSettings: settings,
    aims: [
      { what: 'p99 at 1,000/s, ms', atMost: 15, actual: summary('waybill', 1000).p99 },
      { what: 'p99 from idle, ms', atMost: 25, actual: summary('waybill', 10).p99 },
      ...(peers.length === 0
        ? []
        : [
            { what: 'p50 from idle / best peer', atMost: 1.2, actual: timesBest(10, 'p50') },
            { what: 'p50 at 1,000/s / best peer', atMost: 1, actual: timesBest(1000, 'p50') },
            { what: 'p99 at 1,000/s / best peer', atMost: 1, actual: timesBest(1000, 'p99') },
            { what: 'p50 at 5,000/s / best peer', atMost: 1, actual: timesBest(5000, 'p50') },
            { what: 'p99 at 5,000/s / best peer', atMost: 1, actual: timesBest(5000, 'p99') },
          ]),
    ],
  };
};
