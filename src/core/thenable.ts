// Recognises thenables: query builders and others are not promises, but must be awaited too.

export function isThenable<T>(value: T): value is T & PromiseLike<Awaited<T>> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}
