// Secrets of an endpoint: sealed before they leave this process, and opened by the relay that delivers. `rotate_endpoint`
// (sql/functions/endpoints/endpoints.sql) adds a secret, `retire_endpoint_secrets` removes the older ones.

import { SealedSecretError } from '../../core/errors.js';
import type { WebhookAuth } from '../../destinations/webhook/auth.js';
import { fingerprint, openSealed, seal, sealedWith } from '../../core/sealed-secret.js';
import type { SecretKey } from '../../core/sealed-secret.js';

/** Seals a secret for this endpoint, and returns it with its fingerprint. */
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

export function sealQuery(
  keys: readonly SecretKey[],
  endpoint: string,
  query: Record<string, string>,
): string {
  return seal(keys, `query of ${endpoint}`, JSON.stringify(query));
}

/** The kind of login is not sealed, so that lists can show it. */
export type SealedAuth = { type: WebhookAuth['type']; sealed: string };

export function sealAuth(
  keys: readonly SecretKey[],
  endpoint: string,
  auth: WebhookAuth,
): SealedAuth {
  return { type: auth.type, sealed: seal(keys, `auth of ${endpoint}`, JSON.stringify(auth)) };
}

/** The parts of an endpoint that the database keeps sealed. */
export type SealedParts = {
  name: string;
  secrets: readonly { sealed: string; fingerprint: string; since: string }[];
  sealedHeaders: string | null;
  sealedQuery: string | null;
  auth: SealedAuth | null;
};

type Opened = {
  secrets: string[];
  headers: Record<string, string>;
  query: Record<string, string>;
  auth: WebhookAuth | undefined;
};

/** Throws a SealedSecretError that names the endpoint and the problem. */
export function openEndpoint(
  keys: readonly SecretKey[],
  { name, secrets, sealedHeaders, sealedQuery, auth }: SealedParts,
): Opened {
  try {
    return {
      secrets: secrets.map(({ sealed }) => openSealed(keys, `secret of ${name}`, sealed)),
      ...openAdded(() => keys, { name, sealedHeaders, sealedQuery }),
      auth:
        auth === null
          ? undefined
          : (JSON.parse(openSealed(keys, `auth of ${name}`, auth.sealed)) as WebhookAuth),
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

/** The headers and query parameters that an endpoint adds. The keys are needed only if there are any. */
export function openAdded(
  keys: () => readonly SecretKey[],
  { name, sealedHeaders, sealedQuery }: Pick<SealedParts, 'name' | 'sealedHeaders' | 'sealedQuery'>,
): Pick<Opened, 'headers' | 'query'> {
  return {
    headers: openTexts(keys, `headers of ${name}`, sealedHeaders),
    query: openTexts(keys, `query of ${name}`, sealedQuery),
  };
}

/** Named texts that are sealed together; none if there are none. */
function openTexts(
  keys: () => readonly SecretKey[],
  what: string,
  sealed: string | null,
): Record<string, string> {
  if (sealed === null) return {};
  return JSON.parse(openSealed(keys(), what, sealed)) as Record<string, string>;
}

/** Seals everything with the first key; null if it is sealed with it already. */
export function resealed(
  keys: readonly SecretKey[],
  parts: SealedParts,
): Pick<SealedParts, 'secrets' | 'sealedHeaders' | 'sealedQuery' | 'auth'> | null {
  const texts = [
    ...parts.secrets.map(({ sealed }) => sealed),
    parts.sealedHeaders ?? [],
    parts.sealedQuery ?? [],
    parts.auth?.sealed ?? [],
  ].flat();
  if (texts.every((sealed) => sealedWith(sealed) === keys[0]?.id)) return null;
  const opened = openEndpoint(keys, parts);
  return {
    secrets: parts.secrets.map((each, index) => ({
      ...each,
      sealed: sealSecret(keys, parts.name, opened.secrets[index] ?? '').sealedSecret,
    })),
    sealedHeaders:
      parts.sealedHeaders === null ? null : sealHeaders(keys, parts.name, opened.headers),
    sealedQuery: parts.sealedQuery === null ? null : sealQuery(keys, parts.name, opened.query),
    auth: opened.auth === undefined ? null : sealAuth(keys, parts.name, opened.auth),
  };
}
