// The upper limit of a drain: reads the log through a cursor, in order, with every column that a delivery needs, and
// does nothing with it. No reader of messages in PostgreSQL can be faster.

import pg from 'pg';

import { nowMs } from './clock.mjs';

const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
await client.query(`BEGIN; DECLARE log NO SCROLL CURSOR FOR
  SELECT id, created_at, sequence, namespace, topic, tenant_id, key, dedupe_key, aggregate_type,
         aggregate_id, headers::text, payload::text
    FROM outbox.messages ORDER BY id`);
const types = { getTypeParser: () => (value) => value };
let count = 0;
const startedMs = nowMs();
for (;;) {
  const { rows } = await client.query({ text: 'FETCH 1000 FROM log', rowMode: 'array', types });
  if (rows.length === 0) break;
  count += rows.length;
}
process.send({ type: 'done', count, ms: nowMs() - startedMs });
await client.end();
process.disconnect();
