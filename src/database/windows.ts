// Windows of the log and their pages, as a reader calls them; see sql/functions/cursors/cursor_windows.sql. Pages
// are planned first and read afterwards, so several can be read at the same time.

import { ClaimedMessage } from '../core/claimed-message.js';
import type { Database } from './connection.js';
import { filterColumns } from './cursors.js';
import type { CursorFilter, CursorPlace, LeaseKey } from './cursors.js';

/** The messages that a reader wants. Without hashes, those of all partitions; without `until`, also new ones. */
export type LogPart = {
  filters: readonly CursorFilter[];
  hashFrom?: number;
  hashTo?: number;
  until?: string | null;
};

/** The largest size of a page, and how many pages are planned at once. */
export type PageSize = { limit: number; maxBytes: number; pages: number };

/** The place of a page; `ids` is set if its messages are read by id. */
export type PlannedPage = {
  after: string;
  until: string;
  ids: string[] | null;
  messages: number;
  /** The page is the last of its window. */
  finished: boolean;
};

export type Window = {
  seen: string;
  target: string;
  lowest: string | null;
  /** The window reaches up to now: everything committed before is either read already or in it. */
  isLast: boolean;
  /** The lease was held when the window was opened. */
  held: boolean;
  /** The first pages of the window; empty if the window is certainly empty. */
  pages: PlannedPage[];
};

type PlannedRow = { [Key in keyof PlannedPage]: PlannedPage[Key] | null };

/** Opens the next window, or reopens the one that the cursor is in. */
export async function openWindow(
  database: Database,
  { seen, target, position }: CursorPlace,
  part: LogPart,
  { limit, maxBytes, pages }: PageSize,
  lease?: LeaseKey,
): Promise<Window> {
  const { schema } = database;
  const rows = await database.query<
    PlannedRow & { target: string; lowest: string | null; isLast: boolean; held: boolean }
  >(
    'open window',
    `SELECT w.target::text, w.lowest, w.is_last AS "isLast", p.after, p.until, p.ids, p.messages, p.finished,
            $13::text IS NULL OR ${schema}.holds_cursor($13, $14, $10) AS held
       FROM ${schema}.open_window($1, $2, $12) w
       LEFT JOIN LATERAL ${schema}.plan_window($1, w.target, $3, w.lowest, $4, $5, $6, $7, $8, $9, $10, $11) p ON w.waiting`,
    [
      seen,
      target,
      position,
      limit,
      maxBytes,
      pages,
      ...wantedColumns(part),
      part.until ?? null,
      lease?.cursor,
      lease?.fence,
    ],
  );
  const [first] = rows;
  if (first === undefined) throw new Error('open_window returned nothing');
  return {
    seen,
    target: first.target,
    lowest: first.lowest,
    isLast: first.isLast,
    held: first.held,
    pages: rows.filter(({ until }) => until !== null) as PlannedPage[],
  };
}

export async function planWindow(
  database: Database,
  { seen, target, lowest }: Window,
  position: string,
  part: LogPart,
  { limit, maxBytes, pages }: PageSize,
): Promise<PlannedPage[]> {
  return database.query<PlannedPage>(
    'plan window',
    `SELECT * FROM ${database.schema}.plan_window($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
    [seen, target, position, lowest, limit, maxBytes, pages, ...wantedColumns(part)],
  );
}

export async function readPage(
  database: Database,
  { seen, target }: Window,
  { after, until, ids }: PlannedPage,
  part: LogPart,
): Promise<ClaimedMessage[]> {
  const rows = await database.queryTexts(
    'read page',
    `SELECT * FROM ${database.schema}.read_page($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
    [seen, target, after, until, ids, ...wantedColumns(part)],
  );
  return rows.map((row) => new ClaimedMessage(row));
}

/** The filters, as nulls if one matches everything, so the database compares nothing; and the hashes. */
function wantedColumns({ filters, hashFrom = 0, hashTo = 65_536 }: LogPart): unknown[] {
  const everything = filters.some(
    ({ topic, namespace, tenantId }) =>
      topic === '*' && namespace === undefined && tenantId === undefined,
  );
  return [...(everything ? [null, null, null] : filterColumns(filters)), hashFrom, hashTo];
}
