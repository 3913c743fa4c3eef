// A consumer that books each payment once, however often it is delivered. Its accounts may be in another database than
// the outbox, if the schema exists there too.

import pg from 'pg';
import { batchHandler, createInbox, defineConfig, handler } from 'waybill';

const inbox = createInbox();
const pool = new pg.Pool({
  connectionString: process.env.BANK_DATABASE_URL ?? process.env.DATABASE_URL,
  allowExitOnIdle: true,
});

export async function book(message) {
  const { accountId, amount } = message.payload;
  await inTransaction(async (client) => {
    const { processed } = await inbox.process(client, { consumer: 'bank', message }, () =>
      client.query('UPDATE accounts SET balance = balance + $2 WHERE id = $1', [accountId, amount]),
    );
    if (!processed) console.log(`${message.id} was booked before`);
  });
}

export async function report(messages) {
  await inTransaction((client) =>
    inbox.processMany(client, { consumer: 'reports' }, messages, (fresh) =>
      client.query('UPDATE reports SET payments = payments + $1', [fresh.length]),
    ),
  );
}

async function inTransaction(work) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    await work(client);
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

export default defineConfig({
  destinations: { bank: handler(book), reports: batchHandler(report) },
  routes: [
    { topic: 'payment.received', to: 'bank' },
    { topic: 'payment.received', to: 'reports' },
  ],
});
