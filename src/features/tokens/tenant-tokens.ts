// Tenant tokens: short-lived tokens of the HTTP API for one tenant, for pages on which customers manage their own
// endpoints. A tenant token opens /api/endpoints for that tenant and nothing else. It is returned once; the database
// keeps only its hash.

import { hashOf, newSecret } from './database.js';
import { quoteIdentifier } from '../../core/identifier.js';
import {
  checkOptions,
  choice,
  integer,
  optional,
  refuse,
  schemaName,
  text,
} from '../../core/options.js';
import { adapt } from '../../producer/adapters/adapt.js';
import type { TransactionHandle } from '../../producer/adapters/adapt.js';

export type TenantTokensOptions = {
  /** Default: outbox. */
  schema?: string;
  /** The actor in the record of operators' actions. Default: the user of the database. */
  actor?: string;
};

export type NewTenantToken = {
  tenantId: string;
  /** `operate` may add and change endpoints, `read` may only look. Default `operate`. */
  scope?: 'operate' | 'read';
  /** How long the token is valid, from a minute to a day. Default 3,600,000. */
  lifetimeMs?: number;
};

export type TenantToken = {
  token: string;
  /** What the token does is recorded as done by `api:` and this name. */
  name: string;
  expiresAt: Date;
};

export type TenantTokens = {
  /** Returns the token, which is never shown again. */
  add(tx: TransactionHandle, token: NewTenantToken): Promise<TenantToken>;
};

export const tenantTokenKinds = {
  tenantId: tenant,
  scope: choice('operate', 'read'),
  lifetimeMs: integer({ min: 60_000, max: 86_400_000, default: 3_600_000 }),
};

function tenant(name: string, value: unknown): string {
  // without NUL and halves of surrogate pairs, which PostgreSQL cannot store
  const isText = typeof value === 'string' && value.isWellFormed() && !value.includes('\0');
  const bytes = isText ? Buffer.byteLength(value) : 0;
  if (!isText || bytes < 1 || bytes > 255)
    return refuse(name, value, 'give a tenant id of 1 to 255 bytes');
  return value;
}

export function createTenantTokens(options: TenantTokensOptions = {}): TenantTokens {
  const { schema, actor } = checkOptions('tenantTokens', options, {
    schema: schemaName,
    actor: optional(text({ meaning: 'a name' })),
  });
  return {
    async add(tx, given) {
      const { tenantId, scope, lifetimeMs } = checkOptions('token', given, tenantTokenKinds);
      const token = newSecret('wbe');
      const [row] = await adapt(tx, { because: 'tokens are kept in the database' }).query(
        // as text: drivers read times differently, and some pass bytes as text only
        `SELECT name, to_json(expires_at) #>> '{}' AS "expiresAt"
           FROM ${quoteIdentifier(schema)}.add_tenant_token($1, decode($2, 'hex'), $3, $4::int * interval '1 ms', $5)`,
        [tenantId, hashOf(token).toString('hex'), scope, lifetimeMs, actor ?? null],
      );
      return {
        token,
        name: String(row?.['name']),
        expiresAt: new Date(String(row?.['expiresAt'])),
      };
    },
  };
}
