// Detail of one destination: its report, its address and settings, since when it has failed, and the errors and times of
// its newest tries. Its cost does not grow with the log: tries are a bounded sample.

import type { Database } from '../database/connection.js';
import type { ShownDestination } from '../destinations/shown-destination.js';
import { causeKey, readFirstDeaths } from './first-deaths.js';
import { histogramOf } from './histogram.js';
import type { Histogram } from './histogram.js';
import { readDestinations } from './reports.js';
import type { DestinationReport } from './reports.js';

export type ShownSettings = {
  retryBaseMs: number;
  retryMaxMs: number;
  /** The explicit schedule; null: the delay doubles from the first to the longest. */
  retryDelaysMs: number[] | null;
  fairness: 'none' | 'tenant';
  changedAt: Date;
  /** What the newest declaration says beside it; null if no relay and no `waybill apply` declares it. */
  relay: ShownDestination | null;
};

export type LastError = {
  errorCode: string;
  remoteCode: string | null;
  lastAt: Date;
  lastError: string | null;
  lastMessageId: string;
};

/**
 * Failed tries with the same codes in the sample: the first time, and the last of them. `firstDeadAt`: when the oldest
 * dead letter with these codes died, which may be long before the sample; null if none is known.
 */
export type ErrorCount = LastError & { count: number; firstAt: Date; firstDeadAt: Date | null };

export type DestinationRoute = {
  topic: string;
  namespace: string | null;
  tenantId: string | null;
  owner: string;
};

export type DestinationDetail = DestinationReport & {
  settings: ShownSettings;
  /** At most 100. */
  routes: DestinationRoute[];
  /** The first failed try since the last success, to ten seconds (older ones: to ten minutes); null if the last tries succeeded. */
  failingSince: Date | null;
  /** The oldest slice of its statistics; null if there is none. */
  statisticsFrom: Date | null;
  /** The last failed try of the sample; without one, the newest dead letter. */
  lastError: LastError | null;
  /** A sample of the last tries, of at most `hours` and 1,000 tries. `from`: when the oldest ended; null without tries. */
  sample: { hours: number; tries: number; from: Date | null; errors: ErrorCount[] };
  /** How long single tries took. */
  durations: Histogram;
  /** How long messages took from creation to delivery. */
  deliveryTimes: Histogram;
};

const sampledHours = 24;
const sampledTries = 1000;
const shownRoutes = 100;
const shownError = 300;

/** Null if there is no such destination. */
export async function readDestination(
  database: Database,
  name: string,
): Promise<DestinationDetail | null> {
  const [report] = await readDestinations(database, [name]);
  if (report === undefined) return null;
  const [settings, routes, since, tries, letter] = await Promise.all([
    readSettings(database, name),
    readRoutes(database, name),
    readSince(database, name),
    readTries(database, name),
    readLastLetter(database, name),
  ]);
  const found = errorsOf(tries);
  const deaths = await readFirstDeaths(database, name, found);
  const errors = found.map((each) => ({
    ...each,
    firstDeadAt: deaths.get(causeKey(each)) ?? null,
  }));
  const [newest] = errors.toSorted((one, other) => Number(other.lastAt) - Number(one.lastAt));
  return {
    ...report,
    settings,
    routes,
    ...since,
    lastError: newest ?? letter ?? null,
    sample: {
      hours: sampledHours,
      tries: tries.length,
      from: earliest(tries.map(({ endedAt }) => endedAt)),
      errors,
    },
    durations: histogramOf(tries.map(({ latencyMs }) => latencyMs)),
    deliveryTimes: histogramOf(tries.map(({ deliveryMs }) => deliveryMs)),
  };
}

async function readSettings(database: Database, name: string): Promise<ShownSettings> {
  const { schema } = database;
  const [row] = await database.query<ShownSettings>(
    'read destination',
    `SELECT t.retry_base_ms::float8 AS "retryBaseMs", t.retry_max_ms::float8 AS "retryMaxMs",
            t.retry_delays_ms::float8[] AS "retryDelaysMs", t.fairness, t.changed_at AS "changedAt",
            (SELECT jsonb_path_query_first(d.definitions, '$.destinations[*] ? (@.name == $name).shown', jsonb_build_object('name', t.name))
               FROM ${schema}.declarations d JOIN ${schema}.destination_owners o ON o.owner = d.owner AND o.destination_id = t.id
              WHERE d.definitions -> 'destinations' @> jsonb_build_array(jsonb_build_object('name', t.name))
              ORDER BY d.made_at DESC LIMIT 1) AS relay
       FROM ${schema}.destinations t WHERE t.name = $1`,
    [name],
  );
  if (row === undefined) throw new Error(`the destination ${name} has just been removed`);
  return row;
}

async function readRoutes(database: Database, name: string): Promise<DestinationRoute[]> {
  const { schema } = database;
  return database.query<DestinationRoute>(
    'read routes',
    `SELECT r.topic, r.namespace, r.tenant_id AS "tenantId", r.owner
       FROM ${schema}.routes r WHERE r.destination_id = (SELECT t.id FROM ${schema}.destinations t WHERE t.name = $1)
      ORDER BY r.topic, r.namespace, r.tenant_id, r.owner LIMIT ${shownRoutes}`,
    [name],
  );
}

type Since = Pick<DestinationDetail, 'failingSince' | 'statisticsFrom'>;

/** From the slices of the statistics, which are kept for 31 days. */
async function readSince(database: Database, name: string): Promise<Since> {
  const { schema } = database;
  const [row] = await database.query<Since>(
    'read statistics of a destination',
    `SELECT (SELECT s.slice FROM ${schema}.statistics s
              WHERE s.destination_id = t.id AND s.retried + s.died > 0 AND s.slice > coalesce(
                (SELECT g.slice FROM ${schema}.statistics g WHERE g.destination_id = t.id AND g.delivered > 0
                  ORDER BY g.slice DESC LIMIT 1), '-infinity')
              ORDER BY s.slice LIMIT 1) AS "failingSince",
            (SELECT s.slice FROM ${schema}.statistics s WHERE s.destination_id = t.id ORDER BY s.slice LIMIT 1) AS "statisticsFrom"
       FROM ${schema}.destinations t WHERE t.name = $1`,
    [name],
  );
  return row ?? { failingSince: null, statisticsFrom: null };
}

type Try = {
  messageId: string;
  endedAt: Date;
  latencyMs: number | null;
  /** From creation to delivery; null if it was not delivered. */
  deliveryMs: number | null;
  errorCode: string | null;
  remoteCode: string | null;
  error: string | null;
};

async function readTries(database: Database, name: string): Promise<Try[]> {
  const { schema } = database;
  return database.query<Try>(
    'read recent attempts',
    `SELECT a.message_id AS "messageId", a.ended_at AS "endedAt", a.latency_ms AS "latencyMs", a.error_code AS "errorCode",
            a.remote_code AS "remoteCode", left(a.error_message, ${shownError}) AS error,
            CASE WHEN a.state = 'dispatched'
                 THEN greatest(extract(epoch FROM a.ended_at - ${schema}.id_time(a.message_id)) * 1000, 0)::float8 END AS "deliveryMs"
       FROM ${schema}.destinations t,
            ${schema}.recent_attempts(t.id, interval '${sampledHours} hours', ${sampledTries}) a
      WHERE t.name = $1`,
    [name],
  );
}

/**
 * The newest dead letter of a destination. The destination is written as two bounds, and the order begins with it: only
 * the index by destination fits that. With one condition, the planner also takes the index by age, and looks for this
 * destination among the letters of all others.
 */
async function readLastLetter(database: Database, name: string): Promise<LastError | undefined> {
  const { schema } = database;
  const [row] = await database.query<LastError>(
    'read dead letter',
    `SELECT coalesce(l.error_code, l.reason) AS "errorCode", l.remote_code AS "remoteCode", l.dead_at AS "lastAt",
            left(l.error_message, ${shownError}) AS "lastError", l.message_id AS "lastMessageId"
       FROM ${schema}.destinations t CROSS JOIN LATERAL (
         SELECT x.* FROM ${schema}.dead_letters x
          WHERE x.destination_id >= t.id AND x.destination_id <= t.id
          ORDER BY x.destination_id DESC, x.dead_at DESC, x.message_id DESC LIMIT 1) l
      WHERE t.name = $1`,
    [name],
  );
  return row;
}

/** The most frequent first. */
function errorsOf(tries: readonly Try[]): Omit<ErrorCount, 'firstDeadAt'>[] {
  const found = new Map<string, Omit<ErrorCount, 'firstDeadAt'>>();
  for (const { messageId, endedAt, errorCode, remoteCode, error } of tries) {
    if (errorCode === null) continue;
    const key = causeKey({ errorCode, remoteCode });
    const last = { lastAt: endedAt, lastError: error, lastMessageId: messageId };
    const known = found.get(key);
    if (known === undefined)
      found.set(key, { errorCode, remoteCode, count: 1, firstAt: endedAt, ...last });
    else {
      known.count += 1;
      if (endedAt < known.firstAt) known.firstAt = endedAt;
      if (endedAt > known.lastAt) Object.assign(known, last);
    }
  }
  return [...found.values()].toSorted((one, other) => other.count - one.count);
}

function earliest([first, ...others]: readonly Date[]): Date | null {
  return first === undefined
    ? null
    : others.reduce((one, other) => (other < one ? other : one), first);
}
