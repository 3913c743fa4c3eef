// A webhook endpoint as an application describes it. What a webhook would refuse is refused when the endpoint is
// added, before the database is asked: so a refusal leaves the caller's transaction usable, and no endpoint is
// kept that no relay could serve.

import { randomBytes } from 'node:crypto';

import { ConfigurationError } from '../errors.js';
import { checkOptions, list, nullable, optional, refuse, text } from '../model/options.js';
import { topicKind } from '../model/route.js';
import type { BodyShape } from './webhook/body.js';
import type { Networks } from './webhook/targets.js';
import { webhookHeaders } from './webhook/headers.js';
import { webhookSecrets } from './webhook/signature.js';
import { refuseTarget, webhookUrl } from './webhook/url.js';
import { webhookKinds } from './webhook/webhook.js';

export type NewEndpoint = {
  url: string;
  /** Exact (`user.registered`), everything below (`user.*`), or everything (`*`). */
  topics: readonly string[];
  /** Only this tenant's messages; null, and nothing else, means those of all tenants. */
  tenantId: string | null;
  /** Default: made for you. Never used again, also after a removal. */
  name?: string;
  /** Only this namespace. Default: all. */
  namespace?: string;
  description?: string;
  /** What a request carries of its message. Default: as the relay's settings say. */
  body?: BodyShape;
  /** Sent with every request; sealed like the secret. */
  headers?: Record<string, string>;
  /** A secret that the customer brings: `whsec_…` or `whsk_…`. Default: made for you. */
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
const longestUrlBytes = 2048;
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

/** 32 random bytes, in the form of the Standard Webhooks specification. */
export function newSecret(): string {
  return `whsec_${randomBytes(32).toString('base64')}`;
}

export function endpointSecret(name: string, value: unknown): string {
  // one, and it is there: a webhook would take none, or several
  webhookSecrets(name, typeof value === 'string' ? value : '');
  return value as string;
}

function urlIn(allowed: Networks) {
  return (name: string, value: unknown): string => {
    const url = webhookUrl(name, value);
    refuseTarget(url, allowed, name);
    if (Buffer.byteLength(url.href) > longestUrlBytes)
      refuse(name, `${url.origin}/…`, `give an address of at most ${longestUrlBytes} bytes`);
    return url.href;
  };
}

function tenant(name: string, value: unknown): string | null {
  if (value === null) return null;
  const bytes = typeof value === 'string' ? Buffer.byteLength(value) : 0;
  // left out by mistake, it would show every tenant's messages to one
  if (bytes < 1 || bytes > 255)
    refuse(name, value, 'give a tenant id of 1 to 255 bytes, or null for the messages of all');
  return value as string;
}
