// Webhook endpoints API: lets applications manage their customers' endpoints, which are stored in the database. Each
// method is one statement on the given client: inside a transaction it is part of it, and relays see it after the
// commit. `add` and `rotate` return a secret once; the database keeps only its sealed form.

import { quoteIdentifier } from '../../core/identifier.js';
import { ConfigurationError, shown } from '../../core/errors.js';
import {
  checkEndpointChanges,
  checkNewEndpoint,
  endpointSecret,
  newSecret,
} from './description.js';
import type { EndpointChanges, NewEndpoint } from './description.js';
import type { RateLimit } from '../../core/destination-limits.js';
import type { PayloadFilter } from './filter.js';
import type { BodyShape } from '../../destinations/webhook/body.js';
import { allowedNetworks as networks } from '../../destinations/webhook/targets.js';
import { sealAuth, sealHeaders, sealQuery, sealSecret } from './secrets.js';
import { anything, checkOptions, optional, schemaName, text } from '../../core/options.js';
import { parseSecretKeys } from '../../core/sealed-secret.js';
import type { SecretKey } from '../../core/sealed-secret.js';
import { secretKeys } from '../../core/secret-keys.js';
import { adapt } from '../../producer/adapters/adapt.js';
import type { TransactionHandle } from '../../producer/adapters/adapt.js';

export type EndpointsOptions = {
  /** Default: outbox. */
  schema?: string;
  /**
   * The key that seals secrets: 32 bytes in base64, or several keys separated by commas. Default: WAYBILL_SECRET_KEY.
   */
  secretKey?: string;
  /** Networks that addresses may be in although they are not public, as in the relay's settings. Default: none. */
  allowedNetworks?: readonly string[];
  /** The actor in the record of operators' actions. Default: the user of the database. */
  actor?: string;
};

/** Names an endpoint. With `tenantId`, it must belong to that tenant. */
export type EndpointReference = { name: string; tenantId?: string };

export type EndpointStatus = {
  name: string;
  url: string;
  topics: string[];
  tenantId: string | null;
  namespace: string | null;
  description: string | null;
  /** null: as the relay's settings say. */
  body: BodyShape | null;
  /** How requests are authenticated, without secrets. */
  auth: { type: 'basic' | 'oauth2' } | null;
  /** null: it wants all payloads. */
  filter: PayloadFilter | null;
  /** null: messages are sent however old they are. */
  expireAfterMs: number | null;
  /** null, here and below: as the relay's settings say. */
  rate: RateLimit | null;
  concurrency: number | null;
  timeoutMs: number | null;
  labels: Record<string, string>;
  enabled: boolean;
  /** Why it is disabled: an operator's reason, that the receiver answered 410, or that it has only failed. */
  disabledBecause: string | null;
  /** Its first failure since its last success; null: there was none. */
  failingSince: string | null;
  /** Fingerprints of the secrets that sign, newest first. */
  fingerprints: string[];
  /** Messages that wait for the endpoint; counting stops at 100,000. */
  waiting: number;
  dead: number;
  createdAt: string;
  changedAt: string;
};

export type Recovery = {
  /** The first failure, or the given time. */
  since: string;
  /** How many deliveries are sent again. */
  resent: number;
  /** Some may be left: call it again with the same `since`. */
  more: boolean;
};

export type ShownSecret = { name: string; secret: string; fingerprint: string };

export type Endpoints = {
  /** Returns the secret, which is never shown again. */
  add(tx: TransactionHandle, endpoint: NewEndpoint): Promise<ShownSecret>;
  list(
    tx: TransactionHandle,
    filter?: { tenantId?: string; name?: string; labels?: Record<string, string> },
  ): Promise<EndpointStatus[]>;
  change(tx: TransactionHandle, which: EndpointReference, changes: EndpointChanges): Promise<void>;
  /** Adds a secret, which signs beside the old ones until they are retired. */
  rotate(
    tx: TransactionHandle,
    which: EndpointReference,
    given?: { secret?: string },
  ): Promise<ShownSecret>;
  /** Retires all but the newest secret. Returns how many were retired. */
  retireOldSecrets(tx: TransactionHandle, which: EndpointReference): Promise<number>;
  /** Messages for the endpoint wait until it is enabled again. */
  disable(
    tx: TransactionHandle,
    which: EndpointReference,
    why?: { reason?: string },
  ): Promise<void>;
  enable(tx: TransactionHandle, which: EndpointReference): Promise<void>;
  /** Enables the endpoint, and sends again what has failed since its first failure, or since a time: at most 100,000. */
  recover(
    tx: TransactionHandle,
    which: EndpointReference,
    from?: { since?: Date | string },
  ): Promise<Recovery>;
  /** Removes the endpoint; true if messages still wait for it, which stay as pending deliveries. */
  remove(tx: TransactionHandle, which: EndpointReference): Promise<boolean>;
};

const demand = { because: 'endpoints are kept in the database' };

export function createEndpoints(options: EndpointsOptions = {}): Endpoints {
  const { schema, secretKey, allowedNetworks, actor } = checkOptions('endpoints', options, {
    schema: schemaName,
    secretKey: optional(keysOf),
    allowedNetworks: networks,
    actor: optional(text({ meaning: 'a name' })),
  });
  const quoted = quoteIdentifier(schema);
  // read only when a secret is sealed: listing and disabling need no key
  const keys = () => secretKey ?? secretKeys();

  async function call(tx: TransactionHandle, sql: string, values: readonly unknown[]) {
    return adapt(tx, demand).query(sql, values);
  }

  async function act(
    tx: TransactionHandle,
    name: string,
    which: EndpointReference,
    moreArguments = '',
    values: readonly unknown[] = [],
  ): Promise<string> {
    const [row] = await call(
      tx,
      // as text: some functions return void, which not every driver can read
      `SELECT ${quoted}.${name}(name => $1, tenant_id => $2, actor => $3${moreArguments})::text AS answer`,
      [...reference(which), actor ?? null, ...values],
    );
    return String(row?.['answer']);
  }

  return {
    async add(tx, endpoint) {
      const { name, secret, headers, query, auth, ...fields } = checkNewEndpoint(
        endpoint,
        allowedNetworks,
      );
      const sealed = {
        ...sealSecret(keys(), name, secret),
        ...(headers && { sealedHeaders: sealHeaders(keys(), name, headers) }),
        ...(query && { sealedQuery: sealQuery(keys(), name, query) }),
        ...(auth && { auth: sealAuth(keys(), name, auth) }),
      };
      await call(tx, `SELECT ${quoted}.add_endpoint($1, $2::text::jsonb, $3)`, [
        name,
        JSON.stringify({ ...fields, ...sealed }),
        actor ?? null,
      ]);
      return { name, secret, fingerprint: sealed.fingerprint };
    },

    async list(tx, filter = {}) {
      refuseMissingTenant(filter);
      const { tenantId = null, name = null, labels } = filter;
      const rows = await call(
        tx,
        `SELECT name, url, topics, tenant_id AS "tenantId", namespace, description, body, auth, filter,
                expire_after_ms::float8 AS "expireAfterMs", rate, concurrency, timeout_ms AS "timeoutMs", labels, enabled,
                coalesce(paused_reason, paused_code) AS "disabledBecause", to_json(failing_since) #>> '{}' AS "failingSince",
                fingerprints, waiting::int, dead::int,
                to_json(created_at) #>> '{}' AS "createdAt", to_json(changed_at) #>> '{}' AS "changedAt"
           FROM ${quoted}.endpoint_status
          WHERE removed_at IS NULL AND ($1::text IS NULL OR tenant_id = $1) AND ($2::text IS NULL OR name = $2)
            AND ($3::text IS NULL OR labels @> $3::text::jsonb)
          ORDER BY created_at, name`,
        [tenantId, name, labels ? JSON.stringify(labels) : null],
      );
      return rows as EndpointStatus[];
    },

    async change(tx, which, changes) {
      const { headers, query, auth, ...fields } = checkEndpointChanges(changes, allowedNetworks);
      const sealed = {
        ...(headers !== undefined && {
          sealedHeaders: headers && sealHeaders(keys(), which.name, headers),
        }),
        ...(query !== undefined && { sealedQuery: query && sealQuery(keys(), which.name, query) }),
        ...(auth !== undefined && { auth: auth && sealAuth(keys(), which.name, auth) }),
      };
      await act(tx, 'change_endpoint', which, ', changes => $4::text::jsonb', [
        JSON.stringify({ ...fields, ...sealed }),
      ]);
    },

    async rotate(tx, which, { secret = newSecret() } = {}) {
      endpointSecret('secret', secret);
      const sealed = sealSecret(keys(), which.name, secret);
      await act(tx, 'rotate_endpoint', which, ', sealed_secret => $4, fingerprint => $5', [
        sealed.sealedSecret,
        sealed.fingerprint,
      ]);
      return { name: which.name, secret, fingerprint: sealed.fingerprint };
    },

    async retireOldSecrets(tx, which) {
      return Number(await act(tx, 'retire_endpoint_secrets', which));
    },
    async disable(tx, which, { reason } = {}) {
      await act(tx, 'set_endpoint_enabled', which, ', enabled => false, reason => $4', [
        reason ?? null,
      ]);
    },
    async enable(tx, which) {
      await act(tx, 'set_endpoint_enabled', which, ', enabled => true');
    },
    async recover(tx, which, { since } = {}) {
      const [row] = await call(
        tx,
        `SELECT to_json(first_failure) #>> '{}' AS since, resent, more
           FROM ${quoted}.recover_endpoint(name => $1, tenant_id => $2, actor => $3, since => $4)`,
        [...reference(which), actor ?? null, since instanceof Date ? since.toISOString() : since],
      );
      return row as Recovery;
    },
    async remove(tx, which) {
      return (await act(tx, 'remove_endpoint', which)) === 'true';
    },
  };
}

function reference(which: EndpointReference): [string, string | null] {
  const { name, tenantId } = checkOptions('endpoint', which, {
    name: text({ meaning: "the endpoint's name" }),
    tenantId: anything<string | undefined>(),
  });
  refuseMissingTenant(which);
  return [name, tenantId ?? null];
}

/** A tenant id that is missing by mistake must not give access to the endpoints of all tenants. */
function refuseMissingTenant(given: object): void {
  if (!('tenantId' in given) || (typeof given.tenantId === 'string' && given.tenantId !== ''))
    return;
  throw new ConfigurationError(
    `tenantId is ${shown(given.tenantId)}: give a tenant id, or leave it out for the endpoints of all tenants`,
  );
}

function keysOf(name: string, value: unknown): readonly SecretKey[] {
  const keys = typeof value === 'string' ? parseSecretKeys(value) : null;
  if (keys === null)
    throw new ConfigurationError(
      `${name} is not a key: give 32 bytes in base64, or several of them separated by commas; make one with: openssl rand -base64 32`,
    );
  return keys;
}
