// Tail: what happened since the last look (enqueued messages, and attempts with how they ended). Events that commit
// late are neither missed nor shown twice, and settling pays nothing for it.
//
// Messages are read in windows between two snapshots, as cursors do (docs/internals/decisions/0011). Attempts carry
// no transaction id, so they are read by the time at which they ended. Each look starts where something may have
// been invisible to the last one: at the time of that look or, while a transaction that writes attempts stays open,
// at the look before it was first seen. Attempts that were counted before are remembered by key while they may be
// read again (docs/internals/decisions/0022).
//
// With a replica, the primary says what is visible, and the replica is read once it has replayed that far. Both then
// give the same result, so each look may read from either (docs/internals/decisions/0024).

import { ConfigurationError } from '../core/errors.js';
import type { Database } from '../database/connection.js';
import type { MessageFilter } from './message-ranges.js';
import type { Replica } from '../features/replicas/replica.js';
import { attemptsQuery, messagesQuery, walkedAtMost } from './tail-queries.js';
import type { FoundAttempts, FoundRow, Keys } from './tail-queries.js';
import type { TailEvent, TailWindow, tailEvents } from './tail-events.js';
import { readPosition } from '../features/replicas/wal-position.js';
import type { Position } from '../features/replicas/wal-position.js';

export type TailFilter = Omit<
  MessageFilter,
  'id' | 'status' | 'dedupeKey' | 'failedFrom' | 'failedTo' | 'from' | 'to' | 'payload'
> & {
  event?: (typeof tailEvents)[number];
  /** Only events at or after this time. */
  since?: Date;
};

/**
 * A safety margin: a few statements run between reading the clock for `ended_at` and locking attempts, and clocks
 * are adjusted.
 */
const marginMs = 2000;
/** How long a transaction that was writing attempts when the tail began may have been writing. */
const openBeforeMs = 60_000;

/** How long a look waits for the replica. */
const replicaWaitMs = 3000;

type Source = { database: Database; replica: Replica | undefined };

/** The place of a look. Times are the server's. */
type Place = {
  /** A snapshot: every message that is visible in it has been shown. */
  seen: string;
  atMs: number;
  /** Transactions that were writing attempts, each with a time before which none of its attempts ended. */
  writers: Map<string, number>;
  /** Attempts that were counted and may be read again. */
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

  /** Begins with events from now on, or since the filter's time. */
  static async start(database: Database, filter: TailFilter, replica?: Replica): Promise<Tail> {
    const { since } = filter;
    const source = { database, replica };
    const now = await lookAround(database);
    if (since !== undefined) {
      // the first look reads everything from there on, so open transactions do not matter
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
      readAttempts(readable, filter, 0, place, beginOf(place)),
    );
    // after it, as in a look: if an attempt is skipped, its message is skipped too
    const { snapshot: seen } = await lookAround(database);
    return new Tail(source, filter, { ...place, seen, counted });
  }

  /** Events since the last look, at most `limit`. A look that fails changes nothing and may be repeated. */
  async look(limit: number): Promise<TailWindow> {
    const { event, errorCode } = this.#filter;
    const before = this.#place;
    // before the attempts are read: those that had ended by now are visible, or their transactions are in the list
    const now = await lookAround(this.#source.database);
    const next = { ...before, atMs: now.atMs, writers: writersOf(before, now) };
    const attempts =
      event === 'enqueued'
        ? undefined
        : await readFrom(this.#source, (readable) =>
            readAttempts(readable, this.#filter, limit, before, beginOf(next)),
          );
    // after the attempts are read, so no attempt is shown before its message
    next.seen = (await lookAround(this.#source.database)).snapshot;
    const messages =
      (event === undefined || event === 'enqueued') && errorCode === undefined
        ? await readFrom(this.#source, (readable) =>
            readMessages(readable, this.#filter, limit, before.seen, next.seen),
          )
        : [];
    if (attempts !== undefined) {
      next.counted = attempts.counted;
      // too many to read again: attempts that these transactions have yet to commit are given up, and `unseen`
      // reports it
      if (attempts.walked > walkedAtMost)
        for (const writer of next.writers.keys()) next.writers.set(writer, now.atMs);
    }
    const found = [...messages, ...(attempts?.rows ?? [])];
    this.#place = next;
    return windowOf(found, limit);
  }
}

/** Reads data at least as new as the primary's at the last call of lookAround. */
async function readFrom<T>(
  { database, replica }: Source,
  work: (database: Database) => Promise<T>,
): Promise<T> {
  if (replica === undefined) return work(database);
  const after: Position = await readPosition(database);
  return (await replica.read(work, { after, maxWaitMs: replicaWaitMs })).answer;
}

/** Where the next look begins: every attempt that the last look could not see yet ended after this time. */
function beginOf({ atMs, writers }: Place): number {
  return Math.min(atMs, ...writers.values()) - marginMs;
}

function writersOf(before: Place, now: Now): Map<string, number> {
  const writers = new Map(
    now.writers.map((writer) => [writer, before.writers.get(writer) ?? before.atMs]),
  );
  // a prepared transaction may have been listed under another name before
  const oldest = Math.min(before.atMs, ...before.writers.values());
  for (const writer of now.prepared) writers.set(writer, before.writers.get(writer) ?? oldest);
  return writers;
}

/**
 * Reads the time first, then the locks: a transaction that ended an attempt before that time and has not committed yet
 * still holds its lock, so it is found.
 */
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
 * A snapshot from before this time, where the first window begins. Messages of transactions that had been open for a
 * minute by then may be missing from the shown history. No later message is missed.
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
    new Date(beginOf(before)),
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

/** By time; events at the same time in the order in which they can have happened. */
function inOrder(a: TailEvent, b: TailEvent): number {
  return (
    a.at.getTime() - b.at.getTime() ||
    Number(a.event !== 'enqueued') - Number(b.event !== 'enqueued') ||
    (a.messageId < b.messageId ? -1 : a.messageId > b.messageId ? 1 : 0) ||
    (a.claimNo ?? 0) - (b.claimNo ?? 0)
  );
}
