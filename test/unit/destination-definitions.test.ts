// Two applications can share a destination that they describe differently, but not one that sends differently.

import { describe, expect, it } from 'vitest';

import { redis } from '../../src/destinations/redis/redis.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import type { WebhookOptions } from '../../src/destinations/webhook/webhook.js';
import { definitionsOf } from '../../src/relay/setup.js';

const fingerprint = (destination: ReturnType<typeof webhook> | ReturnType<typeof redis>) =>
  definitionsOf({ destinations: { crm: destination }, routes: [] }).destinations[0]?.fingerprint;

const hook = (options: Partial<WebhookOptions> = {}) =>
  fingerprint(webhook({ url: 'https://crm.example/in', ...options }));

describe('the fingerprint of a destination', () => {
  it.each<[string, Partial<WebhookOptions>]>([
    ['spells out defaults', { method: 'POST', body: 'payload', retry: {}, headers: {} }],
    ['writes the address differently', { url: 'HTTPS://CRM.example:443/in' }],
    ['has another secret', { secrets: [`whsec_${'a'.repeat(32)}`] }],
    ['has an empty list', { terminalCodes: [] }],
    ['allows no other networks', { allowedNetworks: [] }],
  ])('M2 is the same if one %s', (_what, options) => {
    expect(hook(options)).toBe(hook());
  });

  it('M2 is the same in another order of headers and lists, and in another letter case', () => {
    expect(hook({ headers: { 'X-One': '1', 'x-two': '2' }, successCodes: [200, 204] })).toBe(
      hook({ headers: { 'X-Two': '2', 'x-one': '1' }, successCodes: [204, 200] }),
    );
    expect(fingerprint(redis({ url: 'redis://cache.example' }))).toBe(
      fingerprint(redis({ url: 'redis://cache.example', stream: '{topic}', createStream: true })),
    );
  });

  it("M2 differs with the value of a header, unless the header's name marks it as a secret", () => {
    expect(hook({ headers: { 'x-version': '1' } })).not.toBe(
      hook({ headers: { 'x-version': '2' } }),
    );
    for (const name of ['authorization', 'cookie', 'x-api-key', 'x-auth-token'])
      expect(hook({ headers: { [name]: 'one' } })).toBe(hook({ headers: { [name]: 'two' } }));
  });

  it.each<[string, Partial<WebhookOptions>]>([
    ['another address', { url: 'https://crm.example/other' }],
    ['another method', { method: 'PUT' }],
    ['other networks', { allowedNetworks: ['10.0.0.0/8'] }],
    ['another schedule', { retry: { maxAttempts: 3 } }],
  ])('M2 differs with %s', (_what, options) => {
    expect(hook(options)).not.toBe(hook());
  });
});
