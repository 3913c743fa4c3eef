// Tokens of the HTTP API. A secret is generated here and shown once; the database gets only its hash.

import { createHash, randomBytes } from 'node:crypto';

import { AccessLookup } from './access-lookup.js';
import type { Database } from '../../database/connection.js';

export const scopes = ['read', 'operate', 'admin'] as const;
export type Scope = (typeof scopes)[number];

/** The client that a secret identifies, and its rights. */
export type Access = {
  readonly name: string;
  readonly scope: Scope;
  /** The client sees only this tenant; null: all tenants. */
  readonly tenantId: string | null;
  /** A tenant token: it opens the endpoints of its tenant and nothing else. */
  readonly forEndpoints: boolean;
  /** A proxy has authenticated the user; there is no token. */
  readonly signedOn?: true;
};

/** Access, and for how many milliseconds it is valid; null: without an end. */
export type Found = { readonly access: Access; readonly validMs: number | null };

export type NewToken = { name: string; scope: Scope; tenantId?: string; expiresAt?: Date };

export type Token = Access & {
  createdAt: Date;
  expiresAt: Date | null;
  lastUsedAt: Date | null;
};

/** Returns the secret, which cannot be read again later. */
export async function addToken(
  database: Database,
  { name, scope, tenantId, expiresAt }: NewToken,
  actor: string,
): Promise<string> {
  const secret = newSecret('wbt');
  await database.query('add token', `SELECT ${database.schema}.add_token($1, $2, $3, $4, $5, $6)`, [
    name,
    hashOf(secret),
    scope,
    tenantId ?? null,
    expiresAt ?? null,
    actor,
  ]);
  return secret;
}

export async function removeToken(
  database: Database,
  name: string,
  actor: string,
): Promise<boolean> {
  const [row] = await database.query<{ removed: boolean }>(
    'remove token',
    `SELECT ${database.schema}.remove_token($1, $2) AS removed`,
    [name, actor],
  );
  return row?.removed ?? false;
}

export async function listTokens(database: Database): Promise<Token[]> {
  return database.query<Token>(
    'list tokens',
    `SELECT name, scope, tenant_id AS "tenantId", for_endpoints AS "forEndpoints", created_at AS "createdAt",
            nullif(expires_at, 'infinity') AS "expiresAt", last_used_at AS "lastUsedAt"
       FROM ${database.schema}.tokens ORDER BY name`,
  );
}

const lookups = new WeakMap<object, AccessLookup>();

/** Finds access by the secret of a token or a login; null if it is not valid. Concurrent calls share queries. */
export async function findAccess(
  database: Pick<Database, 'query' | 'schema'>,
  secret: string,
): Promise<Access | null> {
  return (await findSecret(database, secret))?.access ?? null;
}

/** Finds access, and for how long it is valid. */
export async function findSecret(
  database: Pick<Database, 'query' | 'schema'>,
  secret: string,
): Promise<Found | null> {
  const lookup = lookups.get(database) ?? new AccessLookup(database);
  lookups.set(database, lookup);
  return lookup.find(hashOf(secret));
}

/** Returns the secret of the login, or null if the token is not valid. */
export async function beginSession(
  database: Database,
  token: string,
  lifetimeMs: number,
): Promise<string | null> {
  const secret = newSecret('wbs');
  const [row] = await database.query<{ begun: boolean }>(
    'begin session',
    `SELECT ${database.schema}.begin_session($1, $2, $3 * interval '1 ms') AS begun`,
    [hashOf(token), hashOf(secret), lifetimeMs],
  );
  return row?.begun ? secret : null;
}

export async function endSession(database: Database, secret: string): Promise<void> {
  await database.query('end session', `SELECT ${database.schema}.end_session($1)`, [
    hashOf(secret),
  ]);
}

export function newSecret(prefix: string): string {
  return `${prefix}_${randomBytes(32).toString('base64url')}`;
}

export function hashOf(secret: string): Buffer {
  return createHash('sha256').update(secret).digest();
}
