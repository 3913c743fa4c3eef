// A receiver that processes each event once, in the transaction of its own work. The database needs the schema of Waybill,
// for the inbox: npx waybill migrate up.

import { Pool } from 'pg';
import type { PoolClient } from 'pg';
import { createReceiver } from 'waybill/receiver';

const pool = new Pool({ connectionString: process.env['DATABASE_URL'] });

async function inTransaction<Value>(work: (client: PoolClient) => Promise<Value>): Promise<Value> {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const value = await work(client);
    await client.query('COMMIT');
    return value;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

const receiver = createReceiver({
  secrets: process.env['WEBHOOK_SECRET'] ?? '',
  inbox: { consumer: 'bank', inTransaction },
});

export const POST = receiver.toFetch(async (event, client) => {
  const { accountId, amount } = event.payload as { accountId: string; amount: number };
  await client.query('UPDATE accounts SET balance = balance + $2 WHERE id = $1', [
    accountId,
    amount,
  ]);
});

export const close = () => pool.end();
