// An application that lets a customer add a webhook endpoint, in the application's own transaction, and makes a tenant
// token for the customer's page.

import { createEndpoints, createTenantTokens } from 'waybill';
import pg from 'pg';

const endpoints = createEndpoints();
const tokens = createTenantTokens();
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

// for the page of the user who is logged in, whose tenant is acme
const { token, expiresAt } = await tokens.add(client, { tenantId: 'acme', lifetimeMs: 900_000 });
console.log(`the token ${token.slice(0, 4)}… ends at ${expiresAt.toISOString()}`);

await endpoints.remove(client, { tenantId: 'acme', name });
await client.end();
