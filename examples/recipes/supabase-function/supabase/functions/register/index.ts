// An edge function that registers users with postgres.js. The user and the message are written in one transaction.

import postgres from 'postgres';
import { createOutbox } from 'waybill/producer';

// Supabase sets the address; its pooler in transaction mode does not allow prepared statements
const sql = postgres(Deno.env.get('SUPABASE_DB_URL') ?? '', { prepare: false });
const outbox = createOutbox();

Deno.serve(async (request) => {
  const { email } = await request.json();
  const { id } = await sql.begin(async (tx) => {
    const [user] = await tx`INSERT INTO users (email) VALUES (${email}) RETURNING id`;
    const payload = { userId: user?.['id'], email };
    return outbox.enqueue(tx, { topic: 'user.registered', payload });
  });
  return Response.json({ id }, { status: 201 });
});
