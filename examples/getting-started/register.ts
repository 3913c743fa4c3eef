// The producer of docs/start/getting-started.md, step 5.

import pg from 'pg';
import { createOutbox } from 'waybill/producer';

const outbox = createOutbox();
const client = new pg.Client({ connectionString: process.env['DATABASE_URL'] });
await client.connect();
await client.query('CREATE TABLE IF NOT EXISTS users (id serial PRIMARY KEY, email text NOT NULL)');

async function register(email: string): Promise<string> {
  await client.query('BEGIN');
  try {
    const insert = 'INSERT INTO users (email) VALUES ($1) RETURNING id';
    const { rows } = await client.query<{ id: number }>(insert, [email]);
    const message = await outbox.enqueue(client, {
      topic: 'user.registered',
      payload: { userId: rows[0]?.id, email },
    });
    await client.query('COMMIT');
    return message.id;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

console.log('enqueued', await register('ada@example.com'));
await client.end();
