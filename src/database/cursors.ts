// Cursors as a reader and an operator call them; the protocol is in sql/functions/cursor*.sql. Snapshots are
// texts here: the database made them, and only the database compares them.

import type { ClaimedMessage } from '../model/claimed-message.js';
import { cleanText } from '../model/outcome.js';
import type { Failure } from '../model/outcome.js';
import type { ResolvedRetryPolicy } from '../model/retry-policy.js';
import type { Database } from './connection.js';

export type CursorFilter = { topic: string; namespace?: string; tenantId?: string };
export type CursorStart = 'beginning' | 'now';

export async function defineCursor(
  database: Database,
  name: string,
  from: CursorStart,
  filters: readonly CursorFilter[],
): Promise<void> {
  await database.query(
    'define cursor',
    `SELECT ${database.schema}.define_cursor($1, $2, $3, $4, $5)`,
    [name, from, ...filterColumns(filters)],
  );
}

/** A cursor with a destination of its own, outside of any configuration file; returns the destination's id. */
export async function defineSubscription(
  database: Database,
  name: string,
  from: CursorStart,
  filters: readonly CursorFilter[],
  { maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs }: ResolvedRetryPolicy,
): Promise<number> {
  const { schema } = database;
  const [row] = await database.query<{ id: number }>(
    'define subscription',
    `SELECT ${schema}.refuse_standby(), ${schema}.define_destination($1, 'subscription', $6, $7, $8, $9) AS id,
            ${schema}.define_cursor($1, $2, $3, $4, $5)`,
    [name, from, ...filterColumns(filters), maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs],
  );
  return row?.id ?? 0;
}

/** Topics, namespaces and tenants, one of each for every filter. */
export function filterColumns(filters: readonly CursorFilter[]): (string | null)[][] {
  return [
    filters.map(({ topic }) => topic),
    filters.map(({ namespace }) => namespace ?? null),
    filters.map(({ tenantId }) => tenantId ?? null),
  ];
}

export type CursorLease = {
  /** Who knows it may move the cursor, until somebody else takes it. */
  fence: string;
  seen: string;
  target: string | null;
  position: string | null;
  /** Readers that died since the cursor last moved. */
  deaths: number;
};

/** Null: somebody else is reading. */
export async function takeCursor(
  database: Database,
  name: string,
  reader: { id: string; name: string; leaseMs: number },
): Promise<CursorLease | null> {
  const [row] = await database.query<CursorLease>(
    'take cursor',
    `SELECT fence::text, seen, target, position, deaths FROM ${database.schema}.take_cursor($1, $2, $3, $4)`,
    [name, reader.id, reader.name, reader.leaseMs],
  );
  return row ?? null;
}

export async function extendCursor(
  database: Database,
  name: string,
  fence: string,
): Promise<{ held: boolean; paused: boolean }> {
  const [row] = await database.query<{ held: boolean; paused: boolean }>(
    'extend cursor',
    `SELECT held, paused FROM ${database.schema}.extend_cursor($1, $2)`,
    [name, fence],
  );
  return row ?? { held: false, paused: false };
}

export async function releaseCursor(
  database: Database,
  name: string,
  fence: string,
): Promise<boolean> {
  return yes(database, 'release cursor', 'release_cursor($1, $2)', [name, fence]);
}

/** Where a reader stands: within a window, or, with the last three null, between two. */
export type CursorPlace = { seen: string; target: string | null; position: string | null };

/** False: the lease was lost, and nothing has moved. */
export async function moveCursor(
  database: Database,
  name: string,
  fence: string,
  { seen, target, position }: CursorPlace,
  safe: boolean,
): Promise<boolean> {
  return yes(database, 'move cursor', 'move_cursor($1, $2, $3, $4, $5, $6)', [
    name,
    fence,
    seen,
    target,
    position,
    safe,
  ]);
}

/** Returns how long to wait before the next try; null: the lease was lost. */
export async function noteFailure(
  database: Database,
  name: string,
  fence: string,
  message: ClaimedMessage,
  tries: number,
  failure: Failure,
): Promise<number | null> {
  const [row] = await database.query<{ ms: number | null }>(
    'note failure',
    `SELECT ${database.schema}.note_failure($1, $2, $3, $4, $5, $6) AS ms`,
    [
      name,
      fence,
      message.id,
      tries,
      cleanText(failure.code),
      failure.message === undefined ? null : cleanText(failure.message),
    ],
  );
  return row?.ms ?? null;
}

/** Pauses the destination, unless it was resumed since the call began; null: the lease was lost. */
export async function pauseCursor(
  database: Database,
  name: string,
  fence: string,
  message: ClaimedMessage,
  failure: Failure,
  beganMsAgo: number,
): Promise<boolean | null> {
  const [row] = await database.query<{ paused: boolean | null }>(
    'pause cursor',
    `SELECT ${database.schema}.pause_cursor($1, $2, $3, $4, $5, $6, $7) AS paused`,
    [
      name,
      fence,
      message.id,
      cleanText(failure.code),
      failure.remoteCode === undefined ? null : cleanText(failure.remoteCode),
      failure.message === undefined ? null : cleanText(failure.message),
      beganMsAgo,
    ],
  );
  return row?.paused ?? null;
}

/** Makes a dead letter and moves past it; false: the lease was lost. */
export async function parkMessage(
  database: Database,
  name: string,
  fence: string,
  { seen, target, position }: CursorPlace,
  message: ClaimedMessage,
  tries: number,
  reason: 'rejected' | 'exhausted',
  failure: Failure,
): Promise<boolean> {
  const clean = (text: string | undefined) => (text === undefined ? null : cleanText(text));
  return yes(
    database,
    'park message',
    'park_message($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)',
    [
      name,
      fence,
      seen,
      target,
      position,
      message.id,
      tries,
      reason,
      clean(failure.code),
      clean(failure.remoteCode),
      clean(failure.message),
    ],
  );
}

async function yes(
  database: Database,
  what: string,
  call: string,
  values: unknown[],
): Promise<boolean> {
  const [row] = await database.query<{ yes: boolean }>(
    what,
    `SELECT ${database.schema}.${call} AS yes`,
    values,
  );
  return row?.yes ?? false;
}

export type CursorReport = {
  name: string;
  topics: string[];
  behind: number;
  oldestUnreadAt: Date | null;
  reader: string | null;
  movedAt: Date;
  tries: number;
  errorCode: string | null;
  errorMessage: string | null;
  problem: string | null;
};

export async function listCursors(database: Database): Promise<CursorReport[]> {
  return database.query<CursorReport>(
    'list cursors',
    `SELECT name, topics, behind::int, oldest_unread_at AS "oldestUnreadAt", reader, moved_at AS "movedAt", tries,
            error_code AS "errorCode", error_message AS "errorMessage", problem
       FROM ${database.schema}.cursor_status()`,
  );
}

export async function resetCursor(
  database: Database,
  name: string,
  start: CursorStart,
  actor: string,
): Promise<void> {
  await database.query('reset cursor', `SELECT ${database.schema}.reset_cursor($1, $2, $3)`, [
    name,
    start,
    actor,
  ]);
}

export async function deleteCursor(database: Database, name: string, actor: string): Promise<void> {
  await database.query('delete cursor', `SELECT ${database.schema}.delete_cursor($1, $2)`, [
    name,
    actor,
  ]);
}

export type CursorRepair = { cursorsRepaired: number; messagesRewritten: number };

export async function repairCursors(
  database: Database,
  overlapMinutes: number,
  actor: string,
): Promise<CursorRepair> {
  const [row] = await database.query<CursorRepair>(
    'repair cursors',
    `SELECT cursors_repaired AS "cursorsRepaired", messages_rewritten::int AS "messagesRewritten"
       FROM ${database.schema}.repair_cursors($1::int * interval '1 minute', $2)`,
    [overlapMinutes, actor],
  );
  return row ?? { cursorsRepaired: 0, messagesRewritten: 0 };
}
