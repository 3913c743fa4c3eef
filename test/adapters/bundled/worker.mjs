// A Cloudflare Worker that enqueues with postgres.js, as examples/recipes/cloudflare-worker does with node-postgres.

import postgres from 'postgres';
import { createOutbox } from 'waybill/producer';

const outbox = createOutbox();

export default {
  async fetch(request, env) {
    const { email } = await request.json();
    const sql = postgres(env.DATABASE_URL, { max: 1 });
    try {
      const message = await sql.begin(async (tx) => {
        const [user] = await tx`INSERT INTO users (email) VALUES (${email}) RETURNING id`;
        const payload = { userId: user.id, email };
        return outbox.enqueue(tx, { topic: 'user.registered', payload });
      });
      return Response.json({ id: message.id }, { status: 201 });
    } finally {
      await sql.end();
    }
  },
};
