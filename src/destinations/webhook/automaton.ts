// Aho–Corasick automaton: finds several texts in one pass. A step takes at most two lookups on average, however many
// texts there are and however long their common prefixes, so the receiver of a webhook cannot make the search slow.
// Not a regular expression: an alternation backtracks over texts with a common prefix.

/** More than the largest UTF-16 code unit. */
const units = 0x1_00_00;

/** Nodes are numbers; the search begins at 0, the root. */
export class Automaton {
  /** From `node * units + unit` to the next node: one map takes a tenth of the memory of a map per node. */
  readonly #next = new Map<number, number>();
  /** The fallback node if no text continues: that of the longest proper suffix. */
  readonly #fallback = [0];
  readonly #depth = [0];
  readonly #longestEnding = [0];

  constructor(texts: Iterable<string>) {
    const created = [{ parent: 0, unit: 0 }];
    for (const text of texts) {
      let node = 0;
      for (let at = 0; at < text.length; at += 1) {
        const key = node * units + text.charCodeAt(at);
        let next = this.#next.get(key);
        if (next === undefined) {
          next = created.push({ parent: node, unit: text.charCodeAt(at) }) - 1;
          this.#next.set(key, next);
          this.#depth[next] = at + 1;
          this.#longestEnding[next] = 0;
        }
        node = next;
      }
      this.#longestEnding[node] = text.length;
    }
    this.#linkFallbacks(created);
  }

  /** The node after one more code unit. */
  step(from: number, unit: number): number {
    for (let node = from; ; node = this.#fallback[node] ?? 0) {
      const next = this.#next.get(node * units + unit);
      if (next !== undefined) return next;
      if (node === 0) return 0;
    }
  }

  /** The longest prefix of a text, in code units, that ends here. */
  depth(node: number): number {
    return this.#depth[node] ?? 0;
  }

  /** The length of the longest text that ends here, or 0. */
  longestEnding(node: number): number {
    return this.#longestEnding[node] ?? 0;
  }

  /** Breadth-first: a fallback is nearer to the root than its node. */
  #linkFallbacks(created: readonly { parent: number; unit: number }[]): void {
    const nodes = [...created.keys()].toSorted((a, b) => this.depth(a) - this.depth(b));
    for (const node of nodes) {
      const { parent, unit } = created[node] ?? { parent: 0, unit: 0 };
      const isShallow = this.depth(node) < 2;
      const fallback = isShallow ? 0 : this.step(this.#fallback[parent] ?? 0, unit);
      this.#fallback[node] = fallback;
      this.#longestEnding[node] ||= this.longestEnding(fallback);
    }
  }
}
