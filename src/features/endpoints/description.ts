// Description of a webhook endpoint, as an application gives it. It is checked before the database is called, so an
// error leaves the caller's transaction usable. No endpoint is stored that a relay could not serve.

import { randomBytes } from 'node:crypto';

import { ConfigurationError } from '../../core/errors.js';
import { checkOptions, list, nullable, optional, refuse, text } from '../../core/options.js';
import { topicKind } from '../../core/route.js';
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
};

const named = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/;
const topics = list(topicKind, { min: 1, max: 100 });
const namespace = text({
  pattern: /^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$/,
  meaning: 'words of letters, digits, _ and -, joined by . : or /',
});
const description = text({ pattern: /^[^]{1,250}$/, meaning: 'a text of 1 to 250 characters' });

export function checkNewEndpoint(endpoint: NewEndpoint, allowed: Networks) {
  const checked = checkOptions('endpoint', endpoint, {
    url: urlIn(allowed),
    topics,
    tenantId: tenant,
    name: optional(text({ pattern: named, meaning: 'letters, digits, _ - and ., at most 63' })),
    namespace: optional(namespace),
    description: optional(description),
    body: optional(webhookKinds.body),
    headers: optional(webhookHeaders),
    secret: optional(endpointSecret),
  });
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
    headers: optional(nullable(webhookHeaders)),
  });
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

function tenant(name: string, value: unknown): string | null {
  if (value === null) return null;
  const bytes = typeof value === 'string' ? Buffer.byteLength(value) : 0;
  // a tenant id that was left out by mistake would send every tenant's messages to one customer
  if (bytes < 1 || bytes > 255)
    refuse(name, value, 'give a tenant id of 1 to 255 bytes, or null for the messages of all');
  return value as string;
}
