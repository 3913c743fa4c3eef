// A producer: writes messages in transactions, some of which it rolls back, and keeps a log of each message
// with the outcome of its commit: ok, aborted, or unknown when the connection was lost in COMMIT.
//
// Log, tab-separated: outcome, transaction, message id, topic, hash of the body.

import { createHash } from 'node:crypto';
import { openSync, writeSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

import pg from 'pg';

import { createOutbox } from '../../../dist/index.js';

/** @type {{ name: string, databaseUrl: string, logFile: string, seed: number, topics: string[] }} */
const options = JSON.parse(process.argv[2] ?? '{}');
const log = openSync(options.logFile, 'a');
const outbox = createOutbox();
const mostMessages = 120;
const rollbackShare = 0.05;

// mulberry32, as in random.ts: this process cannot import TypeScript
let state = options.seed >>> 0;
function chance() {
  state = (state + 0x6d2b79f5) >>> 0;
  let mixed = Math.imul(state ^ (state >>> 15), state | 1);
  mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}

let transaction = 0;
let written = 0;
const told = { allowed: false, finish: false };

function makeMessages() {
  const count = 1 + Math.floor(chance() * mostMessages);
  return Array.from({ length: count }, () => {
    written += 1;
    const topic = options.topics[Math.floor(chance() * options.topics.length)] ?? '';
    return {
      topic,
      payload: { n: written, by: options.name, text: 'x'.repeat(Math.floor(chance() * 200)) },
    };
  });
}

/** jsonb sorts keys by length, then by letters: n, by, text. @param {{ payload: unknown }} message */
function hashOf({ payload }) {
  return createHash('sha1').update(JSON.stringify(payload)).digest('hex');
}

/** Returns how many messages were certainly committed. @param {pg.Client} client */
async function produce(client) {
  const messages = makeMessages();
  transaction += 1;
  /** @type {{ id: string }[]} */
  let ids = [];
  /** @param {'ok' | 'aborted' | 'unknown'} outcome */
  const record = (outcome) => {
    const lines = ids.map(({ id }, index) => {
      const message = messages[index] ?? { topic: '', payload: null };
      return [outcome, `${options.name}-${transaction}`, id, message.topic, hashOf(message)].join(
        '\t',
      );
    });
    if (lines.length > 0) writeSync(log, `${lines.join('\n')}\n`);
  };
  try {
    await client.query('BEGIN');
    ids = await outbox.enqueueMany(client, messages);
    if (chance() < rollbackShare) {
      await client.query('ROLLBACK');
      record('aborted');
      return 0;
    }
  } catch (error) {
    // COMMIT was never sent
    record('aborted');
    throw error;
  }
  try {
    await client.query('COMMIT');
  } catch (error) {
    record('unknown');
    throw error;
  }
  record('ok');
  return ids.length;
}

async function connect() {
  const client = new pg.Client({
    connectionString: options.databaseUrl,
    application_name: 'producer',
    connectionTimeoutMillis: 5000,
    query_timeout: 20_000,
  });
  client.on('error', () => {});
  await client.connect();
  return client;
}

async function run() {
  /** @type {pg.Client | undefined} */
  let client;
  let unreported = 0;
  while (!told.finish) {
    if (!told.allowed || unreported > 300) {
      if (unreported > 0) process.send?.({ committed: unreported });
      unreported = 0;
      if (!told.allowed) await delay(10);
      continue;
    }
    try {
      client ??= await connect();
      unreported += await produce(client);
    } catch {
      await client?.end().catch(() => {});
      client = undefined;
      await delay(50);
    }
  }
  process.send?.({ committed: unreported });
  await client?.end().catch(() => {});
  process.disconnect();
}

process.on('message', (said) => Object.assign(told, said));
process.on('disconnect', () => (told.finish ? undefined : process.exit(1)));
await run();
