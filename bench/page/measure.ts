// Makes the page's calls one after the other over HTTP, to a server as `waybill start` runs it. Measures the time
// until the whole answer has arrived, and the processor time of PostgreSQL, which does not depend on other load.

import { readFileSync } from 'node:fs';

import type pg from 'pg';

import { Database, resolveDatabaseOptions } from '../../src/database/connection.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import { resolveServerOptions } from '../../src/server/options.js';
import { startServer } from '../../src/server/server.js';
import type { BenchOptions } from '../harness/bench.js';
import { progress } from '../harness/report.js';
import { median, spread } from '../harness/rounds.js';
import type { Spread } from '../harness/rounds.js';
import { connect } from '../harness/server.js';
import { searchedField } from './calls.js';
import type { Call } from './calls.js';
import { common } from './load.js';

/** The values of `waybill start`. */
const statementTimeoutMs = 5000;
const connections = 4;
const applicationName = 'waybill bench';
const callsPerRound = 4;
/** A deep page begins after so many pages of five hundred. */
const deepPages = 20;
const deepPlaces = 3;

export type Figure = {
  name: string;
  kind: Call['kind'];
  /** The median of PostgreSQL's processor time; NaN if the system does not report it. */
  processorMs: number;
} & Spread;

/** The server of the page, and the database that it asks. */
export type Served = {
  readonly url: string;
  readonly database: Database;
  readonly databaseUrl: string;
};

/** Does something with a server as `waybill start` runs it, without its response cache. */
export async function withServer<T>(url: string, act: (served: Served) => Promise<T>): Promise<T> {
  const database = new Database(resolveDatabaseOptions({ url, statementTimeoutMs }), {
    connections,
    applicationName,
  });
  const server = await startServer(resolveServerOptions({ port: 0, authentication: 'none' }), {
    database,
    isReady: () => true,
    config: {
      server: { searchablePayloadFields: [searchedField] },
      destinations: Object.fromEntries(
        common.destinations.map((name) => [name, webhook({ url: `https://${name}.example/hook` })]),
      ),
    },
    sharedForMs: 0,
  });
  try {
    return await act({ url: server.url, database, databaseUrl: url });
  } finally {
    await server.close();
    await database.close();
  }
}

export async function measure(
  served: Served,
  calls: readonly Call[],
  { tiny, rounds }: Pick<BenchOptions, 'tiny' | 'rounds'>,
): Promise<Figure[]> {
  const watcher = await connect(served.databaseUrl);
  try {
    const figures: Figure[] = [];
    const turns = tiny ? 1 : rounds * callsPerRound;
    for (const [index, call] of calls.entries()) {
      const ms: number[] = [];
      const processorMs: number[] = [];
      const paths: (string | null)[] = [];
      const begun = await call.begin?.(served.url);
      for (let turn = 0; turn < turns; turn += 1) {
        // finding a deep page takes long, so a few are used several times
        if (call.kind !== 'deep') paths[turn] = begun ?? call.path(turn);
        else if (turn < deepPlaces)
          paths[turn] = await deepPlace(served.url, call.path(turn), tiny ? 1 : deepPages);
        const path = paths[turn % paths.length] ?? null;
        if (path === null) continue;
        const before = await processorTimes(watcher);
        ms.push(await timeOf(served, call, path, turn));
        const spent = [...((await processorTimes(watcher)) ?? [])].map(
          ([pid, totalMs]) => totalMs - (before?.get(pid) ?? 0),
        );
        if (before !== null) processorMs.push(spent.reduce((a, b) => a + b, 0));
      }
      const { name, kind } = call;
      if (ms.length > 0)
        figures.push({ name, kind, processorMs: median(processorMs), ...spread(ms) });
      if (index % 20 === 19) progress(`${index + 1} of ${calls.length} calls measured`);
    }
    return figures;
  } finally {
    await watcher.end();
  }
}

/** The processor time of each server connection. Linux reports it in nanoseconds, other systems do not. */
async function processorTimes(watcher: pg.Client): Promise<Map<number, number> | null> {
  const { rows } = await watcher.query<{ pid: number }>(
    'SELECT pid FROM pg_stat_activity WHERE application_name = $1',
    [applicationName],
  );
  try {
    return new Map(
      rows.map(({ pid }) => {
        const [nanoseconds] = readFileSync(`/proc/${pid}/schedstat`, 'utf8').split(' ', 1);
        return [pid, Number(nanoseconds) / 1e6];
      }),
    );
  } catch {
    return null;
  }
}

async function timeOf(
  { url, database }: Pick<Served, 'url' | 'database'>,
  call: Call,
  path: string,
  turn: number,
): Promise<number> {
  const startedMs = performance.now();
  if (call.ask !== undefined) {
    await call.ask(database, turn);
    return performance.now() - startedMs;
  }
  const body = call.body?.(turn);
  const response = await fetch(url + path, {
    ...(call.method && { method: call.method }),
    ...(body && {
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    }),
  });
  const answer = await response.text();
  const ms = performance.now() - startedMs;
  // a call that timed out is slow, but not a failure of the bench
  if (!response.ok && response.status !== 503)
    throw new Error(`${path} answered ${response.status}: ${answer}`);
  return ms;
}

/** A page far into the same list; null if the list is too short. */
async function deepPlace(url: string, path: string, pages: number): Promise<string | null> {
  let place: string | null = null;
  for (let count = 0; count < pages; count += 1) {
    const address: string = path.replace('limit=50', 'limit=500');
    const response = await fetch(url + address + (place === null ? '' : `&next=${place}`));
    const { next } = (await response.json()) as { next?: string | null };
    if (next === null || next === undefined) return place === null ? null : `${path}&next=${place}`;
    place = next;
  }
  return `${path}&next=${place ?? ''}`;
}
