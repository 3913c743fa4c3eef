// An application that registers a user with typed events. It enqueues both versions while consumers of the first one
// exist. Usage: DATABASE_URL=… npx jiti events-producer.ts

import pg from 'pg';
import { createOutbox, MessageRefusedError } from 'waybill/producer';

import { events } from './events.js';

const outbox = createOutbox({ events });
const client = new pg.Client({ connectionString: process.env['DATABASE_URL'] });
await client.connect();

async function register(userId: number, email: string): Promise<void> {
  await client.query('BEGIN');
  try {
    await outbox.enqueueMany(client, [
      {
        topic: 'user.registered',
        payload: { userId, email },
      },
      {
        topic: 'user.registered.v2',
        payload: { userId, contact: { email }, registeredAt: new Date() },
      },
    ]);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

await register(42, 'ada@example.com');
console.log('registered ada@example.com');

try {
  await register(43, 'ada at example.com');
} catch (error) {
  if (error instanceof MessageRefusedError) console.log(error.message);
}
await client.end();
