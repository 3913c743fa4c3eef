// Options are refused where they enter, with the key, the value and what is allowed.

import { describe, expect, it } from 'vitest';

import { ConfigurationError } from '../../src/core/errors.js';
import {
  checkOptions,
  flag,
  integer,
  list,
  nullable,
  optional,
  text,
} from '../../src/core/options.js';
import { resolveRetryPolicy } from '../../src/core/retry-policy.js';
import type { RetryPolicy } from '../../src/core/retry-policy.js';
import { checkRoutes as checkCoreRoutes } from '../../src/core/route.js';
import { featureRoutes } from '../../src/features/in-relay.js';

const kinds = {
  size: integer({ min: 1, max: 10, default: 5 }),
  rate: nullable(integer({ min: 1, max: 10, default: 2 })),
  on: flag(true),
  name: optional(text({ pattern: /^[a-z]+$/, meaning: 'small letters' })),
};

describe('options', () => {
  it('have their defaults when nothing is given', () => {
    const defaults = { size: 5, rate: 2, on: true, name: undefined };
    expect(checkOptions('part', undefined, kinds)).toEqual(defaults);
    expect(checkOptions('part', {}, kinds)).toEqual(defaults);
  });

  it('are used as given, and null switches off', () => {
    const given = { size: 1, rate: null, on: false, name: 'abc' };
    expect(checkOptions('part', given, kinds)).toEqual(given);
  });

  it.each<[object | undefined, string]>([
    [{ sizes: 1 }, 'part.sizes is not an option: use size, rate, on, name'],
    [{ size: 0 }, 'part.size is 0: give a whole number from 1 to 10'],
    [{ size: 11 }, 'part.size is 11: give a whole number from 1 to 10'],
    [{ size: 1.5 }, 'part.size is 1.5: give a whole number from 1 to 10'],
    [{ size: '5' }, 'part.size is "5": give a whole number from 1 to 10'],
    [{ size: Number.NaN }, 'part.size is NaN: give a whole number from 1 to 10'],
    [{ rate: 0 }, 'part.rate is 0: give a whole number from 1 to 10'],
    [{ on: 'yes' }, 'part.on is "yes": give true or false'],
    [{ name: 'ABC' }, 'part.name is "ABC": give small letters'],
    [{ name: '' }, 'part.name is "": give small letters'],
    [[1], 'part is [1]: give an object'],
    ['x' as unknown as object, 'part is "x": give an object'],
  ])('%j are refused with the key, the value and the range', (given, message) => {
    const check = (): unknown => checkOptions('part', given, kinds);
    expect(check).toThrow(ConfigurationError);
    expect(check).toThrow(message);
  });

  it('of a list are refused with their index', () => {
    const sizes = { sizes: list(integer({ min: 0, max: 9 }), { min: 1, max: 3 }) };
    expect(checkOptions('part', { sizes: [1, 2] }, sizes)).toEqual({ sizes: [1, 2] });
    const bad: [unknown, string][] = [
      [[1, 10], 'part.sizes[1] is 10'],
      [[], 'give a list of 1 to 3 values'],
      [[1, 2, 3, 4], 'give a list of 1 to 3 values'],
      ['12', 'give a list of 1 to 3 values'],
    ];
    for (const [given, message] of bad) {
      expect(() => checkOptions('part', { sizes: given }, sizes)).toThrow(message);
    }
  });

  it('refuses an option with the name of a property of every object', () => {
    expect(() => checkOptions('part', { constructor: 1 }, kinds)).toThrow(/not an option/);
  });
});

describe('a retry policy', () => {
  it('M10 has a base of 1 s and a maximum of 300 s by default', () => {
    expect(resolveRetryPolicy('retry')).toEqual({
      maxAttempts: 10,
      retryBaseMs: 1000,
      retryMaxMs: 300_000,
      retryDelaysMs: null,
    });
  });

  it('M10 uses its own figures, and a base above the maximum becomes the maximum', () => {
    expect(resolveRetryPolicy('retry', { maxAttempts: 3, baseMs: 50, maxMs: 20 })).toEqual({
      maxAttempts: 3,
      retryBaseMs: 20,
      retryMaxMs: 20,
      retryDelaysMs: null,
    });
  });

  it('W3 of n delays means n + 1 attempts', () => {
    const delaysMs = [60_000, 300_000, 900_000, 3_600_000, 7_200_000];
    expect(resolveRetryPolicy('retry', { delaysMs })).toMatchObject({
      maxAttempts: 6,
      retryDelaysMs: delaysMs,
    });
  });

  it.each<[object, string]>([
    [{ maxAttempts: 0 }, 'retry.maxAttempts is 0'],
    [{ baseMs: -1 }, 'retry.baseMs is -1'],
    [{ maxMs: 1e20 }, 'retry.maxMs is 100000000000000000000'],
    [{ delaysMs: [] }, 'retry.delaysMs is []'],
    [{ delaysMs: [1, -1] }, 'retry.delaysMs[1] is -1'],
    [{ delaysMs: [1], maxAttempts: 3 }, 'retry.maxAttempts is not an option: use delaysMs'],
    [{ attempts: 3 }, 'retry.attempts is not an option'],
  ])('M10 W3 %j is refused', (policy, message) => {
    expect(() => resolveRetryPolicy('retry', policy as RetryPolicy)).toThrow(message);
  });
});

describe('routes', () => {
  const destinations = new Set(['crm', 'mail']);
  const checkRoutes = (routes: unknown, names: ReadonlySet<string>) =>
    checkCoreRoutes(routes, names, featureRoutes);

  it('W1 match a topic, a prefix or everything, with their filters', () => {
    const routes = [
      { topic: 'user.registered', to: 'crm' },
      { topic: 'user.*', to: 'mail', namespace: 'shop', tenantId: 'acme' },
      { topic: '*', to: 'crm' },
      { topic: 'a:b/c-d_e.*', to: 'crm' },
    ];
    expect(checkRoutes(routes, destinations)).toEqual(routes);
  });

  it.each(['', 'user*', '*.user', 'user.**', 'user.*.x', '.*', 'a b', 'user.*\n'])(
    'W1 to the topic %j are refused',
    (topic) => {
      expect(() => checkRoutes([{ topic, to: 'crm' }], destinations)).toThrow(
        /routes\[0\]\.topic is/,
      );
    },
  );

  it.each<[unknown, string]>([
    [
      { topic: 't', to: 'nowhere' },
      'routes[0].to is "nowhere", which is no destination: use crm, mail',
    ],
    [{ topic: 't' }, 'routes[0].to is undefined: give the name of a destination'],
    [{ topic: 't', to: 'crm', from: 'x' }, 'routes[0].from is not an option'],
    [{ topic: 't', to: 'crm', namespace: '' }, 'routes[0].namespace is ""'],
  ])('W1 like %j are refused with their index', (route, message) => {
    expect(() => checkRoutes([route], destinations)).toThrow(message);
  });

  it('W1 to several destinations become one route for each', () => {
    const route = { topic: 't', namespace: 'shop', tenantId: 'acme' };
    expect(checkRoutes([{ ...route, to: ['crm', 'mail'] }], destinations)).toEqual([
      { ...route, to: 'crm' },
      { ...route, to: 'mail' },
    ]);
  });

  it.each<[object, string]>([
    [{ to: [] }, 'routes[0].to is []: give a list of 1 to 100 values'],
    [{ to: ['crm', 'crm'] }, 'routes[0].to is ["crm","crm"]: it has crm twice: leave one of them'],
    [{ to: ['crm', 'sms'] }, 'routes[0].to is "sms", which is no destination: use crm, mail'],
    [{ to: ['crm', 7] }, 'routes[0].to[1] is 7: give the name of a destination'],
    [
      { to: ['crm', 'mail'], rollout: 'move' },
      'routes[0].rollout is "move": a rollout leads to one destination, and this route to crm and mail',
    ],
  ])('W1 to several like %j are refused with their index', (route, message) => {
    expect(() => checkRoutes([{ topic: 't', ...route }], destinations)).toThrow(message);
  });

  it.each([
    [undefined, 'move', 'with the rollout move, and routes[0] without a rollout'],
    ['move', undefined, 'without a rollout, and routes[0] with the rollout move'],
    ['move', 'other', 'with the rollout other, and routes[0] with the rollout move'],
  ])('W1 the same route with the rollouts %j and %j is refused', (first, second, message) => {
    const route = { topic: 't', namespace: 'n', tenantId: 'a', to: 'crm' };
    const given = [
      { ...route, ...(first && { rollout: first }) },
      { ...route, ...(second && { rollout: second }) },
    ];
    expect(() => checkRoutes(given, destinations)).toThrow(
      `routes[1] leads "t" to crm ${message}: leave one of them out`,
    );
    const elsewhere = [given[0], { ...given[1], tenantId: 'b' }];
    expect(checkRoutes(elsewhere, destinations)).toHaveLength(2);
  });

  it('W1 a route to several destinations, one of which has a rollout elsewhere, is refused', () => {
    const given = [
      { topic: 't', to: ['crm', 'mail'] },
      { topic: 't', to: 'crm', rollout: 'move' },
    ];
    expect(() => checkRoutes(given, destinations)).toThrow('routes[1] leads "t" to crm with');
  });

  it('W1 must be a list', () => {
    expect(() => checkRoutes({ topic: 't' }, destinations)).toThrow(/routes is .*give a list/);
  });
});
