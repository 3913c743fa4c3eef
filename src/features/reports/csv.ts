// A report as CSV (RFC 4180). Names come from producers, so a cell that a spreadsheet would take for a formula begins
// with an apostrophe.

import { columnsOf } from './report.js';
import type { Report } from './report.js';

/** A row for each name, and the total at the end. */
export function csvOf({ by, rows, total }: Report): string {
  const columns = columnsOf[by];
  const lines = [
    columns,
    ...rows.map((row) =>
      columns.map((column) => cellOf({ ...row, name: nameOf(row.name) }, column)),
    ),
    columns.map((column) => cellOf({ ...total, name: '(total)' }, column)),
  ];
  return lines.map((line) => `${line.join(',')}\r\n`).join('');
}

/** A tenant can have any name: one that begins with a bracket or an apostrophe gets an apostrophe in front of it. */
export function nameOf(name: string | null): string {
  if (name === null) return '(others)';
  if (name === '') return '(none)';
  return /^['(]/.test(name) ? `'${name}` : name;
}

function cellOf(row: object, column: string): string {
  const value = (row as Record<string, string | number | null>)[column] ?? '';
  if (typeof value === 'number') return String(value);
  const harmless = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
