// The application under test: registers users, and says so in the same transaction.

import { createOutbox } from 'waybill/producer';

const outbox = createOutbox();
const dayMs = 86_400_000;

/** The client is in a transaction. */
export async function register(client, email) {
  const { rows } = await client.query('INSERT INTO users (email) VALUES ($1) RETURNING id', [
    email,
  ]);
  const userId = rows[0].id;
  await outbox.enqueueMany(client, [
    { topic: 'user.registered', key: `user-${userId}`, payload: { userId, email } },
    { topic: 'user.reminded', payload: { userId, email }, delayMs: dayMs },
  ]);
  return userId;
}
