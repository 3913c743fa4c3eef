import { cookies } from 'next/headers';

const tenants = new Map([
  ['ada', 'acme'],
  ['bob', 'globex'],
]);

/** Stands for your own login: the tenant of the user who is logged in, or null. */
export async function currentTenant() {
  const user = (await cookies()).get('user')?.value;
  return tenants.get(user) ?? null;
}
