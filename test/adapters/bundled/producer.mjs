// Enqueues one message in a transaction of its own.

import pg from 'pg';
import { createOutbox } from 'waybill/producer';

async function main() {
  const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
  await client.connect();
  await client.query('BEGIN');
  await createOutbox().enqueue(client, { topic: 'bundled.message', payload: { n: 1 } });
  await client.query('COMMIT');
  await client.end();
  console.log('enqueued');
}

void main();
