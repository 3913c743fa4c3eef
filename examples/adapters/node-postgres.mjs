import pg from 'pg';
import { createOutbox } from 'waybill/producer';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const outbox = createOutbox();

export async function register(email) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const insert = 'INSERT INTO users (email) VALUES ($1) RETURNING id';
    const { rows } = await client.query(insert, [email]);
    const payload = { userId: rows[0].id, email };
    const message = await outbox.enqueue(client, { topic: 'user.registered', payload });
    await client.query('COMMIT');
    return message;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

export const close = () => pool.end();
