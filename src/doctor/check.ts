// Checks of `waybill doctor`: their type and their results. Each check looks at one thing and changes nothing. Its
// result says what was found and what to do, in words and in lines to paste. Its code is stable, for scripts.

import pg from 'pg';

import type { Database } from '../database/connection.js';

export type CheckState = 'ok' | 'warning' | 'error' | 'skipped';

export type CheckResult = {
  state: CheckState;
  found: string;
  /** What to do about it; null if there is nothing to do. */
  remedy: string | null;
  /** Commands and SQL statements that do it, to run one after the other. */
  paste: string[];
};

export type Check = {
  code: string;
  /** What is checked, as a statement that should be true. */
  title: string;
  /** For the documents: which findings the check reports. */
  finds: string;
  /** `schema`: the check is skipped if there is no schema. */
  needs: 'server' | 'schema';
  run(context: CheckContext): Promise<CheckResult>;
};

/** The database to examine, and the limits above which something is reported. */
export type CheckContext = {
  database: Database;
  /** Quoted for SQL text. */
  schema: string;
  limits: Limits;
  /** This machine's clock. */
  nowMs: () => number;
};

export const defaultLimits = {
  /** A transaction that is open for longer keeps dead rows from being removed. */
  transactionSeconds: 300,
  /** Used connections, in percent of the allowed ones. */
  connectionsPercent: 80,
  /** The age in transactions of the oldest row that a standby may hold back. */
  feedbackTransactions: 100_000,
  /** Dead rows of a hot table, if they are also more than a fifth of its living rows. */
  deadRows: 20_000,
  /** The difference between this machine's clock and the database's. */
  clockSkewMs: 2000,
  /** How long a notification may take to arrive. */
  listenMs: 3000,
};

export type Limits = typeof defaultLimits;

export function ok(found: string): CheckResult {
  return { state: 'ok', found, remedy: null, paste: [] };
}

export function skipped(found: string, remedy: string | null = null, paste: string[] = []) {
  return { state: 'skipped', found, remedy, paste } satisfies CheckResult;
}

export function warning(found: string, remedy: string, paste: string[] = []): CheckResult {
  return { state: 'warning', found, remedy, paste };
}

export function failure(found: string, remedy: string, paste: string[] = []): CheckResult {
  return { state: 'error', found, remedy, paste };
}

/** The row of a query that always returns one. */
export async function readRow<Row extends object>(
  database: Database,
  what: string,
  sql: string,
  values: unknown[] = [],
): Promise<Row> {
  const [row] = await database.query<Row>(what, sql, values);
  if (row === undefined) throw new Error(`${what}: the database gave no answer`);
  return row;
}

/** The first few, and how many more there are. */
export function listed(items: readonly string[], shown = 5): string {
  const rest = items.length - shown;
  return items.slice(0, shown).join('; ') + (rest > 0 ? `; and ${rest} more` : '');
}

export function counted(count: number, one: string, many = `${one}s`): string {
  return `${count} ${count === 1 ? one : many}`;
}

/** 90 → "1 min 30 s" */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const units: [string, number][] = [
    ['d', 86_400],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ];
  const parts = units.flatMap(([unit, size], index) => {
    const above = units[index - 1]?.[1] ?? Number.POSITIVE_INFINITY;
    const count = Math.floor((whole % above) / size);
    return count > 0 ? [`${count} ${unit}`] : [];
  });
  return parts.slice(0, 2).join(' ') || '0 s';
}

export function literal(text: string): string {
  return pg.escapeLiteral(text);
}

/** Quotes a word for a shell. */
export function shellWord(text: string): string {
  return /^[\w.@%+=:,/-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** A waybill command, with --schema unless it is the default schema. */
export function waybill({ database }: CheckContext, command: string): string {
  const { schema } = database.options;
  return `waybill ${command}${schema === 'outbox' ? '' : ` --schema ${shellWord(schema)}`}`;
}
