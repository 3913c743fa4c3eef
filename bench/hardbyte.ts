// hardbyte: the chaos and pressure cells of hardbyte/postgresql-job-queue-benchmarking, with its phases and rules and
// our adapter, on a PostgreSQL on loopback instead of its containers. The run fails if a committed message is lost.

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

import { startPostgres } from '../src/dev/embedded-postgres.js';
import type { PostgresServer } from '../src/dev/embedded-postgres.js';
import { cells } from './hardbyte/cells.js';
import type { Cell } from './hardbyte/cells.js';
import { runPhase } from './hardbyte/faults.js';
import { countLost, judge } from './hardbyte/judge.js';
import type { Verdict } from './hardbyte/judge.js';
import { Replicas } from './hardbyte/replicas.js';
import type { Bench, BenchOptions } from './harness/bench.js';
import { printSettings, printTable, progress, shown } from './harness/report.js';
import { connect } from './harness/server.js';

/** Those of the harness; everything else has its default there too. */
const settings = {
  max_connections: '400',
  shared_buffers: '256MB',
  work_mem: '8MB',
  maintenance_work_mem: '128MB',
};
/** Enough to see that the bench works. */
const tinyCells = ['postgres_restart', 'repeated_kills', 'active_readers'];
const graceMs = 10_000;
const payloadBytes = 256;
const workMs = 1;

export const hardbyte: Bench = async (_server, options) => {
  const chosen = cells.filter(({ name }) =>
    options.cell === undefined ? !options.tiny || tinyCells.includes(name) : name === options.cell,
  );
  if (chosen.length === 0)
    throw new Error(`--cell is ${options.cell}: give ${cells.map(({ name }) => name).join(', ')}`);
  const server = await startPostgres({
    settings: options.tiny ? { ...settings, fsync: 'off' } : settings,
  });
  const verdicts: Verdict[] = [];
  try {
    for (const cell of chosen) {
      const verdict = await runCell(server, shortened(cell, options), options);
      progress(
        `${cell.name}: ${verdict.passed ? 'passed' : `FAILED: ${verdict.why.join('; ')}`}, ${shown(verdict.ratio * 100)} %`,
      );
      verdicts.push(verdict);
    }
  } finally {
    await server.remove();
  }
  printSettings('Hardbyte', {
    ...settings,
    payloadBytes,
    workMs,
    seconds: options.seconds ?? 'all',
  });
  printTable(
    ['cell', 'result', 'before/s', 'judged/s', 'ratio', 'p99, ms', '90 % after, s', 'unfinished'],
    verdicts.map((verdict) => [
      `${verdict.suite} ${verdict.cell}`,
      verdict.passed ? 'passed' : 'FAILED',
      verdict.baseline,
      verdict.judged,
      verdict.ratio,
      verdict.p99Ms,
      verdict.recoverySeconds ?? '-',
      verdict.unfinished,
    ]),
  );
  const passed = (suite: Cell['suite']): number =>
    verdicts.filter((verdict) => verdict.suite === suite && verdict.passed).length;
  return {
    waybill: { chaos: passed('chaos'), pressure: passed('pressure') },
    peers: {},
    limit: null,
    ratioToBestPeer: null,
    ratioToLimit: null,
    verdicts,
    aims: (['chaos', 'pressure'] as const)
      .map((suite) => ({ suite, all: chosen.filter((cell) => cell.suite === suite).length }))
      .filter(({ all }) => all > 0)
      .map(({ suite, all }) => ({
        what: `cells of ${suite} passed`,
        atLeast: all,
        actual: passed(suite),
      })),
  };
};

/** No phase longer than --seconds. */
function shortened(cell: Cell, { seconds = Infinity, tiny }: BenchOptions): Cell {
  const most = tiny ? Math.min(seconds, 2) : seconds;
  return {
    ...cell,
    rate: tiny ? 100 : cell.rate,
    phases: cell.phases.map((phase) => ({ ...phase, seconds: Math.min(phase.seconds, most) })),
  };
}

async function runCell(
  server: PostgresServer,
  cell: Cell,
  options: BenchOptions,
): Promise<Verdict> {
  const shortest = Math.min(...cell.phases.map(({ seconds }) => seconds));
  const sampleSeconds = Math.min(5, shortest / 5);
  const name = `hardbyte_${cell.name}`;
  const admin = await connect(server.url);
  await admin.query(`CREATE DATABASE ${name}`);
  await admin.end();
  const url = server.url.replace(/\/postgres$/, `/${name}`);
  const directory = mkdtempSync(path.join(os.tmpdir(), 'waybill-hardbyte-'));
  const rateFile = path.join(directory, 'rate');
  writeFileSync(rateFile, String(cell.rate));
  const replicas = new Replicas({
    DATABASE_URL: url,
    PRODUCER_RATE: String(cell.rate),
    PRODUCER_RATE_CONTROL_FILE: rateFile,
    WORKER_COUNT: String(cell.concurrency),
    SAMPLE_EVERY_S: String(sampleSeconds),
    JOB_PAYLOAD_BYTES: String(payloadBytes),
    JOB_WORK_MS: String(workMs),
  });
  try {
    replicas.phase = 'start';
    for (let instance = 0; instance < cell.replicas; instance += 1) await replicas.start(instance);
    for (const phase of cell.phases) {
      if (replicas.failures.length > 0) break;
      progress(`${cell.name}: ${phase.label} (${phase.kind}, ${phase.seconds} s)`);
      await runPhase({ server, url, cell, replicas, rateFile }, phase);
    }
  } finally {
    await replicas.stopAll(options.tiny ? 60_000 : graceMs);
    rmSync(directory, { recursive: true, force: true });
  }
  await checkNothingLost(server, url, name);
  return judge(cell, replicas.samples, replicas.failures, sampleSeconds * 1000);
}

async function checkNothingLost(server: PostgresServer, url: string, name: string): Promise<void> {
  const client = await connect(url);
  const lost = await countLost(client);
  await client.end();
  if (lost > 0) throw new Error(`${name}: ${lost} committed messages were lost`);
  const admin = await connect(server.url);
  await admin.query(`DROP DATABASE ${name} WITH (FORCE)`);
  await admin.end();
}
