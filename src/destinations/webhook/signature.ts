// Signatures of Standard Webhooks: `v1`, HMAC-SHA256 with a shared secret (`whsec_`), and `v1a`, ed25519 with the
// sender's private key (`whsk_`). Every configured secret signs, so that a receiver can change secrets at its own time.
// No error shows a secret.

import { createHmac, createPrivateKey, createPublicKey, createSecretKey, sign } from 'node:crypto';

import { strictBase64 } from '../../core/base64.js';
import { refuse } from '../../core/options.js';

/** One secret. Its key is made once, because that costs more than a signature. */
export type Secret = {
  /** The secret as it was given, to redact it in stored responses. */
  readonly text: string;
  /** One entry of the signature header. */
  signatureOf(signed: string): string;
};

const mostSecrets = 10;
const meaning =
  'give whsec_ and the base64 of 24 to 64 bytes, or whsk_ and the base64 of an ed25519 key, or a list of them';

/** Option kind: one secret or several. By convention the first is the newest; receivers accept any. */
export function webhookSecrets(name: string, value: unknown): readonly Secret[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) return [secretOf(name, value)];
  if (value.length < 1 || value.length > mostSecrets)
    refuse(name, '…', `give 1 to ${mostSecrets} secrets`);
  return value.map((item, index) => secretOf(`${name}[${index}]`, item));
}

/** The value of `webhook-signature`. */
export function signatures(
  secrets: readonly Secret[],
  id: string,
  timestamp: string,
  body: string,
): string {
  const signed = `${id}.${timestamp}.${body}`;
  const [only, ...others] = secrets;
  if (only === undefined || others.length === 0) return only?.signatureOf(signed) ?? '';
  return secrets.map((secret) => secret.signatureOf(signed)).join(' ');
}

function secretOf(name: string, value: unknown): Secret {
  const text = typeof value === 'string' ? value : '';
  const bytes = strictBase64(text.slice(text.indexOf('_') + 1));
  if (text.startsWith('whsec_') && bytes !== null && bytes.length >= 24 && bytes.length <= 64)
    return sharedSecret(text, bytes);
  if (text.startsWith('whsk_') && bytes !== null) {
    const secret = signingKey(text, bytes);
    if (secret !== null) return secret;
  }
  // the error describes the problem without showing any part of the secret
  return refuse(name, value === undefined ? value : '…', meaning);
}

function sharedSecret(text: string, bytes: Buffer): Secret {
  const key = createSecretKey(bytes);
  return {
    text,
    signatureOf: (signed) => `v1,${createHmac('sha256', key).update(signed).digest('base64')}`,
  };
}

/** The PKCS #8 prefix of the 32 bytes of an ed25519 key; node:crypto does not accept bare keys. */
const pkcs8Prefix = Buffer.from('302e020100300506032b657004220420', 'hex');

/** The key has 32 bytes, or 64 with its public key appended, as some libraries write it: then the two must match. */
function signingKey(text: string, bytes: Buffer): Secret | null {
  if (bytes.length !== 32 && bytes.length !== 64) return null;
  const key = createPrivateKey({
    key: Buffer.concat([pkcs8Prefix, bytes.subarray(0, 32)]),
    format: 'der',
    type: 'pkcs8',
  });
  const publicHalf = createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-32);
  if (bytes.length === 64 && !publicHalf.equals(bytes.subarray(32))) return null;
  return {
    text,
    signatureOf: (signed) => `v1a,${sign(null, Buffer.from(signed), key).toString('base64')}`,
  };
}
