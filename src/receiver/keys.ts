// Keys of a receiver: each verifies one kind of signature of Standard Webhooks. `whsec_` is a shared secret, for `v1`
// (HMAC-SHA256). `whpk_` is the sender's public key, for `v1a` (ed25519). No error shows a secret.

import { Buffer } from 'node:buffer';
import {
  createHmac,
  createPublicKey,
  createSecretKey,
  timingSafeEqual,
  verify as verifySignature,
} from 'node:crypto';
import type { KeyObject } from 'node:crypto';

import { strictBase64 } from '../core/base64.js';
import { refuse } from '../core/options.js';

export type Key = {
  readonly version: 'v1' | 'v1a';
  /** Whether one of the signatures is right, compared in constant time. */
  accepts(signed: Buffer, signatures: readonly Buffer[]): boolean;
};

const mostKeys = 10;
const meaning =
  'give whsec_ and the base64 of 24 to 64 bytes, or whpk_ and the base64 of a public ed25519 key, or a list of them';

/** Option kind: one secret or several. During a rotation, a receiver has the old one and the new one. */
export function receiverKeys(name: string, value: unknown): readonly Key[] {
  if (!Array.isArray(value)) return [keyOf(name, value)];
  if (value.length < 1 || value.length > mostKeys)
    refuse(name, '…', `give 1 to ${mostKeys} secrets`);
  return value.map((item, index) => keyOf(`${name}[${index}]`, item));
}

function keyOf(name: string, value: unknown): Key {
  const text = typeof value === 'string' ? value : '';
  const bytes = strictBase64(text.slice(text.indexOf('_') + 1));
  if (text.startsWith('whsec_') && bytes !== null && bytes.length >= 24 && bytes.length <= 64)
    return sharedKey(createSecretKey(bytes));
  if (text.startsWith('whpk_') && bytes?.length === 32) return publicKey(bytes);
  // the error describes the problem without showing any part of the secret
  return refuse(name, value === undefined ? value : '…', meaning);
}

function sharedKey(key: KeyObject): Key {
  return {
    version: 'v1',
    accepts(signed, signatures) {
      const expected = createHmac('sha256', key).update(signed).digest();
      return signatures.some(
        (signature) => signature.length === expected.length && timingSafeEqual(signature, expected),
      );
    },
  };
}

function publicKey(bytes: Buffer): Key {
  const x = bytes.toString('base64url');
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
  return {
    version: 'v1a',
    accepts: (signed, signatures) =>
      signatures.some((signature) => verifySignature(null, signed, key, signature)),
  };
}

/** The bytes that a sender signs: the id, the timestamp and the body as it was received. */
export function signedBytes(id: string, timestamp: string, body: Uint8Array): Buffer {
  return Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
}
