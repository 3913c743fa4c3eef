// Parts of a bench's report: tables, settings, the machine, and the aims with whether they were met. run.ts puts them
// together and prints the JSON.

import os from 'node:os';

import type { BenchServer } from './server.js';

export type Aim = { what: string; atLeast?: number; atMost?: number; actual: number };

export type BenchResult = {
  waybill: unknown;
  peers: Record<string, unknown>;
  /** What to compare `waybill` with: the best case, such as a bare cursor read, or Waybill without the tested load. */
  limit: unknown;
  ratioToBestPeer: number | null;
  ratioToLimit: number | null;
  aims: Aim[];
} & Record<string, unknown>;

/** Writes to stderr, so stdout holds only the result. */
export function progress(text: string): void {
  process.stderr.write(`${text}\n`);
}

export function printTable(
  columns: readonly string[],
  rows: readonly (readonly (string | number)[])[],
): void {
  const cells = [columns, ...rows].map((row) =>
    row.map((cell) => (typeof cell === 'number' ? shown(cell) : cell)),
  );
  const widths = columns.map((_, index) =>
    Math.max(...cells.map((row) => (row[index] ?? '').length)),
  );
  for (const row of cells) {
    const line = row.map((cell, index) =>
      index === 0 ? cell.padEnd(widths[index] ?? 0) : cell.padStart(widths[index] ?? 0),
    );
    process.stdout.write(`${line.join('  ').trimEnd()}\n`);
  }
  process.stdout.write('\n');
}

/** Whole numbers and those from 100 on without decimals, from 10 on with one, below 10 with two. */
export function shown(value: number): string {
  if (!Number.isFinite(value)) return '-';
  const digits =
    Number.isInteger(value) || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return value.toLocaleString('en-US', {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

export function printSettings(title: string, settings: Record<string, unknown>): void {
  const text = Object.entries(settings).map(
    ([key, value]) => `${key}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  process.stdout.write(`${title}: ${text.join(', ')}\n`);
}

export function describeMachine(server: BenchServer, node: string): Record<string, string> {
  return {
    cpu: `${os.cpus()[0]?.model.trim() ?? 'unknown'} x ${os.cpus().length}`,
    memory: `${Math.round(os.totalmem() / 2 ** 30)} GiB`,
    system: `${os.type()} ${os.release()}`,
    load: os
      .loadavg()
      .map((load) => load.toFixed(2))
      .join(' '),
    postgres: server.version,
    node,
    commit: `${server.commitMs.toFixed(2)} ms`,
  };
}

export function isMet({ atLeast, atMost, actual }: Aim): boolean {
  return (atLeast === undefined || actual >= atLeast) && (atMost === undefined || actual <= atMost);
}

export function printAims(aims: readonly Aim[]): void {
  if (aims.length === 0) return;
  printTable(
    ['aim', 'wanted', 'measured', ''],
    aims.map((aim) => [
      aim.what,
      aim.atLeast === undefined ? `at most ${aim.atMost}` : `at least ${aim.atLeast}`,
      shown(aim.actual),
      isMet(aim) ? 'met' : 'MISSED',
    ]),
  );
}
