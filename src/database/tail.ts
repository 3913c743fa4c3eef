// What happened since somebody last looked: messages that were enqueued, and attempts with how they ended. What commits
// late is neither missed nor shown twice, and settling pays nothing for it.
//
// Messages are read in windows between two snapshots, as cursors do (docs/decisions/0011). Attempts carry no transaction
// id; they are read by when they ended, from where something may have been invisible at the last look: the time of
// that look or, while a transaction that writes attempts stays open, of the look before it was first seen. What of that
// was counted before is remembered by its key, for as long as it may be read again (docs/decisions/0022).
//
// With a replica, the primary says what may be seen, and the replica is read once it has replayed so far. Both then give
// the same, so that each look may be read from either (docs/decisions/0024).

import { ConfigurationError } from '../errors.js';
import type { Database } from './connection.js';
import type { MessageFilter } from './message-ranges.js';
import type { Replica } from './replica.js';
import { attemptsQuery, messagesQuery, walkedAtMost } from './tail-queries.js';
import type { FoundAttempts, FoundRow, Keys } from './tail-queries.js';
import { readPosition } from './wal-position.js';
import type { Position } from './wal-position.js';

export const tailEvents = [
  'enqueued',
  'delivered',
  'retrying',
  'dead',
  'released',
  'abandoned',
  'discarded',
] as const;

export type TailFilter = Omit<MessageFilter, 'id' | 'status' | 'from' | 'to'> & {
  event?: (typeof tailEvents)[number];
  /** Nothing that happened before. */
  since?: Date;
};

export type TailEvent = {
  event: (typeof tailEvents)[number];
  at: Date;
  messageId: string;
  /** Null for `enqueued`. */
  destination: string | null;
  namespace: string | null;
  topic: string | null;
  tenantId: string | null;
  key: string | null;
  sequence: string | null;
  claimNo: number | null;
  tries: number | null;
  latencyMs: number | null;
  errorCode: string | null;
  remoteCode: string | null;
  error: string | null;
  reference: string | null;
};

export type TailWindow = {
  /** In the order of their times: the newest of the window, if they are too many. */
  events: TailEvent[];
  /** How many more matched. */
  more: number;
  /** The window was larger than a look: so many entries of the log, or more, were not looked at. */
  unseen: boolean;
};

/** Between the reading of the clock for `ended_at` and the lock on attempts lie a few statements; and clocks are set. */
const marginMs = 2000;
/** A transaction that wrote attempts before the tail began may have begun to so long before. */
const openBeforeMs = 60_000;

/** So long a look waits for the replica. */
const replicaPatienceMs = 3000;

type Source = { database: Database; replica: Replica | undefined };

/** Where a look stands. Times are the server's. */
type Place = {
  /** Every message that is visible in it has been shown. */
  seen: string;
  atMs: number;
  /** The transactions that were writing attempts, each with a time before which it had ended nothing. */
  writers: Map<string, number>;
  /** The attempts that were counted and may be read again. */
  counted: Keys;
};

type Now = {
  isStandby: boolean;
  atMs: number;
  snapshot: string;
  writers: string[];
  prepared: string[];
};

const none: Keys = { messageIds: [], destinationIds: [], claimNos: [] };

export class Tail {
  readonly #source: Source;
  readonly #filter: TailFilter;
  #place: Place;

  private constructor(source: Source, filter: TailFilter, place: Place) {
    this.#source = source;
    this.#filter = filter;
    this.#place = place;
  }

  /** Begins with what happens from now on, or with what happened since the filter's time. */
  static async start(database: Database, filter: TailFilter, replica?: Replica): Promise<Tail> {
    const { since } = filter;
    const source = { database, replica };
    const now = await lookAround(database);
    if (since !== undefined) {
      // the first look reads from there on, whatever was open
      const place = {
        seen: await snapshotBefore(database, since),
        atMs: since.getTime() + marginMs,
        writers: new Map<string, number>(),
        counted: none,
      };
      return new Tail(source, filter, place);
    }
    const before = now.atMs - openBeforeMs;
    const writers = new Map([...now.writers, ...now.prepared].map((writer) => [writer, before]));
    const place = { seen: now.snapshot, atMs: now.atMs, writers, counted: none };
    const { counted } = await readFrom(source, (readable) =>
      readAttempts(readable, filter, 0, place, floorOf(place)),
    );
    // after it, as in a look: a message whose attempt is passed over is passed over too
    const { snapshot: seen } = await lookAround(database);
    return new Tail(source, filter, { ...place, seen, counted });
  }

  /** What happened since the last look: at most `limit` events. One that fails changes nothing, and may be repeated. */
  async look(limit: number): Promise<TailWindow> {
    const { event, errorCode } = this.#filter;
    const before = this.#place;
    // before the reading: what had ended by then is visible to it, or its transaction is in the list
    const now = await lookAround(this.#source.database);
    const next = { ...before, atMs: now.atMs, writers: writersOf(before, now) };
    const attempts =
      event === 'enqueued'
        ? undefined
        : await readFrom(this.#source, (readable) =>
            readAttempts(readable, this.#filter, limit, before, floorOf(next)),
          );
    // after it: no attempt is shown before its message
    next.seen = (await lookAround(this.#source.database)).snapshot;
    const messages =
      (event === undefined || event === 'enqueued') && errorCode === undefined
        ? await readFrom(this.#source, (readable) =>
            readMessages(readable, this.#filter, limit, before.seen, next.seen),
          )
        : [];
    if (attempts !== undefined) {
      next.counted = attempts.counted;
      // too many to read again and again: what such transactions have yet to commit is given up, and said
      if (attempts.walked > walkedAtMost)
        for (const writer of next.writers.keys()) next.writers.set(writer, now.atMs);
    }
    const found = [...messages, ...(attempts?.rows ?? [])];
    this.#place = next;
    return windowOf(found, limit);
  }
}

/** Reads what the primary had when it was last looked around there, or more. */
async function readFrom<T>(
  { database, replica }: Source,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  if (replica === undefined) return work(database);
  const after: Position = await readPosition(database);
  return (await replica.read(work, { after, patienceMs: replicaPatienceMs })).answer;
}

/** Whatever was invisible at that look ended after this time. */
function floorOf({ atMs, writers }: Place): number {
  return Math.min(atMs, ...writers.values()) - marginMs;
}

function writersOf(before: Place, now: Now): Map<string, number> {
  const writers = new Map(
    now.writers.map((writer) => [writer, before.writers.get(writer) ?? before.atMs]),
  );
  // one that was prepared may have been in the list by another name
  const oldest = Math.min(before.atMs, ...before.writers.values());
  for (const writer of now.prepared) writers.set(writer, before.writers.get(writer) ?? oldest);
  return writers;
}

/** The time first; every transaction that has ended an attempt by then, and is not visible yet, holds the lock. */
async function lookAround(database: Database): Promise<Now> {
  const { schema } = database;
  const [row] = await database.query<Now>(
    'take a snapshot',
    `SELECT pg_is_in_recovery() AS "isStandby", floor(extract(epoch FROM statement_timestamp()) * 1000)::float8 AS "atMs", pg_current_snapshot()::text AS snapshot,
            coalesce(array_agg(DISTINCT l.virtualtransaction) FILTER (WHERE l.pid IS NOT NULL), '{}') AS writers,
            coalesce(array_agg(DISTINCT l.virtualtransaction) FILTER (WHERE l.virtualtransaction IS NOT NULL AND l.pid IS NULL), '{}') AS prepared
       FROM (VALUES (1)) one LEFT JOIN pg_locks l
         ON l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.relation = $1::text::regclass
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())`,
    [`${schema}.attempts`],
  );
  if (row === undefined) throw new Error('there is no snapshot');
  if (row.isStandby)
    throw new ConfigurationError(
      'the server is a standby, whose snapshots miss running transactions: give the address of the primary, and that of the standby as DATABASE_REPLICA_URL',
    );
  return row;
}

/**
 * A snapshot from before this time, for the first window to begin at. Transactions that had run for a minute by then
 * may be missing from it, and their messages from the history that is shown; none that comes later is.
 */
async function snapshotBefore(database: Database, since: Date): Promise<string> {
  const { schema } = database;
  const [row] = await database.query<{ snapshot: string }>(
    'find where to begin',
    `SELECT format('%1$s:%1$s:', coalesce((
              SELECT m.transaction_id FROM ${schema}.messages m WHERE m.id < ${schema}.id_at($1::timestamptz - interval '1 minute')
               ORDER BY m.id DESC LIMIT 1), '3'::xid8)) AS snapshot`,
    [since],
  );
  return row?.snapshot ?? '3:3:';
}

function readMessages(
  database: Database,
  filter: TailFilter,
  limit: number,
  from: string,
  to: string,
): Promise<FoundRow[]> {
  return database.query<FoundRow>('tail', messagesQuery(database.schema), [
    from,
    to,
    ...filterValues(filter, limit),
  ]);
}

async function readAttempts(
  database: Database,
  filter: TailFilter,
  limit: number,
  before: Place,
  keepFromMs: number,
): Promise<{ rows: FoundRow[]; walked: number; counted: Keys }> {
  const rows = await database.query<FoundAttempts>('tail', attemptsQuery(database.schema), [
    new Date(floorOf(before)),
    new Date(keepFromMs),
    ...filterValues(filter, limit),
    filter.errorCode ?? null,
    filter.event ?? null,
    before.counted.messageIds,
    before.counted.destinationIds,
    before.counted.claimNos,
  ]);
  const { walked = 0, messageIds = [], destinationIds = [], claimNos = [] } = rows[0] ?? {};
  return {
    rows: rows.map(
      ({ messageIds: _ids, destinationIds: _destinations, claimNos: _claims, ...row }) => row,
    ),
    walked,
    counted: { messageIds, destinationIds, claimNos },
  };
}

function filterValues(filter: TailFilter, limit: number): unknown[] {
  const { topic, namespace, tenantId, key, aggregateType, aggregateId, destination, since } =
    filter;
  return [
    limit,
    ...[topic, namespace, tenantId, key, aggregateType, aggregateId, destination, since].map(
      (value) => value ?? null,
    ),
  ];
}

function windowOf(found: readonly FoundRow[], limit: number): TailWindow {
  const sources = [...new Map(found.map((row) => [row.source, row])).values()];
  const events = found
    .flatMap(({ source: _source, matched: _matched, walked: _walked, messageId, ...event }) =>
      messageId === null ? [] : [{ ...event, messageId }],
    )
    .toSorted(inOrder);
  const shown = events.slice(Math.max(events.length - limit, 0));
  return {
    events: shown,
    more: sources.reduce((sum, { matched }) => sum + matched, 0) - shown.length,
    unseen: sources.some(({ walked }) => walked > walkedAtMost),
  };
}

/** By time; of those at the same time, in the order in which they can have happened. */
function inOrder(a: TailEvent, b: TailEvent): number {
  return (
    a.at.getTime() - b.at.getTime() ||
    Number(a.event !== 'enqueued') - Number(b.event !== 'enqueued') ||
    (a.messageId < b.messageId ? -1 : a.messageId > b.messageId ? 1 : 0) ||
    (a.claimNo ?? 0) - (b.claimNo ?? 0)
  );
}
