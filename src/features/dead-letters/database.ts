// Dead letters: lists, counts, groups and changes them for operators. A discard can be undone (restoreLetter).

import type { Database } from '../../database/connection.js';
import { databaseTime } from '../../database/time.js';
import { hasCode } from '../../listing/message-ranges.js';

export type DeadLetterFilter = {
  destination?: string;
  ids?: readonly string[];
  /** The destination of each of `ids`; without it, the letters of these messages at all destinations. */
  destinations?: readonly string[];
  errorCode?: string;
  /** Error codes with the code of the other side, such as `http_status 500`. */
  causes?: readonly string[];
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
  'destination => $1, ids => $2, error_code => $3, topic => $4, tenant_id => $5, dead_before => $6, max_count => $7, causes => $8, destinations => $9';

function filterValues(filter: DeadLetterFilter, maxCount: number): unknown[] {
  const { destination, ids, errorCode, topic, tenantId, before, causes, destinations } = filter;
  const values = [destination, ids, errorCode, topic, tenantId, before, maxCount];
  return [...values, causes, destinations].map((value) => value ?? null);
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
  /** The error code and the code of the other side, such as `http_status 500`. */
  cause: string;
  errorCode: string | null;
  remoteCode: string | null;
  count: number;
  /** Whether `count` is exact, and not an estimate. */
  isExact: boolean;
  /** The number of destinations of the counted letters. */
  destinations: number;
  /** The destination with the most of them. */
  destination: string;
  oldestAt: Date;
  newestAt: Date;
  /** The newest letter of the group. */
  sampleId: string;
  sampleError: string | null;
};

export type GroupFilter = Pick<
  DeadLetterFilter,
  'destination' | 'errorCode' | 'topic' | 'tenantId'
>;

/** Groups by cause, largest first, over all destinations. `errorCode` may also be an HTTP status. */
export async function groupDeadLetters(
  database: Database,
  { destination, errorCode, topic, tenantId }: GroupFilter = {},
  countedAtMost = 1000,
): Promise<DeadLetterGroup[]> {
  const groups = await database.query<DeadLetterGroup>(
    'group dead letters',
    `SELECT g.cause, g.error_code AS "errorCode", g.remote_code AS "remoteCode", g.count::float8 AS count, g.is_exact AS "isExact",
            g.destinations::float8 AS destinations, g.worst AS destination, g.oldest_at AS "oldestAt", g.newest_at AS "newestAt",
            g.sample_id AS "sampleId", g.sample_error AS "sampleError"
       FROM ${database.schema}.dead_letter_groups($1, $2, $3, $4) g`,
    [...[destination, topic, tenantId].map((value) => value ?? null), countedAtMost],
  );
  return errorCode === undefined ? groups : groups.filter((group) => hasCode(group, errorCode));
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

/** Undoes the discard of the dead letters of one message; returns how many are dead letters again. */
export async function restoreLetter(
  database: Database,
  { messageId, destination }: { messageId: string; destination?: string | undefined },
  actor: string,
): Promise<number> {
  const [row] = await database.query<{ count: number }>(
    'restore dead letters',
    `SELECT ${database.schema}.restore_dead_letters(ids => $1, destination => $2, actor => $3) AS count`,
    [[messageId], destination ?? null, actor],
  );
  return row?.count ?? 0;
}

/** The destinations at which a discarded dead letter of the message can be restored: nothing was sent there since. */
export async function restorableAt(database: Database, messageId: string): Promise<string[]> {
  const { schema } = database;
  const rows = await database.query<{ name: string }>(
    'look for restorable dead letters',
    `SELECT t.name FROM ${schema}.discarded_letters d JOIN ${schema}.destinations t ON t.id = d.destination_id
      WHERE d.message_id = $1 AND NOT EXISTS (
        SELECT FROM ${schema}.attempts a
         WHERE a.message_id = $1 AND a.destination_id = d.destination_id AND a.claim_no > d.claim_no)`,
    [messageId],
  );
  return rows.map(({ name }) => name);
}
