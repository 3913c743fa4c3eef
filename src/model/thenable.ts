// Query builders and the like are thenables, not promises; they must be awaited all the same.

export function isThenable<T>(value: T): value is T & PromiseLike<Awaited<T>> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}
