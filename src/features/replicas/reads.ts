// Replica reads of the HTTP server: routes that only read are answered by the replica, if there is one, unless they ask
// for the primary; all others by the primary.
//
// A client sees its own changes. Answers of the routes that use the primary carry its WAL position, in a header and,
// for browsers, in a cookie. A later read with this position is answered by a replica that has replayed it, or by the
// primary.

import type { Context } from 'hono';
import { getCookie, setCookie } from 'hono/cookie';

import type { Database } from '../../database/connection.js';
import type { Replica } from './replica.js';
import { parsePosition, positionText, readPosition, unreachable } from './wal-position.js';
import { mayReadReplica } from '../../server/route.js';
import type { Route, Source } from '../../server/route.js';

export type Databases = {
  readonly database: Database;
  readonly replica?: Replica;
  /** The shard, if several share a host: WAL positions of two databases cannot be compared. */
  readonly shard?: string;
};

export const positionHeader = 'waybill-position';
export const positionCookie = 'waybill_position';
/** Response header that says which database answered. */
export const sourceHeader = 'waybill-read-from';
/**
 * A usable replica may lag by `maxReplicaLagMs` at its last check, plus the time since that check, which this covers.
 */
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
      // also after an error: the change may have been made
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

/** Whether the client has changed something a short while ago. */
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

/**
 * A change that was made is never reported as failed: if the position is unknown, reads use the primary for a while.
 */
async function carryPosition(context: Context, databases: Databases): Promise<void> {
  const { database } = databases;
  const position = positionText(await readPosition(database).catch(() => unreachable));
  context.header(positionHeader, position);
  setCookie(context, cookieOf(databases), position, {
    httpOnly: true,
    sameSite: 'Strict',
    path: '/',
    // after this time, every usable replica has replayed the position
    maxAge: Math.ceil((database.options.maxReplicaLagMs + lookMs) / 1000),
  });
}
