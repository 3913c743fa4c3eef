// A producer with the PostgreSQL client of Bun itself: registers a user and enqueues a message in one transaction.

import { SQL } from 'bun';
import { createOutbox } from 'waybill/producer';

const sql = new SQL(process.env.DATABASE_URL);
const outbox = createOutbox();

export function register(email) {
  return sql.begin(async (tx) => {
    const [user] = await tx`INSERT INTO users (email) VALUES (${email}) RETURNING id`;
    const payload = { userId: user.id, email };
    return outbox.enqueue(tx, { topic: 'user.registered', payload });
  });
}

export const close = () => sql.end();
