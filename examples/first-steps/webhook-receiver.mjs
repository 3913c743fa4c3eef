// A receiver of signed webhooks. It verifies a request before it uses it, and answers when the event is stored. Usage:
// WEBHOOK_SECRET=whsec_… or whpk_… PORT=… node webhook-receiver.mjs

import { createPublicKey, verify } from 'node:crypto';
import { createServer } from 'node:http';
import { text } from 'node:stream/consumers';

import { Webhook } from 'standardwebhooks';

const secret = process.env.WEBHOOK_SECRET ?? '';

const server = createServer((request, response) => {
  receive(request, response).catch(() => response.destroy());
});

async function receive(request, response) {
  // the bytes as received: JSON that was parsed and written again has another signature
  const body = await text(request);
  if (!isGenuine(body, request.headers)) {
    response.writeHead(401).end('the signature does not fit');
    return;
  }
  const { 'webhook-topic': topic, 'webhook-id': id } = request.headers;
  console.log(topic, id, body);
  response.writeHead(204).end();
}

function isGenuine(body, headers) {
  return secret.startsWith('whpk_')
    ? isSignedByKey(body, headers)
    : isSignedBySecret(body, headers);
}

function isSignedBySecret(body, headers) {
  try {
    new Webhook(secret).verify(body, headers);
    return true;
  } catch {
    // from another sender, changed on the way, or older than five minutes
    return false;
  }
}

function isSignedByKey(body, headers) {
  const {
    'webhook-id': id,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures,
  } = headers;
  if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) < 300)) return false;
  const x = Buffer.from(secret.slice('whpk_'.length), 'base64').toString('base64url');
  const key = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
  const signed = Buffer.from(`${id}.${timestamp}.${body}`);
  return String(signatures)
    .split(' ')
    .filter((signature) => signature.startsWith('v1a,'))
    .some((signature) => verify(null, signed, key, Buffer.from(signature.slice(4), 'base64')));
}

server.listen(Number(process.env.PORT ?? 8080), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/`);
});
