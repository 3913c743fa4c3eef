// What happened since somebody last looked: messages that were enqueued, and attempts with how they ended. It reads
// in windows between two snapshots, as cursors do (docs/decisions/0011), so that what commits late is neither missed
// nor shown twice; it stores nothing. Each look is two bounded walks of the indexes on transaction ids.

import type { Database } from './connection.js';

export const tailEvents = [
  'enqueued',
  'delivered',
  'retrying',
  'dead',
  'released',
  'abandoned',
  'discarded',
] as const;

export type TailFilter = {
  event?: (typeof tailEvents)[number];
  destination?: string;
  topic?: string;
  namespace?: string;
  tenantId?: string;
  key?: string;
  aggregateType?: string;
  aggregateId?: string;
  errorCode?: string;
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

/** A look walks so many entries of each index. */
const walkedAtMost = 100_000;

/** The snapshot of now: everything visible in it has happened. */
export async function snapshotNow(database: Database): Promise<string> {
  const [row] = await database.query<{ snapshot: string }>(
    'take a snapshot',
    `SELECT pg_current_snapshot()::text AS snapshot FROM ${database.schema}.refuse_standby()`,
  );
  if (row === undefined) throw new Error('there is no snapshot');
  return row.snapshot;
}

/**
 * A snapshot from before this time, for the first window to begin at. Transactions that had run for a minute by then
 * may be missing from it, and their events from the history that is shown; none that comes later is.
 */
export async function snapshotBefore(database: Database, since: Date): Promise<string> {
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

/** What is visible in `target` and was not in `seen`: at most `limit` events. */
export async function readTail(
  database: Database,
  window: { seen: string; target: string },
  filter: TailFilter,
  limit: number,
): Promise<TailWindow> {
  const wantsEnqueued =
    (filter.event === undefined || filter.event === 'enqueued') && filter.errorCode === undefined;
  const wantsAttempts = filter.event !== 'enqueued';
  const values = [
    window.seen,
    window.target,
    limit,
    filter.topic ?? null,
    filter.namespace ?? null,
    filter.tenantId ?? null,
    filter.key ?? null,
    filter.aggregateType ?? null,
    filter.aggregateId ?? null,
    filter.destination ?? null,
    filter.since ?? null,
  ];
  const found = [
    ...(wantsEnqueued
      ? await database.query<Found>('tail', enqueued(database.schema), values)
      : []),
    ...(wantsAttempts
      ? await database.query<Found>('tail', attempted(database.schema), [
          ...values,
          filter.errorCode ?? null,
          filter.event ?? null,
        ])
      : []),
  ];
  const matched = [...new Map(found.map((row) => [row.source, row])).values()];
  const events = found
    .flatMap(({ source: _source, matched: _matched, walked: _walked, ...event }) =>
      event.messageId === null ? [] : [event as TailEvent],
    )
    .toSorted(inOrder);
  const total = matched.reduce((sum, row) => sum + row.matched, 0);
  const shown = events.slice(Math.max(events.length - limit, 0));
  return {
    events: shown,
    more: total - shown.length,
    unseen: matched.some(({ walked }) => walked > walkedAtMost),
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

/** A row without a message says how many there were. */
type Found = Omit<TailEvent, 'messageId'> & {
  messageId: string | null;
  source: 'messages' | 'attempts';
  matched: number;
  walked: number;
};

const walkedColumns = {
  messages:
    'w.id, w.transaction_id, w.created_at, w.sequence, w.namespace, w.topic, w.tenant_id, w.key, w.aggregate_type, w.aggregate_id',
  attempts:
    'w.message_id, w.transaction_id, w.destination_id, w.claim_no, w.tries, w.state, w.ended_at, w.latency_ms, w.error_code, w.remote_code, w.error_message, w.reference',
};

/** The entries of the window, newest transactions first: what began after the old snapshot, and what was running in it. */
function walkOf(outbox: string, table: 'messages' | 'attempts'): string {
  const columns = walkedColumns[table];
  return `
    SELECT x.* FROM (
      (SELECT ${columns} FROM ${outbox}.${table} w
        WHERE w.transaction_id >= pg_snapshot_xmax($1::pg_snapshot) AND w.transaction_id < pg_snapshot_xmax($2::pg_snapshot)
        ORDER BY w.transaction_id DESC LIMIT ${walkedAtMost + 1})
      UNION ALL
      (SELECT ${columns} FROM ${outbox}.${table} w
        WHERE w.transaction_id = ANY (${outbox}.returned_transactions($1::pg_snapshot, $2::pg_snapshot)) LIMIT ${walkedAtMost + 1})) x
     WHERE pg_visible_in_snapshot(x.transaction_id, $2::pg_snapshot)`;
}

const messageFilter = (m: string) => `
  ($4::text IS NULL OR ${m}.topic = $4 OR $4 = '*' OR ($4 LIKE '%.*' AND starts_with(${m}.topic, left($4, -1))))
  AND ($5::text IS NULL OR ${m}.namespace = $5) AND ($6::text IS NULL OR ${m}.tenant_id = $6) AND ($7::text IS NULL OR ${m}.key = $7)
  AND ($8::text IS NULL OR ${m}.aggregate_type = $8) AND ($9::text IS NULL OR ${m}.aggregate_id = $9)`;

/** With a destination, only what goes there: it waits, is held, is dead or has been tried. */
function enqueued(outbox: string): string {
  const destination = `(SELECT t.id FROM ${outbox}.destinations t WHERE t.name = $10)`;
  return `
    WITH w AS MATERIALIZED (${walkOf(outbox, 'messages')}),
    f AS MATERIALIZED (
      SELECT w.* FROM w
       WHERE ($11::timestamptz IS NULL OR w.created_at >= $11) AND ${messageFilter('w')}
         AND ($10::text IS NULL
           OR (SELECT 1 FROM ${outbox}.deliveries d WHERE d.message_id = w.id AND d.destination_id = ${destination} LIMIT 1) IS NOT NULL
           OR (SELECT 1 FROM ${outbox}.attempts a WHERE a.message_id = w.id AND a.destination_id = ${destination} LIMIT 1) IS NOT NULL
           OR (SELECT 1 FROM ${outbox}.dead_letters d WHERE d.message_id = w.id AND d.destination_id = ${destination} LIMIT 1) IS NOT NULL
           OR (SELECT 1 FROM ${outbox}.leases l WHERE l.destination_id = ${destination} AND w.id = ANY (l.message_ids) LIMIT 1) IS NOT NULL))
    SELECT 'messages' AS source, n.matched, n.walked, 'enqueued' AS event, e.created_at AS at, e.id AS "messageId", NULL AS destination,
           e.namespace, e.topic, e.tenant_id AS "tenantId", e.key, e.sequence::text AS sequence, NULL AS "claimNo", NULL AS tries,
           NULL AS "latencyMs", NULL AS "errorCode", NULL AS "remoteCode", NULL AS error, NULL AS reference
      FROM (SELECT (SELECT count(*)::int FROM f) AS matched, (SELECT count(*)::int FROM w) AS walked) n
      LEFT JOIN (SELECT * FROM f ORDER BY f.created_at DESC, f.id DESC LIMIT $3) e ON true`;
}

function attempted(outbox: string): string {
  return `
    WITH w AS MATERIALIZED (${walkOf(outbox, 'attempts')}),
    f AS MATERIALIZED (
      SELECT w.*, t.name AS destination, m.namespace, m.topic, m.tenant_id, m.key, m.sequence,
             CASE w.state WHEN 'dispatched' THEN 'delivered' WHEN 'retryable' THEN 'retrying' WHEN 'failed' THEN 'dead'
                          WHEN 'zombie_requeue' THEN 'abandoned' ELSE w.state::text END AS event
        FROM w JOIN ${outbox}.destinations t ON t.id = w.destination_id
        -- retention may have removed it, or a cursor's parked one have no message
        LEFT JOIN LATERAL (SELECT x.* FROM ${outbox}.messages x WHERE x.id = w.message_id OFFSET 0) m ON true
       WHERE ($10::text IS NULL OR t.name = $10) AND ($11::timestamptz IS NULL OR w.ended_at >= $11)
         AND ($12::text IS NULL OR w.error_code = $12) AND ${messageFilter('m')}),
    e AS MATERIALIZED (SELECT * FROM f WHERE $13::text IS NULL OR f.event = $13)
    SELECT 'attempts' AS source, n.matched, n.walked, s.event, s.ended_at AS at, s.message_id AS "messageId", s.destination,
           s.namespace, s.topic, s.tenant_id AS "tenantId", s.key, s.sequence::text AS sequence, s.claim_no AS "claimNo", s.tries,
           s.latency_ms AS "latencyMs", s.error_code AS "errorCode", s.remote_code AS "remoteCode", left(s.error_message, 300) AS error,
           s.reference
      FROM (SELECT (SELECT count(*)::int FROM e) AS matched, (SELECT count(*)::int FROM w) AS walked) n
      LEFT JOIN (SELECT * FROM e ORDER BY e.ended_at DESC, e.message_id DESC LIMIT $3) s ON true`;
}
