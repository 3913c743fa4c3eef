// Registers users over HTTP with Drizzle. The user and the message are written in one transaction.

import { serve } from '@hono/node-server';
import { Hono } from 'hono';
import { createOutbox } from 'waybill/producer';

import { db, users } from './database.mjs';

const outbox = createOutbox();
const app = new Hono();

app.post('/users', async (context) => {
  const { email } = await context.req.json();
  const { id } = await db.transaction(async (tx) => {
    const [user] = await tx.insert(users).values({ email }).returning();
    const payload = { userId: user.id, email };
    return outbox.enqueue(tx, { topic: 'user.registered', payload });
  });
  return context.json({ id }, 201);
});

const port = Number(process.env.PORT ?? 3000);
serve({ fetch: app.fetch, hostname: '127.0.0.1', port });
