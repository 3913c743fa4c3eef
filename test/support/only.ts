/** Returns the only element of a list; throws if there is none or more than one. */
export function only<T>(items: readonly T[]): T {
  const [first] = items;
  if (items.length !== 1 || first === undefined)
    throw new Error(`expected exactly one, got ${items.length}`);
  return first;
}
