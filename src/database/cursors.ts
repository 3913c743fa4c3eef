// Cursors, as readers and operators call them; sql/functions/cursors/ has the protocol. Snapshots are opaque text
// here: the database makes and compares them.

import type { ClaimedMessage } from '../core/claimed-message.js';
import { cleanText } from '../core/outcome.js';
import type { Failure } from '../core/outcome.js';
import type { ResolvedRetryPolicy } from '../core/retry-policy.js';
import type { Database } from './connection.js';

export type CursorFilter = { topic: string; namespace?: string; tenantId?: string };
export type CursorStart = 'beginning' | 'now';

/**
 * Defines a subscription: a cursor and a destination outside any configuration file. Returns the destination's id.
 * Unread messages that fewer topics than before leave behind become unrouted.
 */
export async function defineSubscription(
  database: Database,
  name: string,
  from: CursorStart,
  filters: readonly CursorFilter[],
  { maxAttempts, retryBaseMs, retryMaxMs, retryDelaysMs }: ResolvedRetryPolicy,
  partitions = 1,
): Promise<number> {
  const { schema } = database;
  const [row] = await database.query<{ id: number }>(
    'define subscription',
    `SELECT ${schema}.refuse_standby(), ${schema}.define_destination($1, 'subscription', $6, $7, $8, $9) AS id,
            ${schema}.define_cursor($1, $2, $3, $4, $5, $10)`,
    [
      name,
      from,
      ...filterColumns(filters),
      maxAttempts,
      retryBaseMs,
      retryMaxMs,
      retryDelaysMs,
      partitions,
    ],
  );
  await handOverCursors(database);
  return row?.id ?? 0;
}

/** Topics, namespaces and tenants as parallel arrays, one entry for each filter. */
export function filterColumns(filters: readonly CursorFilter[]): (string | null)[][] {
  return [
    filters.map(({ topic }) => topic),
    filters.map(({ namespace }) => namespace ?? null),
    filters.map(({ tenantId }) => tenantId ?? null),
  ];
}

/** Names the lease of one partition: its holder may move the partition until another reader takes it. */
export type LeaseKey = {
  cursor: string;
  /** The first hash of the partition; see sql/functions/cursors/cursor_partitions.sql. */
  hashFrom: number;
  /** The fencing token. */
  fence: string;
};

export type CursorLease = LeaseKey & {
  hashTo: number;
  /** The number of the partition, from 0, and how many there are. */
  partition: number;
  partitions: number;
  seen: string;
  target: string | null;
  position: string | null;
  /** Nothing after this snapshot is read: then the partition has other bounds. */
  until: string | null;
  /** The last reader did not release the lease: batches begin small, and each is recorded before the handler gets it. */
  afterCrash: boolean;
  /** The end of the batch over which readers died, if it is known, and its number of messages. */
  quarantinedUntil: string | null;
  quarantinedCount: number;
  /** The filters of the cursor; a change of them ends the lease. */
  filters: CursorFilter[];
  /** The message at which the last reader has stopped, its tries so far, and the time until the next one. */
  failedMessageId: string | null;
  tries: number;
  retryInMs: number;
};

export type CursorReader = { id: string; name: string; leaseMs: number };

/** Tells that a reader lives. Returns how many partitions can be read, and how many of them it should hold. */
export async function joinCursor(
  database: Database,
  cursor: string,
  { id, leaseMs }: CursorReader,
): Promise<{ partitions: number; share: number }> {
  const [row] = await database.query<{ partitions: number; share: number }>(
    'join cursor',
    `SELECT partitions, share FROM ${database.schema}.join_cursor($1, $2, $3)`,
    [cursor, id, leaseMs],
  );
  return row ?? { partitions: 0, share: 0 };
}

export async function leaveCursor(
  database: Database,
  cursor: string,
  { id }: CursorReader,
): Promise<void> {
  await database.query('leave cursor', `SELECT ${database.schema}.leave_cursor($1, $2)`, [
    cursor,
    id,
  ]);
}

/** How many partitions a drain could still read besides `except`, and another reader that holds one of them. */
export async function partitionsLeft(
  database: Database,
  cursor: string,
  except: readonly number[],
): Promise<{ partitions: number; heldBy: string | null }> {
  const [row] = await database.query<{ partitions: number; heldBy: string | null }>(
    'partitions left',
    `SELECT partitions, held_by AS "heldBy" FROM ${database.schema}.partitions_left($1, $2)`,
    [cursor, except],
  );
  return row ?? { partitions: 0, heldBy: null };
}

/** Null: other readers hold all partitions that are not in `except`, or the destination is paused. */
export async function takeCursor(
  database: Database,
  cursor: string,
  reader: CursorReader,
  except: readonly number[] = [],
): Promise<CursorLease | null> {
  const [row] = await database.query<Omit<CursorLease, 'cursor'>>(
    'take cursor',
    `SELECT fence::text, hash_from AS "hashFrom", hash_to AS "hashTo", partition, partitions, seen, target, position, until,
            after_crash AS "afterCrash", quarantined_until AS "quarantinedUntil", quarantined_count AS "quarantinedCount",
            failed_message_id AS "failedMessageId", tries, retry_in_ms AS "retryInMs",
            (SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('topic', f.topic, 'namespace', f.namespace, 'tenantId', f.tenant_id)))
               FROM unnest(topics, namespaces, tenant_ids) f(topic, namespace, tenant_id)) AS filters
       FROM ${database.schema}.take_cursor($1, $2, $3, $4, $5)`,
    [cursor, reader.id, reader.name, reader.leaseMs, except],
  );
  return row ? { ...row, cursor } : null;
}

/** Records a batch of `count` messages; returns how many readers died over it, or null if the lease was lost. */
export async function noteBatch(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
  until: string,
  count: number,
): Promise<number | null> {
  const [row] = await database.query<{ deaths: number | null }>(
    'note batch',
    `SELECT ${database.schema}.note_batch($1, $2, $3, $4, $5) AS deaths`,
    [cursor, fence, until, count, hashFrom],
  );
  return row?.deaths ?? null;
}

/** Removes the death that was counted for the reader with this lease, which is alive. */
export async function withdrawDeath(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
): Promise<void> {
  await database.query('withdraw death', `SELECT ${database.schema}.withdraw_death($1, $2, $3)`, [
    cursor,
    fence,
    hashFrom,
  ]);
}

export async function extendCursor(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
): Promise<{ held: boolean; paused: boolean }> {
  const [row] = await database.query<{ held: boolean; paused: boolean }>(
    'extend cursor',
    `SELECT held, paused FROM ${database.schema}.extend_cursor($1, $2, $3)`,
    [cursor, fence, hashFrom],
  );
  return row ?? { held: false, paused: false };
}

export async function releaseCursor(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
): Promise<boolean> {
  return yes(database, 'release cursor', 'release_cursor($1, $2, $3)', [cursor, fence, hashFrom]);
}

/** Ends a partition that was read up to `until`; false: the lease was lost. */
export async function endPartition(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
): Promise<boolean> {
  return yes(database, 'end partition', 'end_partition($1, $2, $3)', [cursor, fence, hashFrom]);
}

/** The place of a reader: within a window or, if `target` and `position` are null, between two windows. */
export type CursorPlace = { seen: string; target: string | null; position: string | null };

/** False: the lease was lost, and nothing has moved. */
export async function moveCursor(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
  { seen, target, position }: CursorPlace,
  safe: boolean,
): Promise<boolean> {
  return yes(database, 'move cursor', 'move_cursor($1, $2, $3, $4, $5, $6, $7)', [
    cursor,
    fence,
    seen,
    target,
    position,
    safe,
    hashFrom,
  ]);
}

/** Returns how long to wait before the next try; null: the lease was lost. */
export async function noteFailure(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
  message: ClaimedMessage,
  tries: number,
  failure: Failure,
): Promise<number | null> {
  const [row] = await database.query<{ ms: number | null }>(
    'note failure',
    `SELECT ${database.schema}.note_failure($1, $2, $3, $4, $5, $6, $7) AS ms`,
    [
      cursor,
      fence,
      message.id,
      tries,
      cleanText(failure.code),
      failure.message === undefined ? null : cleanText(failure.message),
      hashFrom,
    ],
  );
  return row?.ms ?? null;
}

/** Pauses the destination, unless it was resumed since the call began; null: the lease was lost. */
export async function pauseCursor(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
  message: ClaimedMessage,
  failure: Failure,
  beganMsAgo: number,
): Promise<boolean | null> {
  const [row] = await database.query<{ paused: boolean | null }>(
    'pause cursor',
    `SELECT ${database.schema}.pause_cursor($1, $2, $3, $4, $5, $6, $7, $8) AS paused`,
    [
      cursor,
      fence,
      message.id,
      cleanText(failure.code),
      failure.remoteCode === undefined ? null : cleanText(failure.remoteCode),
      failure.message === undefined ? null : cleanText(failure.message),
      beganMsAgo,
      hashFrom,
    ],
  );
  return row?.paused ?? null;
}

/** Makes the message a dead letter and moves past it; false: the lease was lost. */
export async function parkMessage(
  database: Database,
  { cursor, fence, hashFrom }: LeaseKey,
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
    'park_message($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)',
    [
      cursor,
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
      hashFrom,
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
  partitions: number;
  behind: number;
  oldestUnreadAt: Date | null;
  /** The readers of its partitions. */
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
    `SELECT name, topics, partitions, behind::int, oldest_unread_at AS "oldestUnreadAt", reader, moved_at AS "movedAt", tries,
            error_code AS "errorCode", error_message AS "errorMessage", problem
       FROM ${database.schema}.cursor_status()`,
  );
}

export type PartitionReport = {
  name: string;
  partition: number;
  /** Read first, and then deleted, because the number of partitions has changed. */
  isOld: boolean;
  behind: number;
  oldestUnreadAt: Date | null;
  reader: string | null;
  movedAt: Date;
  tries: number;
  errorCode: string | null;
};

export async function listPartitions(database: Database): Promise<PartitionReport[]> {
  return database.query<PartitionReport>(
    'list partitions',
    `SELECT name, partition, is_old AS "isOld", behind::int, oldest_unread_at AS "oldestUnreadAt", reader,
            moved_at AS "movedAt", tries, error_code AS "errorCode"
       FROM ${database.schema}.cursor_partitions()`,
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

/**
 * Refused while the cursor has unread messages, unless `force` is set. Unread messages that nothing else wants become
 * unrouted.
 */
export async function deleteCursor(
  database: Database,
  name: string,
  { actor, force }: { actor: string; force: boolean },
): Promise<void> {
  await database.query('delete cursor', `SELECT ${database.schema}.delete_cursor($1, $2, $3)`, [
    name,
    actor,
    force,
  ]);
  await handOverCursors(database);
}

/**
 * Makes deliveries of the messages that closing cursors have not read, and unrouted messages of those that cursors
 * gave up, in short transactions, as far as open transactions allow.
 */
export async function handOverCursors(database: Database): Promise<void> {
  for (let more = true; more;)
    more = await yes(database, 'hand over cursors', 'hand_over_cursors()', []);
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
