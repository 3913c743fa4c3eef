// Dead letters as an operator sees and handles them.

import type { Database } from './connection.js';

export type DeadLetterFilter = {
  destination?: string;
  ids?: readonly string[];
  errorCode?: string;
  topic?: string;
  tenantId?: string;
  /** Dead before this time. */
  before?: Date;
};

export type DeadLetter = {
  messageId: string;
  destination: string;
  topic: string | null;
  tenantId: string | null;
  key: string | null;
  sequence: string | null;
  tries: number;
  reason: string;
  errorCode: string | null;
  remoteCode: string | null;
  errorMessage: string | null;
  createdAt: Date | null;
  deadAt: Date;
};

const filterCall =
  'destination => $1, ids => $2, error_code => $3, topic => $4, tenant_id => $5, dead_before => $6, max_count => $7';

function filterValues(filter: DeadLetterFilter, maxCount: number): unknown[] {
  const { destination, ids, errorCode, topic, tenantId, before } = filter;
  return [destination, ids, errorCode, topic, tenantId, before, maxCount].map(
    (value) => value ?? null,
  );
}

export async function listDeadLetters(
  database: Database,
  filter: DeadLetterFilter,
  limit: number,
): Promise<DeadLetter[]> {
  return database.query<DeadLetter>(
    'list dead letters',
    `SELECT d.message_id AS "messageId", t.name AS destination, d.topic, d.tenant_id AS "tenantId", d.key, d.sequence::text AS sequence, d.tries, d.reason,
            d.error_code AS "errorCode", d.remote_code AS "remoteCode", d.error_message AS "errorMessage",
            d.created_at AS "createdAt", d.dead_at AS "deadAt"
       FROM ${database.schema}.find_dead_letters(${filterCall}) d JOIN ${database.schema}.destinations t ON t.id = d.destination_id`,
    filterValues(filter, limit),
  );
}

/** How many match, and by which time they had died; counting stops at `most`. */
export async function countDeadLetters(
  database: Database,
  filter: DeadLetterFilter,
  most: number,
): Promise<{ count: number; deadBefore: Date }> {
  const before = filter.before ?? (await databaseTime(database));
  const [row] = await database.query<{ count: number }>(
    'count dead letters',
    `SELECT count(*)::int AS count FROM ${database.schema}.find_dead_letters(${filterCall}) d`,
    filterValues({ ...filter, before }, most),
  );
  return { count: row?.count ?? 0, deadBefore: before };
}

export type DeadLetterGroup = {
  destination: string;
  errorCode: string | null;
  count: number;
  oldestAt: Date;
  newestAt: Date;
};

/** By destination and code: leaps through the index from one group to the next, and counts at most 10,000 of each. */
export async function groupDeadLetters(database: Database): Promise<DeadLetterGroup[]> {
  const { schema } = database;
  return database.query<DeadLetterGroup>(
    'group dead letters',
    `WITH RECURSIVE codes AS (
       SELECT t.id AS destination_id, (SELECT x.error_code FROM ${schema}.dead_letters x
                                        WHERE x.destination_id = t.id AND x.error_code IS NOT NULL ORDER BY x.error_code LIMIT 1) AS error_code
         FROM ${schema}.destinations t
       UNION ALL
       SELECT c.destination_id, (SELECT x.error_code FROM ${schema}.dead_letters x
                                  WHERE x.destination_id = c.destination_id AND x.error_code > c.error_code ORDER BY x.error_code LIMIT 1)
         FROM codes c WHERE c.error_code IS NOT NULL),
     groups AS (
       SELECT c.destination_id, c.error_code, g.*
         FROM codes c CROSS JOIN LATERAL (
           SELECT (SELECT count(*)::int FROM (SELECT FROM ${schema}.dead_letters x
                     WHERE x.destination_id = c.destination_id AND x.error_code = c.error_code LIMIT 10000) y) AS count,
                  min(d.dead_at) AS oldest, max(d.dead_at) AS newest
             FROM ${schema}.dead_letters d WHERE d.destination_id = c.destination_id AND d.error_code = c.error_code) g
        WHERE c.error_code IS NOT NULL
       UNION ALL
       SELECT t.id, NULL, g.*
         FROM ${schema}.destinations t CROSS JOIN LATERAL (
           SELECT count(*)::int AS count, min(x.dead_at), max(x.dead_at)
             FROM (SELECT d.dead_at FROM ${schema}.dead_letters d WHERE d.destination_id = t.id AND d.error_code IS NULL LIMIT 10000) x) g
        WHERE g.count > 0)
     SELECT t.name AS destination, g.error_code AS "errorCode", g.count, g.oldest AS "oldestAt", g.newest AS "newestAt"
       FROM groups g JOIN ${schema}.destinations t ON t.id = g.destination_id
      ORDER BY g.count DESC, t.name, g.error_code`,
  );
}

export type DeadLetterAction = 'retry' | 'skip' | 'discard';

export type Progress = {
  /** How many so far. */
  onProgress?: (count: number) => void;
  /** False: enough. */
  goesOn?: () => boolean;
};

/** Retries, skips or discards all that match, in short transactions. */
export async function changeDeadLetters(
  database: Database,
  action: DeadLetterAction,
  filter: DeadLetterFilter,
  actor: string,
  { onProgress, goesOn }: Progress = {},
): Promise<number> {
  const batch = 1000;
  // what dies again while this runs is not taken twice
  const bounded = { ...filter, before: filter.before ?? (await databaseTime(database)) };
  for (let total = 0; ;) {
    const [row] = await database.query<{ count: number }>(
      `${action} dead letters`,
      `SELECT ${database.schema}.${action}_dead_letters(${filterCall}, actor => $8) AS count`,
      [...filterValues(bounded, batch), actor],
    );
    const count = row?.count ?? 0;
    total += count;
    onProgress?.(total);
    if (count < batch || goesOn?.() === false) return total;
  }
}

async function databaseTime(database: Database): Promise<Date> {
  const [row] = await database.query<{ now: Date }>(
    'read the time',
    "SELECT clock_timestamp() + interval '1 ms' AS now",
  );
  return row?.now ?? new Date();
}
