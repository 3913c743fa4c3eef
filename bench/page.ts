// page: whether the page stays fast with a large outbox: ten million messages, a million of them dead. Calls the API
// over HTTP, as a browser does: each filter alone and all pairs, first and deep pages, the other screens. Some queries
// of the command line are measured too.

import { migrateUp } from '../src/database/migrate.js';
import type { Bench, BenchOptions } from './harness/bench.js';
import { ask } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';
import { printSettings, printTable, shown } from './harness/report.js';
import { callsOf, findExamples } from './page/calls.js';
import { load } from './page/load.js';
import type { Size } from './page/load.js';
import { measure } from './page/measure.js';
import type { Figure } from './page/measure.js';

const aimMs = 150;
const shownPairs = 15;

export const page: Bench = async (server, options) => {
  const size = sizeOf(options);
  const { database, loadSeconds } = await loaded(server, size, options);
  try {
    const { rows } = await database.client.query<Record<string, string>>(
      `SELECT (SELECT count(*) FROM outbox.messages) AS messages, (SELECT count(*) FROM outbox.attempts) AS attempts,
              (SELECT count(*) FROM outbox.dead_letters) AS "deadLetters", (SELECT count(*) FROM outbox.deliveries) AS waiting,
              (SELECT count(*) FROM outbox.statistics) AS statistics, pg_size_pretty(pg_database_size(current_database())) AS bytes`,
    );
    printSettings('Page', { ...rows[0], days: size.days, loadSeconds: shown(loadSeconds) });
    const calls = callsOf(size, await findExamples(database.client));
    const figures = await measure(database.url, calls, options);
    return report(figures, { size, loadSeconds });
  } finally {
    if (options.keep === undefined) await database.drop();
    else await database.client.end();
  }
};

/** The loaded database of this size; reuses one that an earlier run kept. */
async function loaded(
  server: BenchServer,
  size: Size,
  { keep }: BenchOptions,
): Promise<{ database: BenchDatabase; loadSeconds: number }> {
  const mark = `loaded: ${size.messages} messages of ${size.days} days`;
  const kept = keep === undefined ? null : await server.findDatabase('page_1');
  if (kept !== null) {
    const found = await ask<string | null>(
      kept.client,
      `SELECT shobj_description(oid, 'pg_database') AS answer FROM pg_database WHERE datname = current_database()`,
    );
    if (found === mark) {
      // the functions may have changed since
      await migrateUp({ url: kept.url });
      return { database: kept, loadSeconds: 0 };
    }
    await kept.drop();
  }
  const startedMs = performance.now();
  const database = await server.createDatabase('page');
  await load(database.url, size);
  await database.client.query(`COMMENT ON DATABASE page_1 IS '${mark}'`);
  return { database, loadSeconds: (performance.now() - startedMs) / 1000 };
}

function sizeOf({ tiny, messages }: BenchOptions): Size {
  return tiny
    ? { messages: messages ?? 3000, days: 1 }
    : { messages: messages ?? 10_000_000, days: 30 };
}

function report(figures: readonly Figure[], facts: { size: Size; loadSeconds: number }) {
  // calls of the command line are shown but are not part of the aim
  const ofPage = figures.filter(({ kind }) => kind !== 'command');
  const slowest = ofPage.toSorted((a, b) => b.p95 - a.p95);
  const table = (title: string, shownFigures: readonly Figure[]): void =>
    printTable(
      [title, 'p50, ms', 'p95, ms', 'max, ms', 'PostgreSQL, ms', ''],
      shownFigures.map(({ name, p50, p95, max, processorMs }) => [
        name,
        p50,
        p95,
        max,
        processorMs,
        p95 > aimMs ? 'SLOW' : '',
      ]),
    );
  table(
    'first page',
    figures.filter(({ kind }) => kind === 'alone'),
  );
  table(
    'deep page',
    figures.filter(({ kind }) => kind === 'deep'),
  );
  table(
    `the slowest of ${figures.filter(({ kind }) => kind === 'pair').length} pairs`,
    slowest.filter(({ kind }) => kind === 'pair').slice(0, shownPairs),
  );
  table(
    'screen',
    figures.filter(({ kind }) => kind === 'screen'),
  );
  table(
    'command line',
    figures.filter(({ kind }) => kind === 'command'),
  );
  return {
    waybill: figures,
    peers: {},
    limit: null,
    ratioToBestPeer: null,
    ratioToLimit: null,
    ...facts,
    slow: slowest.filter(({ p95 }) => p95 > aimMs).length,
    aims: [
      {
        what: `p95 of the slowest call, ms (${slowest[0]?.name ?? ''})`,
        atMost: aimMs,
        actual: slowest[0]?.p95 ?? Number.NaN,
      },
    ],
  };
}
