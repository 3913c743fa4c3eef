// The benches start and end: a few of them in every test run, all of them with `npm run test:full`. With numbers this
// small nothing is measured; the test proves that the figures in docs/internals/benchmarks.md can be reproduced. The
// peers run where they are installed. The first bench starts its own PostgreSQL, as for a measurement; the others share
// one, two at a time.

import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';

import pg from 'pg';
import { beforeAll, expect, inject, test } from 'vitest';

import { kafkaUnavailable } from '../support/kafka-broker.js';

const benches = [
  'drain',
  'keyed',
  'fairness',
  'isolation',
  'tenants',
  'endpoints',
  'stream',
  'webhook',
  'kafka',
  'enqueue',
  'latency',
  'xmin',
  'growth',
  'soak',
  'watch',
  'changes',
  'relays',
  'page',
  'seal',
  'storage',
  'held',
  'hardbyte',
];

/** Handlers, the log, webhooks and watched tables, with and without producers: what most other benches also use. */
const inEveryRun = ['drain', 'stream', 'webhook', 'changes'];

type Result = { bench: string; peers: Record<string, unknown>; peersLeftOut: string | null };
type Run = { code: number | null; stdout: string; stderr: string };

async function runBench(
  parameters: string[],
  environment: Record<string, string> = {},
): Promise<Run> {
  const child = spawn(
    process.execPath,
    ['node_modules/jiti/lib/jiti-cli.mjs', 'bench/run.ts', ...parameters],
    { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...environment } },
  );
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString('utf8')));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString('utf8')));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', resolve);
  });
  return { code, stdout, stderr };
}

const sizes = {
  bytesPerMessage: expect.any(Number) as number,
  gigabytesAfterAYear: expect.any(Number) as number,
  hoursInAGigabyte: expect.any(Number) as number,
};

async function runTiny(name: string): Promise<Result> {
  const lent =
    name === benches[0]
      ? {}
      : {
          BENCH_TINY_SERVER: inject('serverUrl'),
          BENCH_TINY_TEMPLATE: inject('templateDatabase'),
        };
  const { code, stdout, stderr } = await runBench([name, '--tiny', '--json'], lent);
  expect(code, stderr).toBe(0);
  const result = JSON.parse(stdout.trimEnd().split('\n').at(-1) ?? '') as Result;
  expect(result.bench).toBe(name);
  expect(stderr.includes('The peers are left out:')).toBe(result.peersLeftOut !== null);
  return result;
}

beforeAll(async () => {
  expect(existsSync('dist/cli/main.js'), 'the relay is built: npm run build').toBe(true);
  // each bench creates them if they are missing; two at the same time would collide
  const client = new pg.Client({ connectionString: inject('serverUrl') });
  await client.connect();
  await client.query('CREATE ROLE bench_producer LOGIN IN ROLE waybill_producer');
  await client.query('CREATE ROLE bench_relay LOGIN IN ROLE waybill_relay');
  await client.end();
});

const kafkaLeftOut = kafkaUnavailable();
if (kafkaLeftOut !== null && process.env['CI']) throw new Error(kafkaLeftOut);
const chosen = inject('isFull') ? benches : inEveryRun;

test.concurrent.each(chosen.filter((name) => name !== 'kafka' || kafkaLeftOut === null))(
  'N15 the bench %s starts and ends with one JSON object',
  async (name) => {
    const result = await runTiny(name);
    for (const key of ['waybill', 'limit', 'ratioToBestPeer', 'ratioToLimit', 'aims', 'machine'])
      expect(result).toHaveProperty(key);
    // for a thousand changes a minute: how soon they arrived, how many, and the storage for a year
    expect(result).toMatchObject(name === 'changes' ? { deliveredShare: 1, size: sizes } : {});
    expect(result.peersLeftOut === null || Object.keys(result.peers).length === 0).toBe(true);
  },
  300_000,
);

test('an unknown bench is refused with the list of known ones', async () => {
  const { code, stderr } = await runBench(['nonsense']);
  expect(code).toBe(2);
  for (const name of benches) expect(stderr).toContain(name);
});
