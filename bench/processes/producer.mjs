// Producers at a steady rate, in their own process: producer.mjs MODULE. Each transaction enqueues a number of
// messages and commits; every n-th is held open for a while first. The time of a message is taken right after its
// COMMIT has returned; a contender that can only commit by itself has no transaction to hold. `start` begins, `collect` returns the commits so far, `stop` ends.

import pg from 'pg';

import { nowMs } from './clock.mjs';
import './parent.mjs';
import { payloadOf } from './payload.mjs';

const [module] = process.argv.slice(2);
const contender = await import(`../${module}`);
const url = process.env.DATABASE_URL;
const connections = 32;
const payloadBytes = 500;
const pool = new pg.Pool({
  connectionString: contender.producerUrl?.(url) ?? url,
  max: connections,
});
const producer = await contender.openProducer(url);

let commits = [];
let nextNumber = 0;
let running = null;

async function transact({ perTransaction, heldMs, warmUp }, held) {
  const numbers = Array.from({ length: perTransaction }, () => (warmUp ? -1 : nextNumber++));
  const payloads = numbers.map((n) => payloadOf(n, payloadBytes));
  if (producer.ownTransaction) await producer.enqueue(null, payloads);
  else await enqueueAndCommit(payloads, held ? heldMs : 0);
  const committedMs = nowMs();
  if (!warmUp) for (const n of numbers) commits.push([n, committedMs]);
}

async function enqueueAndCommit(payloads, heldMs) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await producer.enqueue(client, payloads);
    if (heldMs > 0) await new Promise((resolve) => setTimeout(resolve, heldMs));
    await client.query('COMMIT');
  } finally {
    client.release();
  }
}

function produce(task) {
  const transactionsPerMs = task.rate / task.perTransaction / 1000;
  const startedMs = nowMs();
  let begun = 0;
  const state = { stopped: false };
  const underWay = new Set();
  const loop = (async () => {
    while (!state.stopped) {
      const due = Math.floor((nowMs() - startedMs) * transactionsPerMs);
      for (; begun < due; begun += 1) {
        const one = transact(task, begun % task.heldEvery === task.heldEvery - 1);
        underWay.add(one);
        one.then(
          () => underWay.delete(one),
          (error) => {
            console.error(error);
            process.exit(1);
          },
        );
      }
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    await Promise.all(underWay);
  })();
  return async () => {
    state.stopped = true;
    await loop;
  };
}

async function obey(message) {
  if (message.type === 'start') {
    running = produce(message);
  } else if (message.type === 'collect') {
    process.send({ type: 'committed', commits });
    commits = [];
  } else if (message.type === 'stop') {
    await running?.();
    process.send({ type: 'stopped' });
  }
}

process.on('message', (message) => void obey(message));
process.once('SIGTERM', () => process.exit(0));
process.send({ type: 'ready' });
