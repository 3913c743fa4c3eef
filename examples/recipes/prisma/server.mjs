// Registers users over HTTP with Prisma. The user and the message are written in one transaction.

import { serve } from '@hono/node-server';
import { PrismaPg } from '@prisma/adapter-pg';
import { Hono } from 'hono';
import { createOutbox } from 'waybill/producer';

import { PrismaClient } from './generated/client.ts';

const adapter = new PrismaPg({ connectionString: process.env.DATABASE_URL });
const prisma = new PrismaClient({ adapter });
const outbox = createOutbox();
const app = new Hono();

app.post('/users', async (context) => {
  const { email } = await context.req.json();
  const { id } = await prisma.$transaction(async (tx) => {
    const user = await tx.users.create({ data: { email } });
    const payload = { userId: user.id, email };
    return outbox.enqueue(tx, { topic: 'user.registered', payload });
  });
  return context.json({ id }, 201);
});

const port = Number(process.env.PORT ?? 3000);
serve({ fetch: app.fetch, hostname: '127.0.0.1', port });
