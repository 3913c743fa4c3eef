// Adapter for the harness hardbyte/postgresql-job-queue-benchmarking: producer and relay of one replica in one process,
// with settings from the environment. Prints a descriptor, then samples, as lines of JSON; ends on SIGTERM within 5
// seconds. Uses only the public interface of the package.

import { readFileSync } from 'node:fs';

import pg from 'pg';

import { createOutbox, createRelay, handler, migrateUp } from '../../dist/index.js';
import { openLatencies } from './latencies.mjs';

const url = process.env.DATABASE_URL;
const number = (name, otherwise) => Number(process.env[name] ?? otherwise);
const settings = {
  instance: number('BENCH_INSTANCE_ID', 0),
  rate: number('PRODUCER_RATE', 800),
  targetDepth: process.env.PRODUCER_MODE === 'depth-target' ? number('TARGET_DEPTH', 1000) : null,
  batchMax: number('PRODUCER_BATCH_MAX', 128),
  batchMs: number('PRODUCER_BATCH_MS', 25),
  concurrency: number('WORKER_COUNT', 32),
  payloadBytes: number('JOB_PAYLOAD_BYTES', 256),
  workMs: number('JOB_WORK_MS', 1),
  sampleMs: number('SAMPLE_EVERY_S', 5) * 1000,
};
const windowMs = 30_000;
const retryMs = 200;
const topic = 'bench.job';
const manifest = JSON.parse(readFileSync(new URL('adapter.json', import.meta.url), 'utf8'));
const { version } = JSON.parse(
  readFileSync(new URL('../../package.json', import.meta.url), 'utf8'),
);

const counts = { enqueued: 0, completed: 0 };
const latencies = { claim: openLatencies(windowMs), endToEnd: openLatencies(windowMs) };
const state = { depth: 0, stopping: false };

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const print = (record) =>
  process.stdout.write(`${JSON.stringify({ ...record, instance_id: settings.instance })}\n`);

async function work({ payload }) {
  latencies.claim.add(Date.now() - payload.enqueuedAt);
  await pause(settings.workMs);
  latencies.endToEnd.add(Date.now() - payload.enqueuedAt);
  counts.completed += 1;
}

/** The harness changes the rate during a run by writing it into a file. */
function offeredRate() {
  const file = process.env.PRODUCER_RATE_CONTROL_FILE;
  if (!file) return settings.rate;
  try {
    return Number(readFileSync(file, 'utf8')) || settings.rate;
  } catch {
    return settings.rate;
  }
}

/** Offers the load by elapsed time. What could not be offered while the database was away is left out after a second. */
async function produce(pool) {
  const outbox = createOutbox();
  const padding = 'x'.repeat(Math.max(settings.payloadBytes - 40, 0));
  let credit = 0;
  let creditedMs = performance.now();
  while (!state.stopping) {
    const nowMs = performance.now();
    const rate = offeredRate();
    credit = Math.min(credit + (rate * (nowMs - creditedMs)) / 1000, rate);
    creditedMs = nowMs;
    const wanted = settings.targetDepth === null ? credit : settings.targetDepth - state.depth;
    const size = Math.min(Math.floor(wanted), settings.batchMax);
    if (size < 1) {
      await pause(settings.batchMs);
      continue;
    }
    const messages = Array.from({ length: size }, () => ({
      topic,
      payload: { enqueuedAt: Date.now(), padding },
    }));
    const done = await onConnection(pool, (client) =>
      outbox.enqueueMany(client, messages, { autonomous: true }),
    );
    if (!done) continue;
    counts.enqueued += size;
    state.depth += settings.targetDepth === null ? 0 : size;
    credit -= size;
  }
}

/** False, after a pause, when the database is away or has closed the connection. */
async function onConnection(pool, act) {
  let client;
  try {
    client = await pool.connect();
    await act(client);
    client.release();
    return true;
  } catch (error) {
    console.error(`${error.code ?? ''} ${error.message}`);
    client?.release(error);
    await pause(retryMs);
    return false;
  }
}

async function watchDepth(pool) {
  while (!state.stopping) {
    await onConnection(pool, async (client) => {
      const { rows } = await client.query(
        "SELECT pending::float8 FROM outbox.destination_load WHERE name = 'sink'",
      );
      state.depth = rows[0]?.pending ?? 0;
    });
    await pause(settings.targetDepth === null ? 1000 : settings.batchMs);
  }
}

async function sample() {
  let before = { ...counts };
  await pause(settings.sampleMs - (Date.now() % settings.sampleMs));
  let beforeMs = performance.now();
  for (;;) {
    await pause(settings.sampleMs - (Date.now() % settings.sampleMs));
    const nowMs = performance.now();
    const seconds = (nowMs - beforeMs) / 1000;
    const t = new Date().toISOString();
    const metric = (name, value, windowSeconds) =>
      print({
        t,
        system: manifest.system,
        kind: 'adapter',
        subject_kind: 'adapter',
        subject: '',
        metric: name,
        value,
        window_s: windowSeconds,
      });
    for (const percent of [50, 95, 99]) {
      metric(`claim_p${percent}_ms`, latencies.claim.percentile(percent), windowMs / 1000);
      metric(`end_to_end_p${percent}_ms`, latencies.endToEnd.percentile(percent), windowMs / 1000);
    }
    metric('enqueue_rate', (counts.enqueued - before.enqueued) / seconds, seconds);
    metric('completion_rate', (counts.completed - before.completed) / seconds, seconds);
    // the depth is that of the whole system, so one replica reports it
    if (settings.instance === 0) metric('queue_depth', state.depth, 0);
    before = { ...counts };
    beforeMs = nowMs;
  }
}

await migrateUp({ url });
const relay = createRelay({
  database: { url },
  destinations: { sink: handler(work, { concurrency: settings.concurrency }) },
  routes: [{ topic: '*', to: 'sink' }],
  relay: { stopDeadlineMs: 4000 },
});
await relay.start();
const pool = new pg.Pool({ connectionString: url, max: 3 });
pool.on('error', (error) => console.error(error.message));
// the pool takes its own listener off a client that it lends, and without one an error ends the process
pool.on('connect', (client) => client.on('error', (error) => console.error(error.message)));

// nothing is left running when the harness is gone
process.stdout.on('error', () => process.exit(1));
process.once('SIGTERM', () => {
  state.stopping = true;
  void relay.stop().finally(() => process.exit(0));
});
print({
  kind: 'descriptor',
  system: manifest.system,
  event_tables: manifest.event_tables,
  extensions: manifest.extensions,
  version,
  schema_version: version,
  db_name: new URL(url).pathname.slice(1),
  started_at: new Date().toISOString(),
});
void sample();
void produce(pool);
if (settings.instance === 0 || settings.targetDepth !== null) void watchDepth(pool);
