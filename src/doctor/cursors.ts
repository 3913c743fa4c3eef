// Doctor checks of cursors: whether they are valid on this server, and whether they move.

import { counted, duration, failure, listed, ok, warning, waybill } from './check.js';
import type { Check } from './check.js';

type Cursor = {
  name: string;
  /** The name with the number of the partition, if there are several. */
  shown: string;
  behind: number;
  seconds: number;
  reader: string | null;
  tries: number;
  errorCode: string | null;
  problem: string | null;
  paused: boolean;
};

/** One row for each partition, without those that wait until others are read; see cursor_partitions.sql. */
const cursorSql = (schema: string) =>
  `SELECT s.name, CASE WHEN c.partitions > 1 THEN format('partition %s of %s', s.partition, s.name) ELSE s.name END AS shown,
          s.behind::int AS behind, coalesce(extract(epoch FROM clock_timestamp() - s.oldest_unread_at), 0)::float8 AS seconds,
          s.reader, s.tries, s.error_code AS "errorCode", s.problem, d.paused_at IS NOT NULL AS paused
     FROM (SELECT p.*, bool_or(p.is_old) OVER (PARTITION BY p.name, p.partition) AS changes FROM ${schema}.cursor_partitions() p) s
     JOIN ${schema}.cursors c ON c.name = s.name AND c.hash_from = 0 AND c.until IS NULL
     JOIN ${schema}.destinations d ON d.id = c.destination_id
    WHERE s.is_old OR NOT s.changes
    ORDER BY s.name, s.partition`;

const foreignCursors: Check = {
  code: 'cursors_foreign',
  title: "transaction ids are this server's own",
  finds:
    'Error when cursors or messages carry the transaction ids of another server, as after restoring a dump. Such cursors are refused.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
    const rows = await database.query<{ problem: string }>(
      'look for foreign transaction ids',
      `SELECT detail AS problem FROM ${schema}.health_check() WHERE name = 'transaction ids' AND NOT ok`,
    );
    if (rows.length === 0) return ok('true for messages and cursors');
    return failure(
      listed(rows.map(({ problem }) => problem)),
      'This server is a restored dump or a promoted copy. Repair the cursors once, before any reader starts.',
      [waybill(context, 'cursors repair')],
    );
  },
};

const cursorsBehind: Check = {
  code: 'cursors_behind',
  title: 'cursors move',
  finds:
    'Warning for a cursor that has unread messages and no reader, whose next message fails, or whose oldest unread message is more than 5 minutes old.',
  needs: 'schema',
  run: async (context) => {
    const { database, schema } = context;
    const all = await database.query<Cursor>('read cursors', cursorSql(schema));
    const stuck = all.filter(
      ({ behind, reader, tries, seconds, problem }) =>
        problem === null && (tries > 0 || (behind > 0 && (reader === null || seconds > 300))),
    );
    if (stuck.length === 0)
      return ok(all.length === 0 ? 'there are none' : `all ${names(all)} are up to date`);
    const why = (cursor: Cursor) =>
      cursor.paused
        ? 'its destination is paused'
        : cursor.tries > 0
          ? `its next message fails (${cursor.errorCode ?? 'unknown'}, ${counted(cursor.tries, 'try', 'tries')})`
          : cursor.reader === null
            ? 'it has no reader'
            : `${cursor.reader} does not keep up`;
    return warning(
      listed(
        stuck.map(
          (cursor) =>
            `${cursor.shown} is ${counted(cursor.behind, 'message')} behind, the oldest for ${duration(cursor.seconds)}: ${why(cursor)}`,
        ),
      ),
      'Start a relay or a subscription that reads it, or fix the cause of the failure. Delete a cursor that is not needed any more with waybill cursors delete; until then, retention keeps its messages.',
      [
        ...new Set(
          stuck.map(({ name, paused: isPaused, reader }) =>
            isPaused
              ? waybill(context, `destinations resume ${name}`)
              : reader === null
                ? waybill(context, 'start')
                : waybill(context, 'cursors list'),
          ),
        ),
      ],
    );
  },
};

function names(cursors: readonly Cursor[]): number {
  return new Set(cursors.map(({ name }) => name)).size;
}

export const cursorChecks = [foreignCursors, cursorsBehind];
