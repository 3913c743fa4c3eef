// What a message adds to a transaction: own-row.mjs MODULE TRANSACTIONS. Each transaction writes one row of the
// application's own. It also does nothing more, or inserts into a plain outbox table, or enqueues: in turns, on one
// connection, so a noisy moment affects all of them. Reports the milliseconds of every transaction from BEGIN to
// COMMIT.

import pg from 'pg';

import { nowMs } from './clock.mjs';
import './parent.mjs';
import { payloadOf } from './payload.mjs';

const [module, transactions] = process.argv.slice(2);
const contender = await import(`../${module}`);
const url = process.env.DATABASE_URL;
const warmUp = 20;

await contender.install(url);
const owner = new pg.Client({ connectionString: url });
await owner.connect();
await owner.query(`
  CREATE TABLE orders (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, title text NOT NULL);
  CREATE TABLE plain_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, topic text NOT NULL, payload jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(), processed_at timestamptz);
  CREATE INDEX plain_outbox_waiting ON plain_outbox (created_at, id) WHERE processed_at IS NULL;
  GRANT INSERT ON orders, plain_outbox TO PUBLIC`);
await owner.end();

const client = new pg.Client({ connectionString: contender.producerUrl?.(url) ?? url });
await client.connect();
const producer = await contender.openProducer(url);
const payload = payloadOf(1, 500);
const kinds = {
  alone: async () => {},
  plain: () =>
    client.query('INSERT INTO plain_outbox (topic, payload) VALUES ($1, $2::text::jsonb)', [
      'bench.message',
      JSON.stringify(payload),
    ]),
  enqueue: () => producer.enqueue(client, [payload]),
};
const times = { alone: [], plain: [], enqueue: [] };
for (let n = -warmUp; n < Number(transactions); n += 1) {
  for (const [kind, write] of Object.entries(kinds)) {
    const startedMs = nowMs();
    await client.query('BEGIN');
    await client.query('INSERT INTO orders (title) VALUES ($1)', ['a title']);
    await write();
    await client.query('COMMIT');
    if (n >= 0) times[kind].push(nowMs() - startedMs);
  }
}
await client.end();
await producer.close();
process.send({ type: 'done', times });
