// relays: how throughput grows with the number of relays. A backlog for a handler that waits 20 ms, as for a remote
// answer, is delivered by one, two and four relays, each with a hundred deliveries in flight. Fails unless every
// message was handled exactly once.

import { contenderModule } from './harness/bench.js';
import type { Bench } from './harness/bench.js';
import { unfinished } from './drain.js';
import { runToEnd, startRelay } from './harness/processes.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { clockMs, interleave, median, until } from './harness/rounds.js';
import { ask } from './harness/server.js';
import type { BenchServer } from './harness/server.js';

const payloadBytes = 500;
const handlerMs = 20;
const counts = ['1', '2', '4'] as const;

type Counted = { handled: number; distinct: number; firstMs: number };

export const relays: Bench = async (server, options) => {
  const messages = options.messages ?? (options.tiny ? 400 : 50_000);
  const figures = await interleave(options.rounds, counts, async (count, round) => {
    const perSecond = await workOff(server, Number(count), messages);
    progress(`round ${round + 1}: ${count} relays ${shown(perSecond)}/s`);
    return perSecond;
  });
  const one = median(figures['1']);
  printSettings('Relays', {
    messages,
    payloadBytes,
    handlerMs,
    concurrency: 100,
    rounds: options.rounds,
  });
  printTable(
    ['relays', 'messages/s', 'lowest', 'highest', 'times one'],
    counts.map((count) => [
      count,
      median(figures[count]),
      Math.min(...figures[count]),
      Math.max(...figures[count]),
      median(figures[count]) / one,
    ]),
  );
  return {
    waybill: Object.fromEntries(counts.map((count) => [count, median(figures[count])])),
    peers: {},
    limit: (100 / handlerMs) * 1000,
    ratioToBestPeer: null,
    ratioToLimit: one / ((100 / handlerMs) * 1000),
    messages,
    handlerMs,
    aims: [],
  };
};

async function workOff(server: BenchServer, count: number, messages: number): Promise<number> {
  const database = await server.createDatabase('relays');
  try {
    await runToEnd(
      'bench/processes/prepare.mjs',
      [contenderModule.waybill, String(messages), String(payloadBytes)],
      { DATABASE_URL: database.url },
    );
    await database.client.query('VACUUM ANALYZE');
    // paused, so all relays are running before the first gets work
    await database.client.query("SELECT outbox.set_paused('sink', true)");
    const started = Array.from({ length: count }, () =>
      startRelay('handler.config.mjs', database.url, {
        BENCH_PROBE: 'count',
        BENCH_HANDLER_MS: String(handlerMs),
      }),
    );
    try {
      for (const relay of started) await relay.next('settings');
      await until(() =>
        ask(database.client, `SELECT count(*) = ${count} AS answer FROM outbox.relays`),
      );
      await database.client.query("SELECT outbox.set_paused('sink', false)");
      await until(async () => !(await ask<boolean>(database.client, unfinished.waybill)));
      const endMs = clockMs();
      const counted = await Promise.all(
        started.map((relay) => relay.ask<Counted>({ type: 'collect' }, 'counted')),
      );
      const handled = counted.reduce((sum, one) => sum + one.handled, 0);
      if (handled !== messages) throw new Error(`${handled} of ${messages} messages were handled`);
      const firstMs = Math.min(
        ...counted.filter((one) => one.handled > 0).map((one) => one.firstMs),
      );
      return (messages / (endMs - firstMs)) * 1000;
    } finally {
      await Promise.all(started.map((relay) => relay.stop()));
    }
  } finally {
    await database.drop();
  }
}
