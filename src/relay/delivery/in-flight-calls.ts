// In-flight calls: a linked list in the order of their start. Not a `Set`: V8 rehashes a busy Set into a chain of
// old tables. Once one of them is in the old generation, it keeps every later call reachable until a full garbage
// collection.

import type { Call } from './call.js';

export class InFlightCalls {
  /** Calls that have timed out but not returned. They are not in the list. */
  overdue = 0;
  #first: Call | undefined;
  #last: Call | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  get first(): Call | undefined {
    return this.#first;
  }

  add(call: Call): void {
    call.before = this.#last;
    if (this.#last === undefined) this.#first = call;
    else this.#last.after = call;
    this.#last = call;
    this.#size += 1;
  }

  /** The call must be in the list. It keeps no reference to its neighbours. */
  remove(call: Call): void {
    const { before, after } = call;
    if (before === undefined) this.#first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    call.before = undefined;
    call.after = undefined;
    this.#size -= 1;
  }

  /** The first calls for which the function is true, as an array: the caller may change the list. */
  takeWhile(isMeant: (call: Call) => boolean): Call[] {
    const found: Call[] = [];
    for (let call = this.#first; call !== undefined && isMeant(call); call = call.after)
      found.push(call);
    return found;
  }
}
