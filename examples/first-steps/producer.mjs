// An application that registers a user. The row and the message are written in one transaction: both exist
// after the commit, or neither does. Usage: DATABASE_URL=… node producer.mjs

import pg from 'pg';
import { createOutbox } from 'waybill/producer';

const outbox = createOutbox();
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();
await client.query('CREATE TABLE IF NOT EXISTS users (id serial PRIMARY KEY, email text NOT NULL)');

async function register(email) {
  await client.query('BEGIN');
  try {
    const { rows } = await client.query('INSERT INTO users (email) VALUES ($1) RETURNING id', [
      email,
    ]);
    const message = await outbox.enqueue(client, {
      topic: 'user.registered',
      payload: { userId: rows[0].id, email },
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
