import { createOrder } from '../../../lib/orders.js';
import { currentTenant } from '../../../lib/session.js';

export async function POST(request) {
  const tenantId = await currentTenant();
  if (tenantId === null) return new Response(null, { status: 401 });
  const { item } = await request.json();
  return Response.json(await createOrder(tenantId, item), { status: 201 });
}
