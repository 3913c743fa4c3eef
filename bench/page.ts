// Bench of the page: measures its API calls over ten million messages, then its searches and the first paint in
// Chromium.

import { migrateUp } from '../src/database/migrate.js';
import type { Bench, BenchOptions } from './harness/bench.js';
import { ask } from './harness/server.js';
import type { BenchDatabase, BenchServer } from './harness/server.js';
import { printSettings, printTable, shown } from './harness/report.js';
import { callsOf, findExamples } from './page/calls.js';
import { load } from './page/load.js';
import type { Size } from './page/load.js';
import { findExisting } from './page/finding.js';
import type { Finding } from './page/finding.js';
import { firstPaint, mostKilobytes } from './page/first-paint.js';
import type { FirstPaint } from './page/first-paint.js';
import { measure, withServer } from './page/measure.js';
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
              (SELECT count(*) FROM outbox.deliveries WHERE key_id IS NOT NULL) AS "waitingKeyed",
              (SELECT count(*) FROM outbox.destinations) AS destinations, (SELECT count(*) FROM outbox.statistics) AS statistics, pg_size_pretty(pg_database_size(current_database())) AS bytes`,
    );
    printSettings('Page', { ...rows[0], days: size.days, loadSeconds: shown(loadSeconds) });
    const calls = callsOf(size, await findExamples(database.client));
    return await withServer(database.url, async (served) => {
      const figures = await measure(served, calls, options);
      const finding = await findExisting(served.url);
      const paint = await firstPaint(served.url, options.tiny ? 1 : options.rounds);
      return report(figures, { size, loadSeconds, finding, paint });
    });
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
  const mark = `loaded with reports and dedupe keys: ${size.messages} messages of ${size.days} days, ${size.destinations} destinations`;
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
    ? { messages: messages ?? 3000, days: 1, destinations: 30 }
    : { messages: messages ?? 10_000_000, days: 30, destinations: 100_000 };
}

type Facts = { size: Size; loadSeconds: number; finding: Finding; paint: FirstPaint | null };

function report(figures: readonly Figure[], facts: Facts) {
  const { finding, paint } = facts;
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
  printSettings('Searches for messages that exist', {
    searches: finding.searches,
    parameters: finding.parameters,
    missed: finding.missed,
    mostRequests: finding.mostRequests,
    longestSearch: finding.longestSearch,
  });
  if (paint !== null)
    printSettings('The page in Chromium', {
      'first paint': `${shown(paint.paintMs)} ms`,
      'compressed files': `${shown(paint.bytes / 1000)} kB`,
    });
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
      {
        what: 'searches that miss a message that exists',
        atMost: 0,
        actual: finding.missed.length,
      },
      ...(paint === null
        ? []
        : [
            {
              what: 'compressed files of the page, kB',
              atMost: mostKilobytes,
              actual: paint.bytes / 1000,
            },
          ]),
    ],
  };
}
