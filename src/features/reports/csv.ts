// A report as CSV (RFC 4180). Names come from producers, so a cell that a spreadsheet could take for a formula gets an
// apostrophe in front of it. That includes a formula behind white space or invisible characters, and one that begins
// with a full-width sign. A cell with a semicolon or a tab is quoted, because some spreadsheets split there.

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

/**
 * The name in a table: `(others)` for all others together, `(none)` for messages without a tenant. A name that begins
 * with a bracket or an apostrophe gets an apostrophe in front of it, so that it differs from these.
 */
export function nameOf(name: string | null): string {
  if (name === null) return '(others)';
  if (name === '') return '(none)';
  return /^['(]/.test(name) ? `'${name}` : name;
}

const formulaStart = /^(?:[\s\p{C}]*[=+\-@＝＋－＠]|[\t\r\n])/u;

function cellOf(row: object, column: string): string {
  const value = (row as Record<string, string | number | null>)[column] ?? '';
  if (typeof value === 'number') return String(value);
  const harmless = formulaStart.test(value) ? `'${value}` : value;
  return /[",;\t\r\n]/.test(harmless) ? `"${harmless.replaceAll('"', '""')}"` : harmless;
}
