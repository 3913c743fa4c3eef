// Stands for the login of your application: who sent this cookie, and to which tenant do they belong?

const tenants = new Map([
  ['session=ada', 'acme'],
  ['session=bob', 'globex'],
]);

/** Null without a login. */
export function tenantOf(cookie) {
  return tenants.get(cookie ?? '') ?? null;
}
