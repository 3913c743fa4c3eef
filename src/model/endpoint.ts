// A webhook endpoint as an application describes it, checked before the database is asked, so that a refusal leaves
// the caller's transaction usable; and its secrets, sealed before they leave this process.

import { randomBytes } from 'node:crypto';

import { ConfigurationError, SealedSecretError } from '../errors.js';
import { checkOptions, list, nullable, optional, refuse, text } from './options.js';
import { topicKind } from './route.js';
import { fingerprint, openSealed, seal, sealedWith } from './sealed-secret.js';
import type { SecretKey } from './sealed-secret.js';

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
  /** Sent with every request; sealed like the secret. */
  headers?: Record<string, string>;
  /** A secret that the customer brings: `whsec_` and base64 of 24 to 64 bytes. Default: made for you. */
  secret?: string;
};

export type EndpointChanges = {
  url?: string;
  topics?: readonly string[];
  /** null: all namespaces. */
  namespace?: string | null;
  description?: string | null;
  /** null: none. */
  headers?: Record<string, string> | null;
};

export type CheckedEndpoint = ReturnType<typeof checkNewEndpoint>;

const named = /^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$/;
const topics = list(topicKind, { min: 1, max: 100 });
const namespace = text({
  pattern: /^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$/,
  meaning: 'words of letters, digits, _ and -, joined by . : or /',
});
const description = text({ pattern: /^[^]{1,250}$/, meaning: 'a text of 1 to 250 characters' });

export function checkNewEndpoint(endpoint: NewEndpoint) {
  const checked = checkOptions('endpoint', endpoint, {
    url: endpointUrl,
    topics,
    tenantId: tenant,
    name: optional(text({ pattern: named, meaning: 'letters, digits, _ - and ., at most 63' })),
    namespace: optional(namespace),
    description: optional(description),
    headers: optional(endpointHeaders),
    secret: optional(endpointSecret),
  });
  return {
    ...checked,
    name: checked.name ?? `ep_${randomBytes(12).toString('hex')}`,
    secret: checked.secret ?? newSecret(),
  };
}

export function checkEndpointChanges(changes: EndpointChanges) {
  const checked = checkOptions('endpoint', changes, {
    url: optional(endpointUrl),
    topics: optional(topics),
    namespace: optional(nullable(namespace)),
    description: optional(nullable(description)),
    headers: optional(nullable(endpointHeaders)),
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
  const body = typeof value === 'string' ? /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(value)?.[1] : null;
  const bytes = body ? Buffer.from(body, 'base64').length : 0;
  // never shown, also when it is none
  if (bytes < 24 || bytes > 64) refuse(name, '…', 'give whsec_ and base64 of 24 to 64 bytes');
  return value as string;
}

/** Sealed for this endpoint alone, with what may be shown of it. */
export function sealSecret(keys: readonly SecretKey[], endpoint: string, secret: string) {
  return {
    sealedSecret: seal(keys, `secret of ${endpoint}`, secret),
    fingerprint: fingerprint(secret),
  };
}

export function sealHeaders(
  keys: readonly SecretKey[],
  endpoint: string,
  headers: Record<string, string>,
): string {
  return seal(keys, `headers of ${endpoint}`, JSON.stringify(headers));
}

/** What the database keeps sealed of an endpoint. */
export type SealedParts = {
  name: string;
  secrets: readonly { sealed: string; fingerprint: string; since: string }[];
  sealedHeaders: string | null;
};

/** Throws a SealedSecretError that names the endpoint and what is wrong. */
export function openEndpoint(
  keys: readonly SecretKey[],
  { name, secrets, sealedHeaders }: SealedParts,
): { secrets: string[]; headers: Record<string, string> } {
  try {
    return {
      secrets: secrets.map(({ sealed }) => openSealed(keys, `secret of ${name}`, sealed)),
      headers:
        sealedHeaders === null
          ? {}
          : (JSON.parse(openSealed(keys, `headers of ${name}`, sealedHeaders)) as Record<
              string,
              string
            >),
    };
  } catch (error) {
    if (!(error instanceof SealedSecretError)) throw error;
    throw new SealedSecretError(
      error.reason,
      `the secret of ${name} cannot be opened: ${error.message}`,
      { cause: error },
    );
  }
}

/** Everything sealed with the first key, or null if it is already. */
export function resealed(
  keys: readonly SecretKey[],
  parts: SealedParts,
): Pick<SealedParts, 'secrets' | 'sealedHeaders'> | null {
  const texts = [...parts.secrets.map(({ sealed }) => sealed), parts.sealedHeaders ?? []].flat();
  if (texts.every((sealed) => sealedWith(sealed) === keys[0]?.id)) return null;
  const opened = openEndpoint(keys, parts);
  return {
    secrets: parts.secrets.map((each, index) => ({
      ...each,
      sealed: sealSecret(keys, parts.name, opened.secrets[index] ?? '').sealedSecret,
    })),
    sealedHeaders:
      parts.sealedHeaders === null ? null : sealHeaders(keys, parts.name, opened.headers),
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

function endpointUrl(name: string, value: unknown): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url !== null && (url.username !== '' || url.password !== '')) {
    // the value is not shown: it holds a secret
    return refuse(
      name,
      `${url.protocol}//…@${url.host}`,
      'put credentials into headers, not into the address',
    );
  }
  if (url === null || !/^https?:$/.test(url.protocol) || Buffer.byteLength(url.href) > 2048) {
    return refuse(
      name,
      url === null ? value : `${url.protocol}…`,
      'give an http:// or https:// address of at most 2048 bytes',
    );
  }
  return url.href;
}

const reserved = /^(host|content-length|content-type|connection|transfer-encoding|webhook-.*)$/i;

function endpointHeaders(name: string, value: unknown): Record<string, string> {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    refuse(name, '…', 'give an object of header names and texts');
  for (const [header, content] of Object.entries(value)) {
    if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(header) || reserved.test(header))
      refuse(
        `${name}.${header}`,
        '…',
        'use another header name: this one is reserved or malformed',
      );
    // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
    if (typeof content !== 'string' || /[\u0000\r\n]/.test(content))
      refuse(`${name}.${header}`, '…', 'give text without line breaks');
  }
  return value as Record<string, string>;
}
