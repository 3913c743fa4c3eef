import { cookies } from 'next/headers';

import { createOrder } from '../lib/orders.js';
import { currentTenant } from '../lib/session.js';

async function logIn() {
  'use server';
  (await cookies()).set('user', 'ada', { httpOnly: true, sameSite: 'lax' });
}

async function order(form) {
  'use server';
  const tenantId = await currentTenant();
  if (tenantId === null) throw new Error('log in first');
  await createOrder(tenantId, form.get('item'));
}

export default async function Page() {
  if ((await currentTenant()) === null)
    return (
      <form action={logIn}>
        <button>Log in as Ada of acme</button>
      </form>
    );
  return (
    <form action={order}>
      <input name="item" aria-label="Item" defaultValue="Tea" />
      <button>Order</button> <a href="/webhooks">Webhooks</a>
    </form>
  );
}
