// What operators see of a destination beside its definition: its address and the settings of the relay. A relay declares
// it with the definition, so that every server can show it. Relays may differ in it.

import type { ResolvedSettings } from './destination.js';
import { shownAddress } from './shown-address.js';
import type { ShownAddress } from './shown-address.js';

export type ShownDestination = Pick<
  ResolvedSettings,
  'concurrency' | 'timeoutMs' | 'mode' | 'partitions' | 'breaker'
> & {
  /** Without secrets; null if it has none, like a function. */
  address: ShownAddress | null;
  /** Messages that the rate limit allows at once; null: no limit. */
  burst: number | null;
};

export function shownDestination(
  kind: string,
  { concurrency, timeoutMs, mode, partitions, breaker, rate }: ResolvedSettings,
  definition: object | undefined,
): ShownDestination {
  const address = shownAddress(kind, definition);
  const burst = rate?.burst ?? null;
  return { address, concurrency, timeoutMs, mode, partitions, breaker, burst };
}
