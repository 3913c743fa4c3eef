// Registers users over HTTP with Hono and node-postgres. The user and the message are written in one transaction.

import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import pg from 'pg';
import { createOutbox } from 'waybill/producer';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL });
const outbox = createOutbox();
const app = new Hono();

app.post('/users', async (context) => {
  const { email } = await context.req.json();
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const insert = 'INSERT INTO users (email) VALUES ($1) RETURNING id';
    const { rows } = await client.query(insert, [email]);
    const payload = { userId: rows[0].id, email };
    const { id } = await outbox.enqueue(client, { topic: 'user.registered', payload });
    await client.query('COMMIT');
    return context.json({ id }, 201);
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
});

const port = Number(process.env.PORT ?? 3000);
serve({ fetch: app.fetch, hostname: '127.0.0.1', port });
