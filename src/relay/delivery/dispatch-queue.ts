// Dispatch queue: calls that wait to be started. By default first come, first served; with fairness, one call of
// each tenant in turn, so a small tenant does not queue behind a large one.

/** Items before `next` have left and are set to undefined. */
type Line<T> = { items: (T | undefined)[]; next: number };

export class DispatchQueue<T> {
  readonly #lineOf: (item: T) => string;
  /** The first line is served next. */
  readonly #lines = new Map<string, Line<T>>();
  #size = 0;

  /** `lineOf` names the line of an item; lines are served in turn. */
  constructor(lineOf: (item: T) => string = () => '') {
    this.#lineOf = lineOf;
  }

  get size(): number {
    return this.#size;
  }

  push(item: T): void {
    const name = this.#lineOf(item);
    const line = this.#lines.get(name);
    if (line === undefined) this.#lines.set(name, { items: [item], next: 0 });
    else line.items.push(item);
    this.#size += 1;
  }

  /** The item that shift() would return. */
  first(): T | undefined {
    const [line] = this.#lines.values();
    return line?.items[line.next];
  }

  shift(): T | undefined {
    const [entry] = this.#lines;
    if (entry === undefined) return undefined;
    const [name, line] = entry;
    const item = line.items[line.next] as T;
    line.items[line.next] = undefined;
    line.next += 1;
    this.#size -= 1;
    // a line that never empties must not grow for ever
    if (line.next > 1000 && line.next * 2 > line.items.length) {
      line.items.splice(0, line.next);
      line.next = 0;
    }
    if (line.next >= line.items.length) {
      this.#lines.delete(name);
    } else if (this.#lines.size > 1) {
      this.#lines.delete(name);
      this.#lines.set(name, line);
    }
    return item;
  }

  /** Removes and returns, in order, the items for which the function is true. */
  remove(isWanted: (item: T) => boolean): T[] {
    const kept: T[] = [];
    const removed: T[] = [];
    for (const { items, next } of this.#lines.values()) {
      for (const item of items.slice(next) as T[]) (isWanted(item) ? removed : kept).push(item);
    }
    this.#lines.clear();
    this.#size = 0;
    for (const item of kept) this.push(item);
    return removed;
  }
}
