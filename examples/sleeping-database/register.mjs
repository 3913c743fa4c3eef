// A producer that wakes the relay after its commit. WAYBILL_WAKE_URL and WAYBILL_WAKE_TOKEN say how to reach it.

import { createOutbox } from 'waybill/producer';

const outbox = createOutbox();

/** @param {import('pg').PoolClient} client @param {string} email */
export async function register(client, email) {
  await client.query('BEGIN');
  try {
    await client.query('INSERT INTO users (email) VALUES ($1)', [email]);
    await outbox.enqueue(client, { topic: 'user.registered', payload: { email } });
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
  // never rejects; on a serverless platform: waitUntil(outbox.nudge())
  void outbox.nudge();
}
