// How one delivery went, as a value. Destinations return outcomes instead of throwing; a throw means retry.

export type Outcome =
  | { readonly kind: 'delivered'; readonly reference?: string }
  | ({ readonly kind: 'retry'; readonly afterMs?: number } & Failure)
  | ({ readonly kind: 'reject' } & Failure)
  | { readonly kind: 'release' };

export type Failure = {
  /** Waybill's own code, stable, such as `timeout` or `http_status`. */
  readonly code: string;
  /** The other side's code, as it gave it. */
  readonly remoteCode?: string;
  readonly message?: string;
};

const plainDelivered: Outcome = Object.freeze({ kind: 'delivered' });

/** It arrived; `reference` is the receipt of the other side. */
export function delivered(reference?: string): Outcome {
  return reference === undefined ? plainDelivered : { kind: 'delivered', reference };
}

/** It did not arrive, and may another time: after `afterMs`, or as the retry policy says. */
export function retry(failure: Failure & { afterMs?: number }): Outcome {
  return { kind: 'retry', ...failure };
}

/** It will never arrive: straight to the dead letters. */
export function reject(failure: Failure): Outcome {
  return { kind: 'reject', ...failure };
}

/** It was never sent: back to the queue, and no try is spent. */
export function release(): Outcome {
  return { kind: 'release' };
}

/** Error texts come from anywhere; PostgreSQL must be able to store them, and settling never fails on content. */
export function cleanText(text: string, maxLength = 2000): string {
  const short = text.length > maxLength ? `${text.slice(0, maxLength - 1)}…` : text;
  return short.toWellFormed().replaceAll('\u0000', '\uFFFD');
}
