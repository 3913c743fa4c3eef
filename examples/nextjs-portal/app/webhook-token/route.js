import { createTenantTokens } from 'waybill';

import { pool } from '../../lib/database.js';
import { currentTenant } from '../../lib/session.js';

const tokens = createTenantTokens();

export async function POST() {
  const tenantId = await currentTenant();
  if (tenantId === null) return new Response(null, { status: 401 });
  const { token } = await tokens.add(pool, { tenantId, lifetimeMs: 900_000 });
  return Response.json({ token });
}
