// Logins of `waybill dev`: on its own PostgreSQL, the relay, the page and the application each log in with only the
// role that they need, as in production. A database given by the user is left unchanged.

import pg from 'pg';

import { installRoles } from '../database/roles.js';

export type Logins = { relay: string; page: string; application: string };

const prefix = 'waybill_';
const roles: Record<keyof Logins, string[]> = {
  relay: ['relay', 'maintenance'],
  page: ['control', 'operator'],
  application: ['producer'],
};

/** Installs the roles and creates missing logins; returns their addresses. */
export async function makeLogins(url: string, schema: string): Promise<Logins> {
  await installRoles({ url, schema }, prefix);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    for (const [who, names] of Object.entries(roles)) {
      const { rows } = await client.query('SELECT FROM pg_roles WHERE rolname = $1', [
        `dev_${who}`,
      ]);
      if (rows.length > 0) continue;
      const memberships = names.map((name) => prefix + name).join(', ');
      await client.query(`CREATE ROLE dev_${who} LOGIN IN ROLE ${memberships}`);
    }
    await client.query('GRANT CREATE ON SCHEMA public TO dev_application');
  } finally {
    await client.end();
  }
  const as = (who: keyof Logins): string =>
    Object.assign(new URL(url), { username: `dev_${who}`, password: '' }).href;
  return { relay: as('relay'), page: as('page'), application: as('application') };
}
