// What the command line and the health endpoint show: reading queries only, bounded whatever the size of
// the outbox.

import type { Database } from './connection.js';

export type HealthMetric = {
  metric: string;
  value: number | null;
  description: string;
  /** What is wrong with it and what to do, or null. */
  alarm: string | null;
};

export async function readHealth(database: Database): Promise<HealthMetric[]> {
  return database.query<HealthMetric>(
    'read health',
    `SELECT metric, value::float8 AS value, description, alarm FROM ${database.schema}.health`,
  );
}

export type DestinationReport = {
  name: string;
  kind: string;
  configured: boolean;
  paused: boolean;
  pausedAt: Date | null;
  /** Who paused it, if that is among the last 1,000 actions. */
  pausedBy: string | null;
  maxAttempts: number;
  whenDead: string;
  waiting: number;
  retrying: number;
  processing: number;
  dead: number;
};

/** Counts stop at 100,000 for each destination. */
export async function readDestinations(database: Database): Promise<DestinationReport[]> {
  const { schema } = database;
  return database.query<DestinationReport>(
    'read destinations',
    `SELECT t.name, t.kind, t.configured, t.paused_at IS NOT NULL AS paused, t.paused_at AS "pausedAt",
            CASE WHEN t.paused_at IS NOT NULL THEN (
              SELECT a.actor FROM (SELECT * FROM ${schema}.operator_actions ORDER BY id DESC LIMIT 1000) a
               WHERE a.action = 'pause' AND a.subject ->> 'destination' = t.name ORDER BY a.id DESC LIMIT 1) END AS "pausedBy",
            t.max_attempts AS "maxAttempts", t.when_dead AS "whenDead",
            (SELECT count(*)::int FROM (SELECT FROM ${schema}.deliveries d WHERE d.destination_id = t.id LIMIT 100000) x) AS waiting,
            (SELECT count(*)::int FROM (SELECT FROM ${schema}.deliveries d WHERE d.destination_id = t.id AND d.tries > 0 LIMIT 100000) x) AS retrying,
            (SELECT coalesce(sum(l.remaining), 0)::int FROM ${schema}.leases l WHERE l.destination_id = t.id) AS processing,
            (SELECT count(*)::int FROM (SELECT FROM ${schema}.dead_letters d WHERE d.destination_id = t.id LIMIT 100000) x) AS dead
       FROM ${schema}.destinations t ORDER BY t.name`,
  );
}

export type RelayReport = {
  name: string;
  version: string;
  configuration: string;
  destinations: string[];
  startedAt: Date;
  heartbeatSecondsAgo: number;
  /** Deliveries that it holds now. */
  processing: number;
};

export async function readRelays(database: Database): Promise<RelayReport[]> {
  return database.query<RelayReport>(
    'read relays',
    `SELECT r.name, r.version, r.configuration, r.destinations, r.started_at AS "startedAt",
            round(extract(epoch FROM clock_timestamp() - r.heartbeat_at), 1)::float8 AS "heartbeatSecondsAgo",
            (SELECT coalesce(sum(l.remaining), 0)::int FROM ${database.schema}.leases l WHERE l.relay_id = r.id) AS processing
       FROM ${database.schema}.relays r ORDER BY r.started_at`,
  );
}

/** How long deliveries took from creation to delivery, over the last minute and at most 10,000 of them. */
export async function readDeliveryTimes(
  database: Database,
): Promise<{ p50Ms: number | null; p99Ms: number | null }> {
  const [row] = await database.query<{ p50Ms: number | null; p99Ms: number | null }>(
    'read delivery times',
    `SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY t.ms) AS "p50Ms", percentile_cont(0.99) WITHIN GROUP (ORDER BY t.ms) AS "p99Ms"
       FROM (SELECT extract(epoch FROM a.ended_at - ${database.schema}.id_time(a.message_id)) * 1000 AS ms FROM ${database.schema}.attempts a
              WHERE a.message_id >= ${database.schema}.id_at(clock_timestamp() - interval '1 minute') AND a.state = 'dispatched' AND a.tries = 1
              ORDER BY a.message_id DESC LIMIT 10000) t`,
  );
  return row ?? { p50Ms: null, p99Ms: null };
}
