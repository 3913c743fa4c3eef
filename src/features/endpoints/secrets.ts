// Secrets of an endpoint: sealed before they leave this process, and opened by the relay that delivers. `rotate_endpoint`
// (sql/functions/endpoints/endpoints.sql) adds a secret, `retire_endpoint_secrets` removes the older ones.

import { SealedSecretError } from '../../core/errors.js';
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

/** The parts of an endpoint that the database keeps sealed. */
export type SealedParts = {
  name: string;
  secrets: readonly { sealed: string; fingerprint: string; since: string }[];
  sealedHeaders: string | null;
};

/** Throws a SealedSecretError that names the endpoint and the problem. */
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

/** Seals everything with the first key; null if it is sealed with it already. */
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
