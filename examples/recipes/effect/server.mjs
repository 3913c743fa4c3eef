// Registers users over HTTP with Effect. The user and the message are written in one transaction.

import { SqlClient } from '@effect/sql';
import { PgClient } from '@effect/sql-pg';
import { serve } from '@hono/node-server';
import { Effect, ManagedRuntime, Redacted } from 'effect';
import { Hono } from 'hono';

import { enqueue } from './enqueue.mjs';

const register = (email) =>
  Effect.gen(function* () {
    const sql = yield* SqlClient.SqlClient;
    const inTransaction = Effect.gen(function* () {
      const [user] = yield* sql`INSERT INTO users (email) VALUES (${email}) RETURNING id`;
      const payload = { userId: user.id, email };
      return yield* enqueue({ topic: 'user.registered', payload });
    });
    return yield* sql.withTransaction(inTransaction);
  });

const url = Redacted.make(process.env.DATABASE_URL);
const runtime = ManagedRuntime.make(PgClient.layer({ url }));
const app = new Hono();

app.post('/users', async (context) => {
  const { email } = await context.req.json();
  const { id } = await runtime.runPromise(register(email));
  return context.json({ id }, 201);
});

const port = Number(process.env.PORT ?? 3000);
serve({ fetch: app.fetch, hostname: '127.0.0.1', port });
