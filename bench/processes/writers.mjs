// Writers at full speed, each on its own connection, in one process: writers.mjs MODULE. A task is { writers,
// perTransaction, seconds, mode }; the answer has the number of committed transactions and the time. Each writer
// writes once before the measurement, because the first call on a connection makes its plans.

import pg from 'pg';

import { nowMs } from './clock.mjs';
import './parent.mjs';
import { payloadOf } from './payload.mjs';

const [module] = process.argv.slice(2);
const contender = await import(`../${module}`);
const url = process.env.DATABASE_URL;
const payloadBytes = 500;

async function write({ writers, perTransaction, seconds, mode }) {
  const producer = await contender.openProducer(url, mode);
  const clients = await Promise.all(
    Array.from({ length: writers }, async () => {
      const client = new pg.Client({ connectionString: contender.producerUrl?.(url) ?? url });
      await client.connect();
      await producer.prepare?.(client);
      return client;
    }),
  );
  const payloads = Array.from({ length: perTransaction }, (_, n) => payloadOf(n, payloadBytes));
  for (const client of clients) await transact(client, producer, payloads.slice(0, 1));
  const startedMs = nowMs();
  const endMs = startedMs + seconds * 1000;
  let transactions = 0;
  await Promise.all(
    clients.map(async (client) => {
      while (nowMs() < endMs) {
        await transact(client, producer, payloads);
        transactions += 1;
      }
    }),
  );
  const ms = nowMs() - startedMs;
  await Promise.all(clients.map((client) => client.end()));
  await producer.close();
  return { type: 'written', transactions, ms };
}

async function transact(client, producer, payloads) {
  await client.query('BEGIN');
  await producer.enqueue(client, payloads);
  await client.query('COMMIT');
}

process.on('message', (task) => void write(task).then((answer) => process.send(answer)));
process.once('SIGTERM', () => process.exit(0));
await contender.install(url);
process.send({ type: 'ready' });
