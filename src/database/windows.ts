// Windows of the log and their pages, as a reader calls them; what they are is told in sql/functions/cursor_windows.sql.
// First it is planned where pages end, then they are read: so several can be under way at once.

import { ClaimedMessage } from '../model/claimed-message.js';
import type { Database } from './connection.js';
import { filterColumns } from './cursors.js';
import type { CursorFilter, CursorPlace } from './cursors.js';

/** How large a page may be, and how many are planned at once. */
export type PageSize = { limit: number; maxBytes: number; pages: number };

/** Where a page lies; with ids where it is looked up. */
export type PlannedPage = {
  after: string;
  until: string;
  ids: string[] | null;
  messages: number;
  /** Nothing is left of the window behind it. */
  finished: boolean;
};

export type Window = {
  seen: string;
  target: string;
  lowest: string | null;
  /** The first of its pages; none if it is certainly empty. */
  pages: PlannedPage[];
};

type PlannedRow = { [Key in keyof PlannedPage]: PlannedPage[Key] | null };

/** The next window, or the way back into one that was left. */
export async function openWindow(
  database: Database,
  { seen, target, position }: CursorPlace,
  filters: readonly CursorFilter[],
  { limit, maxBytes, pages }: PageSize,
): Promise<Window> {
  const { schema } = database;
  const rows = await database.query<PlannedRow & { target: string; lowest: string | null }>(
    'open window',
    `SELECT w.target::text, w.lowest, p.after, p.until, p.ids, p.messages, p.finished
       FROM ${schema}.open_window($1, $2) w
       LEFT JOIN LATERAL ${schema}.plan_window($1, w.target, $3, w.lowest, $4, $5, $6, $7, $8, $9) p ON w.waiting`,
    [seen, target, position, limit, maxBytes, pages, ...wantedColumns(filters)],
  );
  const [first] = rows;
  if (first === undefined) throw new Error('open_window returned nothing');
  return {
    seen,
    target: first.target,
    lowest: first.lowest,
    pages: rows.filter(({ until }) => until !== null) as PlannedPage[],
  };
}

export async function planWindow(
  database: Database,
  { seen, target, lowest }: Window,
  position: string,
  filters: readonly CursorFilter[],
  { limit, maxBytes, pages }: PageSize,
): Promise<PlannedPage[]> {
  return database.query<PlannedPage>(
    'plan window',
    `SELECT * FROM ${database.schema}.plan_window($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
    [seen, target, position, lowest, limit, maxBytes, pages, ...wantedColumns(filters)],
  );
}

export async function readPage(
  database: Database,
  { seen, target }: Window,
  { after, until, ids }: PlannedPage,
  filters: readonly CursorFilter[],
): Promise<ClaimedMessage[]> {
  const rows = await database.queryTexts(
    'read page',
    `SELECT * FROM ${database.schema}.read_page($1, $2, $3, $4, $5, $6, $7, $8)`,
    [seen, target, after, until, ids, ...wantedColumns(filters)],
  );
  return rows.map((row) => new ClaimedMessage(row));
}

/** Nulls where everything is wanted: then nothing is compared. */
function wantedColumns(filters: readonly CursorFilter[]): ((string | null)[] | null)[] {
  const everything = filters.some(
    ({ topic, namespace, tenantId }) =>
      topic === '*' && namespace === undefined && tenantId === undefined,
  );
  return everything ? [null, null, null] : filterColumns(filters);
}
