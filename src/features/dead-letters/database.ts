// Dead letters: lists, counts, groups and changes them for operators.

import type { Database } from '../../database/connection.js';
import { databaseTime } from '../../database/time.js';

export type DeadLetterFilter = {
  destination?: string;
  ids?: readonly string[];
  errorCode?: string;
  topic?: string;
  tenantId?: string;
  /** Only letters that died before this time. */
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

/** Counts matching letters that died before the filter's time or now; stops counting at `most`. */
export async function countDeadLetters(
  database: Database,
  filter: DeadLetterFilter,
  most: number,
): Promise<{ count: number; deadBefore: Date }> {
  const before = filter.before ?? (await databaseTime(database));
  const [row] = await database.query<{ count: number }>(
    'count dead letters',
    `SELECT ${database.schema}.count_dead_letters(${filterCall}) AS count`,
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

/** Counts by destination and code. Counts above the bound are estimates and never below the bound. */
export async function groupDeadLetters(
  database: Database,
  countedAtMost = 1000,
): Promise<DeadLetterGroup[]> {
  return database.query<DeadLetterGroup>(
    'group dead letters',
    `SELECT g.destination, g.error_code AS "errorCode", g.count::float8 AS count, g.oldest_at AS "oldestAt", g.newest_at AS "newestAt"
       FROM ${database.schema}.dead_letter_groups($1) g`,
    [countedAtMost],
  );
}

export type DeadLetterAction = 'retry' | 'skip' | 'discard';

/** Retries, skips or discards the dead letters of one message. A change of many is a job: see jobs.ts. */
export async function changeDeadLetter(
  database: Database,
  action: DeadLetterAction,
  { messageId, destination }: { messageId: string; destination?: string | undefined },
  actor: string,
): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    `${action} dead letters`,
    `SELECT ${database.schema}.${action}_dead_letters(destination => $1, ids => $2, actor => $3) AS count`,
    [destination ?? null, [messageId], actor],
  );
  return row?.count ?? 0;
}
