// Who the tests connect as. The roles are installed in the template, so that relays, servers and applications have no
// more rights in the tests than they need anywhere else; a test's own questions are asked by the superuser.

import pg from 'pg';

import type { TestDatabase } from './postgres.js';

export const rolePrefix = 'waybill_';

/** Each login with its roles. */
export const logins = {
  test_producer: ['producer'],
  test_consumer: ['consumer'],
  test_relay: ['relay'],
  test_operator: ['operator'],
  test_control: ['control'],
  test_auditor: ['auditor'],
  test_tenant_reader: ['tenant_reader'],
  test_server: ['control', 'operator'],
} as const;

export type Login = keyof typeof logins;

/** Those that the payments example makes for itself. */
export type PaymentsLogin = `symphony_${string}`;

/** They belong to the server, which two projects may share. */
export async function makeLogins(client: pg.Client): Promise<void> {
  for (const [login, roles] of Object.entries(logins)) {
    const { rows } = await client.query('SELECT FROM pg_roles WHERE rolname = $1', [login]);
    if (rows.length === 0)
      await client.query(
        `create role ${login} login in role ${roles.map((role) => rolePrefix + role).join(', ')}`,
      );
  }
}

/** The same database as somebody else. */
export function urlAs(url: string, login: Login | PaymentsLogin): string {
  const other = new URL(url);
  other.username = login;
  other.password = '';
  return other.href;
}

/** Works as somebody, over a connection of their own. */
export async function as<T>(
  db: Pick<TestDatabase, 'url'>,
  login: Login | PaymentsLogin,
  work: (client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({ connectionString: urlAs(db.url, login) });
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}
