// Makes a token for the customer who is logged in: in Next.js, app/webhook-token/route.js.

import { createTenantTokens } from 'waybill';
import pg from 'pg';

import { tenantOf } from './session.mjs';

const pool = new pg.Pool({ connectionString: process.env.DATABASE_URL, max: 5 });
const tokens = createTenantTokens();

export async function POST(request) {
  const tenantId = tenantOf(request.headers.get('cookie'));
  if (tenantId === null) return new Response(null, { status: 401 });
  const { token } = await tokens.add(pool, { tenantId, lifetimeMs: 900_000 });
  return Response.json({ token });
}

export async function close() {
  await pool.end();
}
