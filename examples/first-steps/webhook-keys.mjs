// Makes secrets for signing webhooks: a shared secret, and a key pair of which the receiver gets only the public key.
// Usage: node webhook-keys.mjs

import { generateKeyPairSync, randomBytes } from 'node:crypto';

const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const last32 = (der) => der.subarray(-32).toString('base64');

console.log('shared secret', `whsec_${randomBytes(32).toString('base64')}`);
console.log('private key  ', `whsk_${last32(privateKey.export({ format: 'der', type: 'pkcs8' }))}`);
console.log('public key   ', `whpk_${last32(publicKey.export({ format: 'der', type: 'spki' }))}`);
