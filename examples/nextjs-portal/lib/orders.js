import { createOutbox } from 'waybill/producer';

import { pool } from './database.js';
import { events } from './events.js';

const outbox = createOutbox({ events });

/** Writes the order and its event in one transaction. */
export async function createOrder(tenantId, item) {
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    const insert = 'INSERT INTO orders (tenant_id, item) VALUES ($1, $2) RETURNING id';
    const { rows } = await client.query(insert, [tenantId, item]);
    const payload = { orderId: rows[0].id, item };
    await outbox.enqueue(client, { topic: 'order.created', tenantId, payload });
    await client.query('COMMIT');
    return payload;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}
