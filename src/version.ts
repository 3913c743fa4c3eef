// The version of this package, as package.json has it, and which of two versions is newer.

import { readFileSync } from 'node:fs';

const text = readFileSync(new URL('../package.json', import.meta.url), 'utf8');

export const version = (JSON.parse(text) as { version: string }).version;

/** As semantic versioning orders them: numbers by value, a pre-release before its release, builds alike. */
export function isNewer(one: string, other: string): boolean {
  const [a, b] = [parse(one), parse(other)];
  const core = order(a.core, b.core);
  if (core !== 0 || a.preRelease === b.preRelease) return core > 0;
  if (a.preRelease === '' || b.preRelease === '') return a.preRelease === '';
  return order(a.preRelease, b.preRelease) > 0;
}

function parse(given: string): { core: string; preRelease: string } {
  const [core = '', ...preRelease] = given.replace(/\+.*/, '').split('-');
  return { core, preRelease: preRelease.join('-') };
}

function order(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true });
}
