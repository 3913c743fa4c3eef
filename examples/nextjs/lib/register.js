import { createOutbox } from 'waybill/producer';

import { pool } from './database.js';

const outbox = createOutbox();

export async function register(email) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const insert = 'INSERT INTO users (email) VALUES ($1) RETURNING id';
    const { rows } = await client.query(insert, [email]);
    const payload = { userId: rows[0].id, email };
    const { id } = await outbox.enqueue(client, { topic: 'user.registered', payload });
    await client.query('COMMIT');
    return { userId: rows[0].id, messageId: id };
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}
