// Table of the contract suite: which case was tested on which service.

type Cell = 'proven' | 'failed' | 'does not apply' | 'left out';

export class Table {
  readonly #rows: Map<string, Map<string, Cell>>;
  readonly #notes: string[] = [];
  readonly #services: Map<string, string>;
  #current: { kind: string; name: string } | undefined;

  constructor(kinds: readonly { kind: string; service: string }[]) {
    this.#rows = new Map(kinds.map(({ kind }) => [kind, new Map<string, Cell>()]));
    this.#services = new Map(kinds.map(({ kind, service }) => [kind, service]));
  }

  async record(kind: string, name: string, proof: () => Promise<void>): Promise<void> {
    this.#current = { kind, name };
    this.#set(kind, name, 'failed');
    await proof();
    if (this.#rows.get(kind)?.get(name) === 'failed') this.#set(kind, name, 'proven');
  }

  /** Must be called inside a test. */
  doesNotApply(kind: string, why: string): void {
    const name = this.#current?.name ?? '';
    this.#set(kind, name, 'does not apply');
    this.#notes.push(`${kind}, ${name}: ${why}`);
  }

  leaveOut(kind: string, why: string): void {
    this.#notes.push(`${kind} was left out: ${why}`);
  }

  print(): void {
    const names = [...new Set([...this.#rows.values()].flatMap((row) => [...row.keys()]))];
    const lines = [...this.#rows].map(([kind, row]) => [
      `${kind} (${this.#services.get(kind)})`,
      ...names.map((name) => row.get(name) ?? 'left out'),
    ]);
    const header = ['destination', ...names];
    const widths = header.map((_, column) =>
      Math.max(...[header, ...lines].map((line) => line[column]?.length ?? 0)),
    );
    const shown = [header, ...lines].map((line) =>
      line.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  '),
    );
    console.log(`${[...shown, ...this.#notes].join('\n')}\n`);
  }

  #set(kind: string, name: string, cell: Cell): void {
    this.#rows.get(kind)?.set(name, cell);
  }
}
