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

export type Databases = { readonly database: Database; readonly replica?: Replica };

export const positionHeader = 'waybill-position';
export const positionCookie = 'waybill_position';
/** Says which of them answered. */
export const sourceHeader = 'waybill-read-from';
/** What a replica that is used is behind at most, it is so at the last look at it. */
const lookMs = 10_000;

export async function answerFrom<T>(
  context: Context,
  { database, replica }: Databases,
  route: Pick<Route, 'method' | 'on'>,
  work: (database: Database, source: Source | null) => Promise<T>,
): Promise<T> {
  if (replica === undefined) return work(database, null);
  if (!mayReadReplica(route)) {
    const answer = await work(database, sourceOf(replica, 'primary'));
    await carryPosition(context, database);
    return answer;
  }
  const { answer, from } = await replica.read(
    (found, readFrom) => work(found, sourceOf(replica, readFrom)),
    { after: positionOf(context) },
  );
  context.header(sourceHeader, from);
  return answer;
}

function sourceOf(replica: Replica, from: Source['from']): Source {
  const { lagMs, reason } = replica.status;
  return { from, ageMs: from === 'replica' ? lagMs : null, reason };
}

/** Whoever asks has changed something a short while ago. */
export function carriesPosition(context: Context): boolean {
  return positionOf(context) !== undefined;
}

function positionOf(context: Context): bigint | undefined {
  return parsePosition(context.req.header(positionHeader) ?? getCookie(context, positionCookie));
}

/** A change that was made is never reported as failed: without a position, the primary is read for a while. */
async function carryPosition(context: Context, database: Database): Promise<void> {
  const position = positionText(await readPosition(database).catch(() => unreachable));
  context.header(positionHeader, position);
  setCookie(context, positionCookie, position, {
    httpOnly: true,
    sameSite: 'Strict',
    path: '/',
    // a replica that is used later than that has it anyway
    maxAge: Math.ceil((database.options.maxReplicaLagMs + lookMs) / 1000),
  });
}
