// Reports for the command line and the health endpoint. They only read, and their cost is bounded in an outbox of
// any size.

import type { Database } from '../database/connection.js';
import { endpointsLabel } from '../telemetry/gauges.js';
import type { Gauges } from '../telemetry/gauges.js';
import { appliedId } from '../features/applications/database.js';
import type { BreakerReport } from '../database/definitions.js';

export type HealthMetric = {
  metric: string;
  value: number | null;
  description: string;
  /** What is wrong and what to do; null if nothing is. */
  alarm: string | null;
};

export async function readHealth(database: Database): Promise<HealthMetric[]> {
  return database.query<HealthMetric>(
    'read health',
    `SELECT metric, value::float8 AS value, description, alarm FROM ${database.schema}.read_health()`,
  );
}

export type DestinationReport = {
  name: string;
  kind: string;
  origin: 'file' | 'database';
  configured: boolean;
  /** The applications that define it, or `sql`, with the versions of their living relays and of the last `waybill apply`. */
  owners: { name: string; versions: string[] }[];
  paused: boolean;
  pausedAt: Date | null;
  /** The operator, or the relay that got the answer. */
  pausedBy: string | null;
  /** The code of the answer that paused the destination; null if an operator paused it. */
  pausedCode: string | null;
  pausedReason: string | null;
  /** Circuit breakers of living relays that are not closed. */
  breakers: ({ relay: string } & BreakerReport)[];
  hasBreaker: boolean;
  /** The rate limit over all relays together; null: no limit. */
  ratePerSecond: number | null;
  /** Tries a second, over the last minute. */
  triesPerSecond: number;
  /** Over the last five minutes. */
  deliveredLately: number;
  failedLately: number;
  /** Of the deliveries that ended in the last five minutes, the share that was delivered; null if none ended. */
  deliveryRate: number | null;
  /** Of the tries in the last five minutes, the share that succeeded; null if there were none. */
  successRate: number | null;
  maxAttempts: number;
  whenDead: string;
  waiting: number;
  retrying: number;
  processing: number;
  dead: number;
};

/** All destinations, or those of these names, by name. Counts above 10,000 are estimates, and never below 10,000. */
export async function readDestinations(
  database: Database,
  names?: readonly string[],
): Promise<DestinationReport[]> {
  const { schema } = database;
  return database.query<DestinationReport>(
    'read destinations',
    `SELECT t.name, t.kind, t.origin, t.configured, t.paused_at IS NOT NULL AS paused, t.paused_at AS "pausedAt",
            t.paused_by AS "pausedBy", t.paused_code AS "pausedCode", t.paused_reason AS "pausedReason", t.max_attempts AS "maxAttempts", t.when_dead AS "whenDead",
            (SELECT coalesce(jsonb_agg(jsonb_build_object('name', o.owner, 'versions', ARRAY (
                       SELECT DISTINCT d.version FROM ${schema}.declarations d LEFT JOIN ${schema}.relays r ON r.id = d.relay_id
                        WHERE d.owner = o.owner AND d.version IS NOT NULL
                          AND (d.relay_id = '${appliedId}' OR r.heartbeat_at > clock_timestamp() - interval '1 minute')
                          AND d.definitions -> 'destinations' @> jsonb_build_array(jsonb_build_object('name', t.name))
                        ORDER BY 1)) ORDER BY o.owner), '[]')
               FROM ${schema}.destination_owners o WHERE o.destination_id = t.id AND o.owner <> 'endpoints') AS owners,
            t.has_breaker AS "hasBreaker", t.rate_per_second AS "ratePerSecond", lately.*,
            (SELECT coalesce(jsonb_agg(jsonb_build_object('relay', r.name) || (r.breakers -> t.name) ORDER BY r.name), '[]')
               FROM ${schema}.relays r WHERE r.breakers ? t.name AND r.heartbeat_at > clock_timestamp() - interval '1 minute') AS breakers,
            ${schema}.count_waiting(t.id)::float8 AS waiting, ${schema}.count_retrying(t.id)::float8 AS retrying,
            (SELECT coalesce(sum(l.remaining), 0)::int FROM ${schema}.leases l WHERE l.destination_id = t.id) AS processing,
            ${schema}.count_dead(t.id)::float8 AS dead
       FROM ${schema}.destinations t
       CROSS JOIN LATERAL (
         SELECT coalesce(sum(s.delivered + s.retried + s.died) FILTER (WHERE s.slice >= slices.now - interval '1 minute'), 0)::float8 / 60 AS "triesPerSecond",
                coalesce(sum(s.delivered), 0)::float8 AS "deliveredLately", coalesce(sum(s.retried + s.died), 0)::float8 AS "failedLately",
                (sum(s.delivered) / nullif(sum(s.delivered + s.died), 0))::float8 AS "deliveryRate",
                (sum(s.delivered) / nullif(sum(s.delivered + s.retried + s.died), 0))::float8 AS "successRate"
           FROM (SELECT date_bin('10 seconds', statement_timestamp(), 'epoch') AS now) slices
           LEFT JOIN ${schema}.statistics s ON s.destination_id = t.id AND s.slice < slices.now AND s.slice >= slices.now - interval '5 minutes') lately
      ${names === undefined ? '' : 'WHERE t.name = ANY ($1)'}
      ORDER BY t.name`,
    names === undefined ? [] : [names],
  );
}

export type RelayReport = {
  name: string;
  version: string;
  application: string;
  applicationVersion: string | null;
  configuration: string;
  destinations: string[];
  startedAt: Date;
  heartbeatSecondsAgo: number;
  /** Deliveries that the relay holds now. */
  processing: number;
  /** The leases of these deliveries, and how many of them have expired. */
  leases: number;
  expiredLeases: number;
  /** When the oldest lease was taken. */
  oldestLeaseAt: Date | null;
  /** Present problems of the relay. */
  problems: string[];
};

export async function readRelays(database: Database): Promise<RelayReport[]> {
  return database.query<RelayReport>(
    'read relays',
    `SELECT r.name, r.version, r.application, r.application_version AS "applicationVersion", r.configuration,
            CASE WHEN r.endpoints THEN r.destinations || '(endpoints)'::text ELSE r.destinations END AS destinations, r.started_at AS "startedAt",
            greatest(round(extract(epoch FROM clock_timestamp() - r.heartbeat_at), 1), 0)::float8 AS "heartbeatSecondsAgo",
            r.problems, held.*
       FROM ${database.schema}.relays r CROSS JOIN LATERAL (
         SELECT coalesce(sum(l.remaining), 0)::int AS processing, count(*)::int AS leases, min(l.claimed_at) AS "oldestLeaseAt",
                (count(*) FILTER (WHERE l.expires_at < clock_timestamp()))::int AS "expiredLeases"
           FROM ${database.schema}.leases l WHERE l.relay_id = r.id) held
      ORDER BY r.started_at`,
  );
}

/** How long deliveries took from creation to delivery, over the last minute and at most 10,000 of them. */
export async function readDeliveryTimes(
  database: Database,
): Promise<{ p50Ms: number | null; p99Ms: number | null }> {
  const [row] = await database.query<{ p50Ms: number | null; p99Ms: number | null }>(
    'read delivery times',
    `SELECT p50_ms::float8 AS "p50Ms", p99_ms::float8 AS "p99Ms" FROM ${database.schema}.delivery_times('1 minute')`,
  );
  return row ?? { p50Ms: null, p99Ms: null };
}

/**
 * The gauges of each destination; above 10,000 they are estimates. All endpoints share one label, because there may
 * be thousands of them and the number of labels must stay bounded.
 */
export async function readGauges(database: Database): Promise<Gauges> {
  const { schema } = database;
  const [destinations, [whole]] = await Promise.all([
    database.query<Gauges['destinations'][number]>(
      'read gauges',
      `WITH load AS (
         SELECT x.label, sum(x.pending) AS pending, sum(x.retrying) AS retrying, sum(x.dead) AS dead, sum(x.stuck) AS stuck,
                sum(x.misdated) AS misdated, max(x.oldest_due_seconds) FILTER (WHERE NOT x.paused) AS oldest,
                sum(x.pending) FILTER (WHERE x.paused) AS paused, sum(x.pending) FILTER (WHERE x.breaker_open) AS breaker_open,
                sum(x.pending) FILTER (WHERE NOT x.paused AND x.relays = 0 AND x.oldest_due_seconds > 60) AS unserved
           FROM (SELECT l.*, CASE WHEN l.origin = 'database' THEN $1 ELSE l.name END AS label FROM ${schema}.destination_load l) x
          GROUP BY x.label),
       recent AS (
         SELECT CASE WHEN d.origin = 'database' THEN $1 ELSE d.name END AS label, sum(y.delivered) AS delivered,
                sum(y.retried) AS retried, sum(y.died) AS died
           FROM ${schema}.statistics y JOIN ${schema}.destinations d ON d.id = y.destination_id
          WHERE y.slice >= statement_timestamp() - interval '5 minutes'
          GROUP BY 1),
       labels AS (
         SELECT label FROM load
         UNION
         SELECT $1 WHERE EXISTS (SELECT FROM ${schema}.destinations d WHERE d.origin = 'database' AND d.configured))
       SELECT label AS name, coalesce(pending, 0)::float8 AS pending, coalesce(retrying, 0)::float8 AS retrying, coalesce(dead, 0)::float8 AS dead,
              coalesce(stuck, 0)::float8 AS stuck, coalesce(misdated, 0)::float8 AS misdated, oldest::float8 AS "oldestPendingSeconds",
              coalesce(paused, 0)::float8 AS paused, coalesce(breaker_open, 0)::float8 AS "breakerOpen", coalesce(unserved, 0)::float8 AS unserved,
              (delivered / nullif(delivered + died, 0))::float8 AS "deliveryRate",
              (delivered / nullif(delivered + retried + died, 0))::float8 AS "successRate"
         FROM labels LEFT JOIN load USING (label) LEFT JOIN recent USING (label) ORDER BY label`,
      [endpointsLabel],
    ),
    database.query<Omit<Gauges, 'destinations'>>(
      'read gauges',
      `SELECT (average_ms / 1000)::float8 AS "averageDeliverySeconds", ${schema}.partition_days_ahead()::float8 AS "partitionsAhead",
              ${schema}.count_unrouted()::float8 AS unrouted,
              (SELECT count(*)::float8 FROM ${schema}.stalled_cursors()) AS "stalledCursors"
         FROM ${schema}.delivery_times('5 minutes')`,
    ),
  ]);
  return {
    destinations,
    averageDeliverySeconds: null,
    partitionsAhead: 0,
    unrouted: 0,
    stalledCursors: 0,
    ...whole,
  };
}
