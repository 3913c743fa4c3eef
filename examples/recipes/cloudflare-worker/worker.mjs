// A producer as a Cloudflare Worker, with the flag nodejs_compat: each request registers a user and enqueues a message
// in one transaction. The address of the database is a binding.

import pg from 'pg';
import { createOutbox } from 'waybill/producer';

const outbox = createOutbox();

export default {
  async fetch(request, env) {
    const { email } = await request.json();
    const client = new pg.Client({ connectionString: env.DATABASE_URL });
    await client.connect();
    try {
      await client.query('BEGIN');
      const insert = 'INSERT INTO users (email) VALUES ($1) RETURNING id';
      const { rows } = await client.query(insert, [email]);
      const payload = { userId: rows[0].id, email };
      const { id } = await outbox.enqueue(client, { topic: 'user.registered', payload });
      await client.query('COMMIT');
      return Response.json({ id }, { status: 201 });
    } finally {
      // also rolls back what was not committed
      await client.end();
    }
  },
};
