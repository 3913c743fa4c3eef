// The calls that are under way, in the order of their start. It is no Set on purpose: one that is added to and
// removed from all the time leaves tables behind, of which each keeps the next; once one of them is old, every call
// since then stays in memory until that is cleaned from the ground up.

import type { Call } from './call.js';

export class UnderWay {
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

  /** One that was added and not yet removed. It keeps nothing of its neighbours. */
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

  /** Those at the beginning for which it is true: what is done to them may change the list. */
  takeWhile(isMeant: (call: Call) => boolean): Call[] {
    const found: Call[] = [];
    for (let call = this.#first; call !== undefined && isMeant(call); call = call.after)
      found.push(call);
    return found;
  }
}
