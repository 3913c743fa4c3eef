// The logins of the tests. The roles are installed in the template, so relays, servers and applications have no more
// rights in tests than in production. A test's own queries run as the superuser.

import pg from 'pg';

import type { TestDatabase } from './postgres.js';

export const rolePrefix = 'waybill_';

/** Each login with its roles. */
export const logins = {
  test_producer: ['producer'],
  test_consumer: ['consumer'],
  test_relay: ['relay'],
  test_maintenance: ['maintenance'],
  test_operator: ['operator'],
  test_control: ['control'],
  test_auditor: ['auditor'],
  test_tenant_reader: ['tenant_reader'],
  test_server: ['control', 'operator'],
} as const;

export type Login = keyof typeof logins;

/** The logins that the payments example creates itself. */
export type PaymentsLogin = `symphony_${string}`;

/** The logins that the chat platform's example creates itself. */
export type ChatLogin = `chat_${string}`;

/** Logins belong to the server, which two projects may share. */
export async function makeLogins(client: pg.Client): Promise<void> {
  for (const [login, roles] of Object.entries(logins)) {
    const { rows } = await client.query('SELECT FROM pg_roles WHERE rolname = $1', [login]);
    if (rows.length === 0)
      await client.query(
        `create role ${login} login in role ${roles.map((role) => rolePrefix + role).join(', ')}`,
      );
  }
}

/** The address of the same database with another login. */
export function urlAs(url: string, login: Login | PaymentsLogin | ChatLogin): string {
  const other = new URL(url);
  other.username = login;
  other.password = '';
  return other.href;
}

/** Runs the work with this login, over a separate connection. */
export async function as<T>(
  db: Pick<TestDatabase, 'url'>,
  login: Login | PaymentsLogin | ChatLogin,
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
