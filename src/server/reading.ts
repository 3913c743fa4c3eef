// Which database answers a request: the replica, if there is one and the route only reads; the primary for all else.
//
// Who has changed something sees it: what the primary answered carries its position in the log, in a header and, for
// browsers, in a cookie. What is read with it comes from a replica that has got there, or from the primary.

import type { Context } from 'hono';
import { getCookie, setCookie } from 'hono/cookie';

import type { Database } from '../database/connection.js';
import type { Replica } from '../database/replica.js';
import {
  parsePosition,
  positionText,
  readPosition,
  unreachable,
} from '../database/wal-position.js';
import { mayReadReplica } from './route.js';
import type { Route, Source } from './route.js';

export type Databases = {
  readonly database: Database;
  readonly replica?: Replica;
  /** One of several that share a host: their positions have nothing to do with each other. */
  readonly shard?: string;
};

export const positionHeader = 'waybill-position';
export const positionCookie = 'waybill_position';
/** Says which of them answered. */
export const sourceHeader = 'waybill-read-from';
/** What a replica that is used is behind at most, it is so at the last look at it. */
const lookMs = 10_000;

export async function answerFrom<T>(
  context: Context,
  databases: Databases,
  route: Pick<Route, 'method' | 'on'>,
  work: (database: Database, source: Source | null) => Promise<T>,
): Promise<T> {
  const { database, replica } = databases;
  if (replica === undefined) return work(database, null);
  if (!mayReadReplica(route)) {
    try {
      return await work(database, sourceOf(replica, 'primary'));
    } finally {
      // also of what failed half-way
      await carryPosition(context, databases);
    }
  }
  const { answer, from } = await replica.read(
    (found, readFrom) => work(found, sourceOf(replica, readFrom)),
    { after: positionOf(context, databases) },
  );
  context.header(sourceHeader, from);
  return answer;
}

function sourceOf(replica: Replica, from: Source['from']): Source {
  const { lagMs, reason } = replica.status;
  return { from, ageMs: from === 'replica' ? lagMs : null, reason };
}

/** Whoever asks has changed something a short while ago. */
export function carriesPosition(context: Context, databases: Databases): boolean {
  return databases.replica !== undefined && positionOf(context, databases) !== undefined;
}

function positionOf(context: Context, databases: Databases): bigint | undefined {
  return parsePosition(
    context.req.header(positionHeader) ?? getCookie(context, cookieOf(databases)),
  );
}

function cookieOf({ shard }: Databases): string {
  return shard === undefined ? positionCookie : `${positionCookie}_${shard}`;
}

/** A change that was made is never reported as failed: without a position, the primary is read for a while. */
async function carryPosition(context: Context, databases: Databases): Promise<void> {
  const { database } = databases;
  const position = positionText(await readPosition(database).catch(() => unreachable));
  context.header(positionHeader, position);
  setCookie(context, cookieOf(databases), position, {
    httpOnly: true,
    sameSite: 'Strict',
    path: '/',
    // a replica that is used later than that has it anyway
    maxAge: Math.ceil((database.options.maxReplicaLagMs + lookMs) / 1000),
  });
}
