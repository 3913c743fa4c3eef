// The secrets of an endpoint, sealed before they leave this process and opened where deliveries are made.

import { SealedSecretError } from '../errors.js';
import { fingerprint, openSealed, seal, sealedWith } from './sealed-secret.js';
import type { SecretKey } from './sealed-secret.js';

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
