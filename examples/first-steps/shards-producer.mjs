// An application whose tenants live in two databases. Usage: node shards-producer.mjs TENANT

import pg from 'pg';
import { createOutbox } from 'waybill';
import { shards } from './shards.mjs';

const places = new Map(
  shards.names.map((name) => [
    name,
    {
      pool: new pg.Pool({ connectionString: shards.databaseOf(name).url }),
      outbox: createOutbox({ shard: { of: shards, name } }),
    },
  ]),
);

async function placeOrder(tenantId, order) {
  const { pool, outbox } = places.get(shards.shardOf(tenantId));
  const client = await pool.connect();
  try {
    await client.query('BEGIN');
    // your own changes, in the same database
    const { id } = await outbox.enqueue(client, {
      topic: 'order.placed',
      tenantId,
      payload: order,
    });
    await client.query('COMMIT');
    return id;
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  } finally {
    client.release();
  }
}

const tenant = process.argv[2] ?? 'acme';
console.log(`enqueued ${await placeOrder(tenant, { total: 42 })} in ${shards.shardOf(tenant)}`);
for (const { pool } of places.values()) await pool.end();
