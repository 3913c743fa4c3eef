// Output of commands: data on stdout, everything else on stderr, JSON on request, and exit codes that scripts can rely
// on.

import {
  ConfigurationError,
  errorText,
  MessageRefusedError,
  MigrationError,
  RelayTooOldError,
  SchemaOutdatedError,
  WaybillError,
} from '../core/errors.js';
import { visible } from '../core/visible-text.js';
import { connectionFailure } from './connection-failure.js';

export const exitCode = {
  ok: 0,
  error: 1,
  usage: 2,
  notFound: 3,
  refused: 4,
  limitReached: 5,
  breakingChange: 6,
  tampered: 7,
  tooOld: 8,
  wouldChange: 9,
  findings: 10,
} as const;

/** Ends the command with this exit code. */
export class CommandError extends WaybillError {
  readonly exit: number;

  constructor(exit: number, message: string) {
    super('command_failed', message);
    this.exit = exit;
  }
}

// the output has names and answers of other systems, which must not send control characters to the terminal
export function print(text: string): void {
  process.stdout.write(`${visible(text)}\n`);
}

export function note(text: string): void {
  process.stderr.write(`${visible(text)}\n`);
}

export function printJson(value: unknown): void {
  print(JSON.stringify(value));
}

export function printTable(
  rows: readonly Record<string, unknown>[],
  columns: readonly string[],
): void {
  const cell = (value: unknown): string => {
    if (value === null || value === undefined) return '';
    if (value instanceof Date) return value.toISOString();
    if (Array.isArray(value)) return value.join(', ');
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    return visible(text.replaceAll(/\s+/g, ' ').slice(0, 80));
  };
  const lines = [columns, ...rows.map((row) => columns.map((column) => cell(row[column])))];
  const widths = columns.map((_column, index) =>
    Math.max(...lines.map((line) => (line[index] ?? '').length)),
  );
  for (const line of lines)
    print(
      line
        .map((text, index) => text.padEnd(widths[index] ?? 0))
        .join('  ')
        .trimEnd(),
    );
}

/** PostgreSQL's codes for a missing schema, table or function. */
const missingSchemaCodes = new Set(['3F000', '42P01', '42883']);

/** The code of Waybill's SQL functions for an unknown name. */
const notFoundCode = 'P0002';

export function reportFailure(error: unknown, who = 'waybill'): number {
  const failure = connectionFailure(error);
  if (failure !== undefined) {
    note(`${who}: ${failure}`);
    return exitCode.error;
  }
  note(`${who}: ${errorText(error)}`);
  const { detail, hint } = (error ?? {}) as { detail?: string; hint?: string };
  if (detail) note(`  ${detail}`);
  if (hint) note(`  ${hint}`);
  const { code } = (error ?? {}) as { code?: string };
  if (code !== undefined && missingSchemaCodes.has(code)) {
    note('  Is the schema there, and current? Run: npx waybill migrate up');
  }
  if (error instanceof CommandError) return error.exit;
  if (code === notFoundCode) return exitCode.notFound;
  if (error instanceof ConfigurationError || error instanceof MessageRefusedError)
    return exitCode.usage;
  if (error instanceof RelayTooOldError) return exitCode.tooOld;
  if (error instanceof MigrationError || error instanceof SchemaOutdatedError)
    return exitCode.refused;
  return exitCode.error;
}
