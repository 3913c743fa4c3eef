// fairness: the latency of twenty tenants with a little traffic each, first without and then with another tenant
// that has a million pending messages, at a destination with `fairness: 'tenant'`. The handler takes a few
// milliseconds, so the backlog lasts longer than the measurement.

import type { Bench } from './harness/bench.js';
import { Flow } from './harness/flow.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { interleave, median, spread } from './harness/rounds.js';
import type { Spread } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchDatabase } from './harness/server.js';

const tenants = 20;
const handlerMs = 5;
const load = { rate: 200, perTransaction: 1, heldEvery: 1000, heldMs: 0 };

type Figure = { alone: Spread; beside: Spread };

export const fairness: Bench = async (server, options) => {
  const backlog = options.messages ?? (options.tiny ? 500 : 1_000_000);
  const seconds = options.seconds ?? (options.tiny ? 0.5 : 10);
  const { waybill: figures } = await interleave(
    options.rounds,
    ['waybill'],
    async (_, round): Promise<Figure> => {
      const database = await server.createDatabase('fairness');
      const flow = await Flow.open('waybill', database.url, {
        BENCH_FAIRNESS: 'tenant',
        BENCH_TENANTS: String(tenants),
        BENCH_HANDLER_MS: String(handlerMs),
      });
      try {
        const alone = spread(await flow.measure(load, seconds));
        await addBacklog(database, backlog);
        const beside = spread(await flow.measure(load, seconds));
        const left = await ask<number>(
          database.client,
          'SELECT count(*)::int AS answer FROM outbox.deliveries',
        );
        if (left === 0 && !options.tiny) throw new Error('the backlog did not last: measure less');
        progress(
          `round ${round + 1}: p99 ${shown(alone.p99)} ms alone, ${shown(beside.p99)} ms beside ${shown(backlog)}`,
        );
        return { alone, beside };
      } finally {
        await flow.close();
        await database.drop();
      }
    },
  );

  const over = (pick: (figure: Figure) => number): number => median(figures.map(pick));
  const row = (name: string, of: (figure: Figure) => Spread): (string | number)[] => [
    name,
    over((figure) => of(figure).p50),
    over((figure) => of(figure).p95),
    over((figure) => of(figure).p99),
    over((figure) => of(figure).max),
  ];
  printSettings('Fairness', { backlog, tenants, handlerMs, seconds, rounds: options.rounds, load });
  printTable(
    ['twenty tenants, ms', 'p50', 'p95', 'p99', 'max'],
    [row('alone', (figure) => figure.alone), row('beside the backlog', (figure) => figure.beside)],
  );
  const alone = over((figure) => figure.alone.p99);
  const beside = over((figure) => figure.beside.p99);
  return {
    waybill: beside,
    peers: {},
    limit: alone,
    ratioToBestPeer: null,
    ratioToLimit: beside / alone,
    ratio: beside / alone,
    backlog,
    aims: [{ what: 'p99 beside the backlog / alone', atMost: 2, actual: beside / alone }],
  };
};

/** Adds the backlog while the destination is paused, so all of it is there when the measurement begins. */
async function addBacklog({ client }: BenchDatabase, messages: number): Promise<void> {
  await client.query("SELECT outbox.set_paused('sink', true)");
  await client.query(
    `SELECT count(e) FROM generate_series(0, $1 - 1, 1000) first, LATERAL outbox.enqueue_many((
       SELECT jsonb_agg(jsonb_build_object('topic', 'bench.message', 'tenantId', 'noisy', 'payload', jsonb_build_object('n', -2)))
         FROM generate_series(first, least(first + 1000, $1) - 1) n)) e`,
    [messages],
  );
  await client.query('VACUUM ANALYZE outbox.deliveries');
  await client.query("SELECT outbox.set_paused('sink', false)");
}
