// An application that lets a customer add a webhook endpoint, in the application's own transaction.

import { createEndpoints } from 'waybill';
import pg from 'pg';

const endpoints = createEndpoints();
const client = new pg.Client({ connectionString: process.env.DATABASE_URL });
await client.connect();

async function addHook(tenantId, url) {
  await client.query('BEGIN');
  try {
    const { name, secret } = await endpoints.add(client, {
      url,
      topics: ['user.*', 'order.paid'],
      tenantId,
    });
    await client.query('COMMIT');
    // shown to the customer once
    return { name, secret };
  } catch (error) {
    await client.query('ROLLBACK');
    throw error;
  }
}

const { name, secret } = await addHook('acme', 'https://example.com/hooks');
console.log(`added ${name}, whose secret begins with ${secret.slice(0, 6)}`);
const [hook] = await endpoints.list(client, { tenantId: 'acme', name });
console.log(`enabled: ${hook.enabled}, signs with ${hook.fingerprints.length} secret`);
await endpoints.remove(client, { tenantId: 'acme', name });
await client.end();
