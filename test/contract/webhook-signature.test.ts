// Signatures, verified as a receiver would: with the public package of Standard Webhooks, and for ed25519, which it
// lacks, with node:crypto and the receiver's public key.

import { generateKeyPairSync, randomBytes, verify } from 'node:crypto';
import type { KeyObject } from 'node:crypto';

import { Webhook } from 'standardwebhooks';
import { describe, expect, it } from 'vitest';

import { webhook } from '../../src/destinations/webhook/webhook.js';
import { deliver, id, opened, received, receiver } from '../support/webhook.js';
import type { Received } from '../support/webhook.js';

const shared = (bytes = 32): string => `whsec_${randomBytes(bytes).toString('base64')}`;

function keyPair(): { secret: string; long: string; publicKey: KeyObject } {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const seed = privateKey.export({ format: 'der', type: 'pkcs8' }).subarray(-32);
  const half = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);
  return {
    secret: `whsk_${seed.toString('base64')}`,
    long: `whsk_${Buffer.concat([seed, half]).toString('base64')}`,
    publicKey,
  };
}

function verified(secret: string, { headers, body }: Received): unknown {
  return new Webhook(secret).verify(body, headers as Record<string, string>);
}

function signaturesOf({ headers }: Received): string[] {
  return String(headers['webhook-signature']).split(' ');
}

/** Verifies as a receiver with the public key does. */
function isSigned(request: Received, publicKey: KeyObject): boolean {
  const signed = `${id}.${String(request.headers['webhook-timestamp'])}.${request.body}`;
  return signaturesOf(request)
    .filter((signature) => signature.startsWith('v1a,'))
    .some((signature) =>
      verify(null, Buffer.from(signed), publicKey, Buffer.from(signature.slice(4), 'base64')),
    );
}

describe('a request with a secret', () => {
  it.each([24, 32, 64])('M11 W2 of %i bytes is signed: the package verifies it', async (bytes) => {
    const secret = shared(bytes);
    const request = await received({ secrets: secret });
    expect(verified(secret, request)).toEqual({ n: 1 });
    expect(signaturesOf(request)).toEqual([expect.stringMatching(/^v1,[\w+/]{43}=$/)]);
    expect(() => verified(shared(), request)).toThrow(/No matching signature/);
  });

  it.each(['payload', 'envelope', 'cloudevents', 'cloudevents-structured'] as const)(
    'M11 is signed over the exact bytes of its body: %s',
    async (body) => {
      const secret = shared();
      const request = await received(
        { secrets: secret, body },
        { payload: '{"a":  12345678901234567890.10, "b": "Zoë 🚚"}' },
      );
      expect(() => verified(secret, request)).not.toThrow();
      const tampered = { ...request, body: request.body.replace('Zoë', 'Zoé') };
      expect(() => verified(secret, tampered)).toThrow(/No matching signature/);
    },
  );

  it('M11 signs the time of this attempt and the id of the message', async () => {
    const secret = shared();
    const beforeMs = Date.now();
    const request = await received({ secrets: secret });
    const sentMs = Number(request.headers['webhook-timestamp']) * 1000;
    expect(sentMs).toBeGreaterThan(beforeMs - 1000);
    expect(sentMs).toBeLessThanOrEqual(Date.now());
    expect(request.headers['webhook-id']).toBe(id);
    for (const changed of [
      { 'webhook-id': 'other' },
      { 'webhook-timestamp': String(sentMs / 1000 + 1) },
    ])
      expect(() =>
        verified(secret, { ...request, headers: { ...request.headers, ...changed } }),
      ).toThrow(/No matching signature/);
  });

  it.each(['secret', 'long'] as const)(
    'M11 W2 of ed25519 (%s form) is signed as v1a',
    async (form) => {
      const pair = keyPair();
      const request = await received({ secrets: pair[form] });
      expect(signaturesOf(request)).toEqual([expect.stringMatching(/^v1a,[\w+/]{86}==$/)]);
      expect(isSigned(request, pair.publicKey)).toBe(true);
      expect(isSigned({ ...request, body: '{"n": 2}' }, pair.publicKey)).toBe(false);
      expect(isSigned(request, keyPair().publicKey)).toBe(false);
    },
  );

  it('M11 W2 during a rotation, each secret signs', async () => {
    const [newer, older, pair] = [shared(), shared(), keyPair()];
    const request = await received({ secrets: [newer, pair.secret, older] });
    expect(signaturesOf(request)).toHaveLength(3);
    for (const secret of [newer, older]) expect(verified(secret, request)).toEqual({ n: 1 });
    expect(isSigned(request, pair.publicKey)).toBe(true);
  });

  it('M11 without a secret nothing is signed', async () => {
    expect((await received({})).headers).not.toHaveProperty('webhook-signature');
  });

  it('M11 each message has its own signature', async () => {
    const { url, requests } = await receiver();
    const secret = shared();
    const destination = await opened({ url, secrets: secret });
    for (const n of [1, 2, 3]) await deliver(destination, { payload: String(n), id: `m-${n}` });
    expect(requests.map((request) => verified(secret, request))).toEqual([1, 2, 3]);
    expect(new Set(requests.flatMap(signaturesOf)).size).toBe(3);
  });
});

describe('a secret is refused, and not shown, that', () => {
  const url = 'https://example.com/hook';
  const geheim = randomBytes(32).toString('base64');
  const pair = keyPair();
  const mixed = Buffer.concat([
    Buffer.from(pair.secret.slice(5), 'base64'),
    Buffer.from(keyPair().long.slice(5), 'base64').subarray(32),
  ]).toString('base64');

  it.each([
    ['has no prefix', geheim],
    ['has another prefix', `whpk_${geheim}`],
    ['is too short', `whsec_${randomBytes(23).toString('base64')}`],
    ['is too long', `whsec_${randomBytes(65).toString('base64')}`],
    ['is not base64', `whsec_${geheim.slice(0, -3)}*${geheim.slice(-2)}`],
    ['is base64url', `whsec_${Buffer.alloc(32, 0xff).toString('base64url')}`],
    ['has a line break', `whsec_${geheim}\n`],
    ['is not an ed25519 key', `whsk_${randomBytes(31).toString('base64')}`],
    ['is a key with the public half of another', `whsk_${mixed}`],
    ['is empty', ''],
    ['is not text', 7 as unknown as string],
  ])('%s', (_what, secret) => {
    for (const secrets of [secret, [shared(), secret]]) {
      const make = (): unknown => webhook({ url, secrets });
      expect(make).toThrow(/^webhook\.secrets(\[1\])? is "…": give whsec_/);
      expect(make).not.toThrow(JSON.stringify(secret).slice(8, 20).padEnd(12, '#'));
    }
  });

  it('is undefined: an unset variable must not switch signatures off', () => {
    const secrets = process.env['WAYBILL_NO_SUCH_SECRET'] as string;
    expect(() => webhook({ url, secrets })).toThrow(
      /^webhook\.secrets is undefined: give a secret/,
    );
    expect(() => webhook({ url, secrets: [secrets] })).toThrow(
      /^webhook\.secrets\[0\] is undefined/,
    );
    expect(() => webhook({ url, secrets: [] })).toThrow(/^webhook\.secrets is .*1 to 10/);
  });
});
