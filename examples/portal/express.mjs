// Makes a token for the customer who is logged in, with Express.

import express from 'express';
import { createTenantTokens } from 'waybill';
import pg from 'pg';

import { tenantOf } from './session.mjs';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 5 });
const tokens = createTenantTokens();

export const app = express();
// oxlint-disable-next-line oxc/no-async-endpoint-handlers -- Express 5 handles rejected promises
app.post('/webhook-token', async (request, response) => {
  const tenantId = tenantOf(request.headers.cookie);
  if (tenantId === null) return response.sendStatus(401);
  const { token } = await tokens.add(pool, { tenantId, lifetimeMs: 900_000 });
  return response.json({ token });
});

export async function close() {
  await pool.end();
}
