// The HTTP server on a test's database, as `waybill start` runs it, and clients with their own tokens.

import { randomUUID } from 'node:crypto';

import { onTestFinished } from 'vitest';

import { addToken } from '../../src/features/tokens/database.js';
import type { Scope } from '../../src/features/tokens/database.js';
import { resolveServerOptions } from '../../src/server/options.js';
import type { ServerOptions } from '../../src/server/options.js';
import { startServer } from '../../src/server/server.js';
import type { ServerParts } from '../../src/server/server.js';
import type { TestDatabase } from './postgres.js';
import { openDatabase } from './relay.js';

export type Answer = { status: number; body: Record<string, unknown>; headers: Headers };
export type Ask = (method: string, path: string, body?: unknown) => Promise<Answer>;

export type TestServer = {
  readonly url: string;
  close(): Promise<void>;
  /** A new token. */
  token(scope: Scope, tenantId?: string): Promise<string>;
  /** Sends a request with its own token. */
  as(scope: Scope, tenantId?: string): Promise<Ask>;
  /** Sends a request with these headers. */
  with(headers: Record<string, string>): Ask;
};

export async function serveDatabase(
  db: TestDatabase,
  {
    authentication = 'tokens',
    embeddedBy,
    basePath,
    singleSignOn,
    portal,
    ...parts
  }: Omit<ServerOptions, 'port' | 'host' | 'databaseUrl'> & Partial<ServerParts> = {},
): Promise<TestServer> {
  const administrator = openDatabase(db);
  const options = {
    port: 0,
    authentication,
    ...(embeddedBy && { embeddedBy }),
    ...(basePath && { basePath }),
    ...(singleSignOn && { singleSignOn }),
    ...(portal && { portal }),
  };
  const server = await startServer(resolveServerOptions(options), {
    database: openDatabase(db, 'test_server'),
    isReady: () => true,
    // a test must see what it changed in the database without the server
    sharedForMs: 0,
    ...parts,
  });
  let closed: Promise<void> | undefined;
  const close = (): Promise<void> => (closed ??= server.close());
  onTestFinished(close);
  const { url } = server;
  const asking =
    (headers: Record<string, string>): Ask =>
    async (method, path, body) => {
      const response = await fetch(url + path, {
        method,
        headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
        ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
        redirect: 'manual',
      });
      const text = await response.text();
      const json = /json/.test(response.headers.get('content-type') ?? '');
      return {
        status: response.status,
        body: (json ? JSON.parse(text) : { text }) as Record<string, unknown>,
        headers: response.headers,
      };
    };
  const token: TestServer['token'] = (scope, tenantId) =>
    addToken(
      administrator,
      { name: `${scope}-${randomUUID()}`, scope, ...(tenantId !== undefined && { tenantId }) },
      'test',
    );
  return {
    url,
    close,
    with: asking,
    token,
    async as(scope, tenantId) {
      return asking({ authorization: `Bearer ${await token(scope, tenantId)}` });
    },
  };
}
