// What a check of the doctor is, and what it can say. Each looks at one thing, changes nothing, and answers with
// a verdict: what was found, and what to do about it in words and in lines that can be pasted. Its code is
// stable: scripts decide by it.

import pg from 'pg';

import type { Database } from '../connection.js';

export type CheckState = 'ok' | 'warning' | 'error' | 'skipped';

export type Verdict = {
  state: CheckState;
  found: string;
  /** What to do about it; null where nothing is to do. */
  remedy: string | null;
  /** Commands and SQL statements that do it, to be run one after the other. */
  paste: string[];
};

export type Check = {
  code: string;
  /** What is looked at. */
  title: string;
  /** For the documents: when it says what. */
  finds: string;
  /** Without the schema there is nothing to look at. */
  needs: 'server' | 'schema';
  run(patient: Patient): Promise<Verdict>;
};

/** What is examined, and from when on something is worth a word. */
export type Patient = {
  database: Database;
  /** As it stands in SQL text. */
  schema: string;
  limits: Limits;
  /** This machine's clock. */
  nowMs: () => number;
};

export const defaultLimits = {
  /** A transaction that is open for longer keeps dead rows from being removed. */
  transactionSeconds: 300,
  /** Of all that may connect, so many percent. */
  connectionsPercent: 80,
  /** How many transactions old the oldest row that a standby wants kept may be. */
  feedbackTransactions: 100_000,
  /** Dead rows of a hot table, where they are also more than a fifth of the living. */
  deadRows: 20_000,
  /** Between this machine's clock and the database's. */
  clockSkewMs: 2000,
  /** How long a bell may take to be heard. */
  listenMs: 3000,
};

export type Limits = typeof defaultLimits;

export function ok(found: string): Verdict {
  return { state: 'ok', found, remedy: null, paste: [] };
}

export function skipped(found: string, remedy: string | null = null, paste: string[] = []) {
  return { state: 'skipped', found, remedy, paste } satisfies Verdict;
}

export function warning(found: string, remedy: string, paste: string[] = []): Verdict {
  return { state: 'warning', found, remedy, paste };
}

export function failure(found: string, remedy: string, paste: string[] = []): Verdict {
  return { state: 'error', found, remedy, paste };
}

/** The one row of a query that has always one. */
export async function readRow<Row extends pg.QueryResultRow>(
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

/** A word of a command line, as a shell takes it. */
export function shellWord(text: string): string {
  return /^[\w.@%+=:,/-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** A command of Waybill, with the schema where it is not the usual one. */
export function waybill({ database }: Patient, command: string): string {
  const { schema } = database.options;
  return `waybill ${command}${schema === 'outbox' ? '' : ` --schema ${shellWord(schema)}`}`;
}
