// Encryption of secrets at rest: AES-256-GCM with a key that never reaches the database. A sealed text names its key
// and is bound to its purpose: copied to another endpoint, it does not open. Several keys can be configured, so that a
// key can be replaced while relays run: the first key seals, all of them open.

import {
  createCipheriv,
  createDecipheriv,
  createHash,
  createSecretKey,
  randomBytes,
} from 'node:crypto';
import type { KeyObject } from 'node:crypto';

import { SealedSecretError } from './errors.js';

/** A sealing key, and the short name by which sealed texts refer to it. */
export type SecretKey = { readonly id: string; readonly key: KeyObject };

const prefix = 'sealed:1';
const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;

/** Keys in base64, separated by commas; null if the text contains anything else. */
export function parseSecretKeys(text: string): SecretKey[] | null {
  const keys = text.split(',').map((part) => {
    const trimmed = part.trim();
    const key = Buffer.from(trimmed, 'base64');
    const sound = /^[A-Za-z0-9+/_-]+={0,2}$/.test(trimmed) && key.length === keyBytes;
    return sound ? { id: keyId(key), key: createSecretKey(key) } : null;
  });
  return keys.includes(null) ? null : (keys as SecretKey[]);
}

/** `purpose` names the owner of the text; the text opens only with the same purpose. */
export function seal(keys: readonly SecretKey[], purpose: string, text: string): string {
  const [first] = keys;
  if (first === undefined) throw new SealedSecretError('unknown_key', 'there is no key');
  const nonce = randomBytes(nonceBytes);
  const cipher = createCipheriv('aes-256-gcm', first.key, nonce, { authTagLength: tagBytes });
  cipher.setAAD(Buffer.from(`${prefix} ${purpose}`));
  const sealed = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final()]);
  return `${prefix}:${first.id}:${Buffer.concat([sealed, cipher.getAuthTag()]).toString('base64url')}`;
}

export function openSealed(keys: readonly SecretKey[], purpose: string, sealed: string): string {
  const [, , id = '', body = ''] = sealed.startsWith(`${prefix}:`) ? sealed.split(':') : [];
  const bytes = Buffer.from(body, 'base64url');
  if (bytes.length < nonceBytes + tagBytes)
    throw new SealedSecretError('damaged', 'it is not a sealed text of a known version');
  const known = keys.find((key) => key.id === id);
  if (known === undefined) {
    throw new SealedSecretError(
      'unknown_key',
      `it was sealed with the key ${id}, which is not among those given (${keys.map((key) => key.id).join(', ') || 'none'})`,
    );
  }
  const decipher = createDecipheriv('aes-256-gcm', known.key, bytes.subarray(0, nonceBytes), {
    authTagLength: tagBytes,
  });
  decipher.setAAD(Buffer.from(`${prefix} ${purpose}`));
  decipher.setAuthTag(bytes.subarray(-tagBytes));
  try {
    const text = decipher.update(bytes.subarray(nonceBytes, -tagBytes));
    return Buffer.concat([text, decipher.final()]).toString('utf8');
  } catch (error) {
    throw new SealedSecretError(
      'damaged',
      'it was changed, or sealed for something else, since it was written',
      { cause: error },
    );
  }
}

/** Returns the id of the key that a sealed text needs. */
export function sealedWith(sealed: string): string {
  return sealed.split(':')[2] ?? '';
}

/** A fingerprint that may be shown: it distinguishes secrets and reveals nothing else. */
export function fingerprint(secret: string): string {
  return createHash('sha256').update(`waybill fingerprint ${secret}`).digest('hex').slice(0, 12);
}

function keyId(key: Buffer): string {
  return createHash('sha256').update('waybill key id ').update(key).digest('hex').slice(0, 8);
}
