// The version of this package, and the order of versions. The database has the same order (version_number); a test
// compares the two.

export { version } from './package-version.js';

/** The order of semantic versioning: numbers by value, a pre-release before its release, build metadata ignored. */
export function isNewer(one: string, other: string): boolean {
  const [a, b] = [parse(one), parse(other)];
  const core = compareWords(a.core, b.core);
  if (core !== 0) return core > 0;
  if (a.preRelease === null || b.preRelease === null)
    return a.preRelease === null && b.preRelease !== null;
  return compareWords(a.preRelease, b.preRelease) > 0;
}

function parse(given: string): { core: string[]; preRelease: string[] | null } {
  const [core = '', ...preRelease] = given.replace(/\+.*/, '').split('-');
  return {
    core: core.split('.'),
    preRelease: preRelease.length === 0 ? null : preRelease.join('-').split('.'),
  };
}

/** Compares word by word; a list that ends first comes first. */
function compareWords(a: readonly string[], b: readonly string[]): number {
  for (const [place, word] of a.entries()) {
    const other = b[place];
    if (other === undefined) return 1;
    const order = compareWord(word, other);
    if (order !== 0) return order;
  }
  return a.length - b.length;
}

/** Numbers by value, and before names; names by character code, so capitals first. */
function compareWord(a: string, b: string): number {
  const [isNumber, isOtherNumber] = [/^\d+$/.test(a), /^\d+$/.test(b)];
  if (isNumber && isOtherNumber) return Number(BigInt(a) - BigInt(b));
  if (isNumber !== isOtherNumber) return isNumber ? -1 : 1;
  return a === b ? 0 : a < b ? -1 : 1;
}
