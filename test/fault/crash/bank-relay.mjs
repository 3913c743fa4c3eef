// A relay in its own process whose handler is the consumer: it books each amount in the bank's own database, in one
// transaction with the inbox, or without it. Every committed arrival is counted there too, including duplicates. After
// a number of bookings it stops to deliver and answer until it is killed, so each kill falls between a commit and its
// settle.

import pg from 'pg';

import { createInbox, createRelay, handler } from '../../../dist/index.js';

/** @typedef {import('../../../dist/index.js').ClaimedMessage} ClaimedMessage */

/** @type {{ shopUrl: string, bankUrl: string, withInbox: boolean, hangAfter: number | null, relay: object }} */
const options = JSON.parse(process.argv[2] ?? '{}');
const pool = new pg.Pool({ connectionString: options.bankUrl, max: 5 });
const inbox = createInbox();
let booked = 0;

/** @param {ClaimedMessage} message */
async function book(message) {
  const { amount } = /** @type {{ amount: number }} */ (message.payload);
  const client = await pool.connect();
  const add = () => client.query('UPDATE accounts SET balance = balance + $1', [amount]);
  try {
    await client.query('BEGIN');
    await client.query('INSERT INTO arrivals VALUES ($1, $2)', [message.id, amount]);
    if (options.withInbox) await inbox.process(client, { consumer: 'bank', message }, add);
    else await add();
    await client.query('COMMIT');
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
  booked += 1;
  if (options.hangAfter === null || booked < options.hangAfter) return;
  process.send?.({ hanging: booked });
  await new Promise(() => {});
}

const relay = createRelay({
  database: { url: options.shopUrl },
  destinations: { bank: handler(book, { concurrency: 5, retry: { baseMs: 10, maxMs: 100 } }) },
  routes: [{ topic: 'payment.received', to: 'bank' }],
  relay: options.relay,
});
process.on('disconnect', () => process.exit(1));

await relay.start();
process.send?.({ started: relay.id });
