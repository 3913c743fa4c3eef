// Compares two versions, to decide whether this one may migrate a schema.

import { expect, it } from 'vitest';

import { isNewer, version } from '../../src/core/version.js';

const inOrder = [
  '0.1.0-2',
  '0.1.0-10',
  '0.1.0-20261116010203',
  '0.1.0-Beta',
  '0.1.0-alpha',
  '0.1.0-alpha.2',
  '0.1.0-alpha.10',
  '0.1.0-alpha.beta',
  '0.1.0-alpha2',
  '0.1.0-beta',
  '0.1.0-rc-1.2',
  '0.1.0',
  '0.1.2',
  '0.1.10',
  '0.9.0',
  '0.10.0-rc.1',
  '0.10.0',
  '1.0.0',
  '10.0.0',
];

it('N12 versions are ordered by their numbers, and a pre-release comes before its release', () => {
  inOrder.forEach((one, n) => {
    for (const [m, other] of inOrder.entries())
      expect(isNewer(one, other), `${one} newer than ${other}`).toBe(n > m);
  });
});

it('N12 two builds of one version are equal', () => {
  expect(isNewer('1.2.3+5', '1.2.3')).toBe(false);
  expect(isNewer('1.2.3', '1.2.3+5')).toBe(false);
  expect(isNewer(version, version)).toBe(false);
});
