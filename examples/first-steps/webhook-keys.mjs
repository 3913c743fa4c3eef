// Makes what webhooks are signed with: a secret that both sides know, and a pair of which the receiver gets the
// public half only. Usage: node webhook-keys.mjs

import { generateKeyPairSync, randomBytes } from 'node:crypto';

const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const last32 = (der) => der.subarray(-32).toString('base64');

console.log('shared secret', `whsec_${randomBytes(32).toString('base64')}`);
console.log('private key  ', `whsk_${last32(privateKey.export({ format: 'der', type: 'pkcs8' }))}`);
console.log('public key   ', `whpk_${last32(publicKey.export({ format: 'der', type: 'spki' }))}`);
