// Description of a webhook endpoint, as an application gives it. It is checked before the database is called, so an
// error leaves the caller's transaction usable. No endpoint is stored that a relay could not serve.

import { randomBytes } from 'node:crypto';

import { ConfigurationError } from '../../core/errors.js';
import { rateKind } from '../../core/destination-limits.js';
import type { RateLimit } from '../../core/destination-limits.js';
import {
  checkOptions,
  integer,
  list,
  nullable,
  optional,
  refuse,
  text,
} from '../../core/options.js';
import { topicKind } from '../../core/route.js';
import { webhookAuth } from '../../destinations/webhook/auth.js';
import type { WebhookAuth } from '../../destinations/webhook/auth.js';
import { endpointLabels } from './labels.js';
import { queryParameters } from './query.js';
import { payloadFilter } from './filter.js';
import type { PayloadFilter } from './filter.js';
import type { BodyShape } from '../../destinations/webhook/body.js';
import type { Networks } from '../../destinations/webhook/targets.js';
import { webhookHeaders } from '../../destinations/webhook/headers.js';
import { webhookSecrets } from '../../destinations/webhook/signature.js';
import { refuseTarget, webhookUrl } from '../../destinations/webhook/url.js';
import { webhookKinds } from '../../destinations/webhook/options.js';

export type NewEndpoint = {
  url: string;
  /** Exact (`user.registered`), all topics below (`user.*`), or all topics (`*`). */
  topics: readonly string[];
  /** Only messages of this tenant; null means those of all tenants and must be given explicitly. */
  tenantId: string | null;
  /** Stays taken after a removal, until retention deletes the endpoint. Default: generated. */
  name?: string;
  /** Only messages of this namespace. Default: all. */
  namespace?: string;
  description?: string;
  /** Which parts of its message a request carries. Default: as the relay's settings say. */
  body?: BodyShape;
  /** Headers of every request; sealed like the secret. */
  headers?: Record<string, string>;
  /** How requests are authenticated, beside the signature; sealed like the secret. Default: not at all. */
  auth?: WebhookAuth;
  /** Parameters that are added to the address of every request; sealed like the secret. */
  query?: Record<string, string>;
  /** Only messages with such a payload. Default: all. */
  filter?: PayloadFilter;
  /** Messages older than this are not sent; they end as discarded, with the code `expired`. Default: all are sent. */
  expireAfterMs?: number;
  /** The most messages per second, over all relays together. Default: as the relay's settings say. */
  rate?: RateLimit;
  /** Deliveries in flight at once, per relay. Default: as the relay's settings say. */
  concurrency?: number;
  /** A delivery that takes longer is aborted. Default: as the relay's settings say. */
  timeoutMs?: number;
  /** Names and texts by which operators find the endpoint. */
  labels?: Record<string, string>;
  /** A secret that the customer provides: `whsec_…` or `whsk_…`. Default: generated. */
  secret?: string;
};

export type EndpointChanges = {
  url?: string;
  topics?: readonly string[];
  /** null: all namespaces. */
  namespace?: string | null;
  description?: string | null;
  /** null: as the relay's settings say. */
  body?: BodyShape | null;
  /** null: none. */
  headers?: Record<string, string> | null;
  /** null: none. */
  auth?: WebhookAuth | null;
  /** null: none. */
  query?: Record<string, string> | null;
  /** null: all payloads. */
  filter?: PayloadFilter | null;
  /** null: all messages are sent. */
  expireAfterMs?: number | null;
  /** null, here and below: as the relay's settings say. */
  rate?: RateLimit | null;
  concurrency?: number | null;
  timeoutMs?: number | null;
  /** The labels from now on; null: none. */
  labels?: Record<string, string> | null;
};

const named = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/;
const topics = list(topicKind, { min: 1, max: 100 });
const namespace = text({
  pattern: /^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$/,
  meaning: 'words of letters, digits, _ and -, joined by . : or /',
});
const description = text({ pattern: /^[^]{1,250}$/, meaning: 'a text of 1 to 250 characters' });

const yearMs = 31_536_000_000;

/** Kinds of the policies. For some, the database has narrower bounds, which come from the relays' settings. */
const policies = {
  headers: webhookHeaders,
  query: queryParameters,
  filter: payloadFilter,
  expireAfterMs: integer({ min: 1000, max: yearMs }),
  rate: (name: string, value: unknown): RateLimit => {
    rateKind(name, value);
    return value as RateLimit;
  },
  concurrency: integer({ min: 1, max: 1000 }),
  timeoutMs: integer({ min: 1000, max: 3_600_000 }),
  labels: endpointLabels,
};

export function checkNewEndpoint(endpoint: NewEndpoint, allowed: Networks) {
  const checked = checkOptions('endpoint', endpoint, {
    url: urlIn(allowed),
    topics,
    tenantId: tenant,
    name: optional(text({ pattern: named, meaning: 'letters, digits, _ - and ., at most 63' })),
    namespace: optional(namespace),
    description: optional(description),
    body: optional(webhookKinds.body),
    headers: optional(policies.headers),
    query: optional(policies.query),
    auth: optional(authIn(allowed)),
    filter: optional(policies.filter),
    expireAfterMs: optional(policies.expireAfterMs),
    rate: optional(policies.rate),
    concurrency: optional(policies.concurrency),
    timeoutMs: optional(policies.timeoutMs),
    labels: optional(policies.labels),
    secret: optional(endpointSecret),
  });
  refuseTwoLogins(checked);
  return {
    ...checked,
    name: checked.name ?? `ep_${randomBytes(12).toString('hex')}`,
    secret: checked.secret ?? newSecret(),
  };
}

export function checkEndpointChanges(changes: EndpointChanges, allowed: Networks) {
  const checked = checkOptions('endpoint', changes, {
    url: optional(urlIn(allowed)),
    topics: optional(topics),
    namespace: optional(nullable(namespace)),
    description: optional(nullable(description)),
    body: optional(nullable(webhookKinds.body)),
    headers: optional(nullable(policies.headers)),
    query: optional(nullable(policies.query)),
    auth: optional(nullable(authIn(allowed))),
    filter: optional(nullable(policies.filter)),
    expireAfterMs: optional(nullable(policies.expireAfterMs)),
    rate: optional(nullable(policies.rate)),
    concurrency: optional(nullable(policies.concurrency)),
    timeoutMs: optional(nullable(policies.timeoutMs)),
    labels: optional(nullable(policies.labels)),
  });
  refuseTwoLogins(checked);
  const given = Object.entries(checked).filter(([, value]) => value !== undefined);
  if (given.length === 0)
    throw new ConfigurationError(
      `nothing to change: give ${Object.keys(checked).join(', ')}, or some of them`,
    );
  return Object.fromEntries(given) as typeof checked;
}

/** 32 random bytes in the form of the Standard Webhooks specification. */
export function newSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

export function endpointSecret(name: string, value: unknown): string {
  // exactly one secret is required; a webhook would also accept none or several
  webhookSecrets(name, typeof value === 'string' ? value : '');
  return value as string;
}

function urlIn(allowed: Networks) {
  return (name: string, value: unknown): string => {
    const url = webhookUrl(name, value);
    refuseTarget(url, allowed, name);
    return url.href;
  };
}

/** Returns the login as it was given, to be sealed. */
function authIn(allowed: Networks) {
  return (name: string, value: unknown): WebhookAuth => {
    const checked = webhookAuth(name, value);
    if (checked?.type === 'oauth2') refuseTarget(checked.tokenUrl, allowed, `${name}.tokenUrl`);
    return value as WebhookAuth;
  };
}

/** Refuses `auth` beside a header Authorization. If they are given in two calls, `auth` wins. */
function refuseTwoLogins({
  headers,
  auth,
}: {
  headers: object | null | undefined;
  auth: object | null | undefined;
}): void {
  const header = Object.keys(headers ?? {}).find((each) => each.toLowerCase() === 'authorization');
  if (auth && header !== undefined)
    refuse(`endpoint.headers.${header}`, '…', 'leave it out: auth sets this header');
}

function tenant(name: string, value: unknown): string | null {
  if (value === null) return null;
  const bytes = typeof value === 'string' ? Buffer.byteLength(value) : 0;
  // a tenant id that was left out by mistake would send every tenant's messages to one customer
  if (bytes < 1 || bytes > 255)
    refuse(name, value, 'give a tenant id of 1 to 255 bytes, or null for the messages of all');
  return value as string;
}
