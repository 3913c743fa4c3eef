// The lockfiles install on every platform: each optional dependency of a locked package, such as the native part for
// another operating system, has its own entry, and no entry names a download address.

import { readFileSync } from 'node:fs';
import path from 'node:path';

import { describe, expect, it } from 'vitest';

type Locked = { optionalDependencies?: Record<string, string>; resolved?: string; link?: boolean };

/** The places where npm may have put a dependency of the package: inside it, or beside one of its parents. */
function placesOf(place: string, name: string): string[] {
  const parents = place.split('/node_modules/').length;
  return Array.from({ length: parents + 1 }, (_, depth) =>
    [...place.split('/node_modules/').slice(0, depth), name].join('/node_modules/'),
  ).map((found) => (found.startsWith('node_modules/') ? found : `node_modules/${found}`));
}

/** Optional dependencies without an entry, as `package: dependency`. */
function missingFrom(packages: Record<string, Locked>): string[] {
  return Object.entries(packages).flatMap(([place, { optionalDependencies = {} }]) =>
    Object.keys(optionalDependencies)
      .filter((name) => !placesOf(place, name).some((found) => found in packages))
      .map((name) => `${place}: ${name}`),
  );
}

describe.each(['.', 'bench', 'site', 'test/adapters', 'test/postgres'])(
  'X1 the lockfile in %s',
  (directory) => {
    const text = readFileSync(path.join(directory, 'package-lock.json'), 'utf8');
    const { packages } = JSON.parse(text) as { packages: Record<string, Locked> };

    it('has an entry for every optional dependency, whatever the platform', () => {
      expect(missingFrom(packages)).toEqual([]);
    });

    it('names no download address', () => {
      const addressed = Object.entries(packages).filter(
        ([, { resolved, link }]) => resolved !== undefined && link !== true,
      );
      expect(addressed.map(([place]) => place)).toEqual([]);
    });
  },
);

it('an optional dependency without an entry is found, in the root and inside another package', () => {
  const packages: Record<string, Locked> = {
    'node_modules/a': { optionalDependencies: { 'a-darwin': '1', 'a-linux': '1' } },
    'node_modules/a-linux': {},
    'node_modules/b/node_modules/c': { optionalDependencies: { 'c-linux': '1', 'c-win32': '1' } },
    'node_modules/b/node_modules/c-linux': {},
  };
  expect(missingFrom(packages)).toEqual([
    'node_modules/a: a-darwin',
    'node_modules/b/node_modules/c: c-win32',
  ]);
});
