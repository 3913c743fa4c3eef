// Compares the chain with heads that were kept outside the database, where a writer of the database cannot change them.
// Two different heads for one seal are a finding.

import type { Finding, FindingKind, Head, Seal } from './chain.js';

export class OutsideHeads {
  readonly #heads = new Map<number, string>();
  readonly #found: Finding[] = [];
  #first = Infinity;
  #last = 0;
  /** The last seal whose head equals the one that was kept outside. */
  provenTo: number | null = null;

  constructor(heads: readonly Head[]) {
    for (const { number, head } of heads) {
      this.#first = Math.min(this.#first, number);
      this.#last = Math.max(this.#last, number);
      const known = this.#heads.get(number);
      if (known === undefined) this.#heads.set(number, head);
      else if (known !== head)
        this.#find('chain broken', number, 'two different heads were exported for it');
    }
  }

  compare({ number, head }: Seal): void {
    const kept = this.#heads.get(number);
    if (kept === head) this.provenTo = number;
    else if (kept !== undefined)
      this.#find('chain broken', number, 'its head is not the one that was exported');
  }

  /**
   * Called after the whole chain was compared. `exported`: the last head that a file has received, by the database's
   * record.
   */
  findings(lastSeal: number, exported: number): Finding[] {
    if (this.#heads.size === 0) return this.#found;
    if (this.#last > lastSeal)
      this.#find(
        'chain broken',
        this.#last,
        `its head was exported, and the chain ends at seal ${lastSeal}`,
      );
    const end = Math.max(this.#last, Math.min(exported, lastSeal));
    for (let number = this.#first; number <= end; number += 1) {
      if (this.#heads.has(number)) continue;
      const from = number;
      while (number < end && !this.#heads.has(number + 1)) number += 1;
      const which = from === number ? `head ${from} is` : `heads ${from} to ${number} are`;
      this.#find('head missing', from, `${which} missing, though exported`);
    }
    return this.#found;
  }

  #find(kind: FindingKind, seal: number, sentence: string): void {
    this.#found.push({ kind, seal, range: null, sentence, rows: [] });
  }
}
