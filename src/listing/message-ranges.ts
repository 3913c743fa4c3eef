// Index ranges of a message list. Each range reads a limited number of entries of one index, in its order, so it costs
// the same in a large outbox as in a small one. Leases are few, so their range reads all of them. message-starts.ts
// chooses among the ranges.

import type { PayloadFilter } from './payload-filter.js';
import type { listedStatuses } from './statuses.js';

export type MessageFilter = {
  id?: string;
  /** `failed`: dead or retrying. */
  status?: (typeof listedStatuses)[number];
  destination?: string;
  /** A topic, or `order.*`: every topic that begins with `order.`. */
  topic?: string;
  namespace?: string;
  tenantId?: string;
  key?: string;
  aggregateType?: string;
  aggregateId?: string;
  /** Found while the dedupe key is remembered. */
  dedupeKey?: string;
  errorCode?: string;
  /** A try failed at or after this time; with the status `dead`, it died then. */
  failedFrom?: Date;
  /** A try failed before this time. */
  failedTo?: Date;
  /** Only with the status `dead`: the error code and the code of the other side, such as `http_status 500`. */
  cause?: string;
  /** Created at or after. */
  from?: Date;
  /** Created before. */
  to?: Date;
  /** Values of fields in the payload. */
  payload?: PayloadFilter;
};

/** Whether a topic of a filter stands for several, as in a route: `order.*`. */
export function isPattern(topic: string): boolean {
  return topic.endsWith('.*');
}

/** The condition that a topic fits that of a filter, which is a parameter. */
export function topicFits(topic: string, wanted: string): string {
  return `(${topic} = ${wanted}::text OR ${wanted} = '*' OR (${wanted} LIKE '%.*' AND starts_with(${topic}, left(${wanted}, -1))))`;
}

/** The columns that entries can have beside their ids, by the filters for which they are checked. */
export const entryColumns = {
  topic: 'topic',
  namespace: 'namespace',
  tenantId: 'tenant_id',
  key: 'key',
  aggregateType: 'aggregate_type',
  aggregateId: 'aggregate_id',
} as const;

export type EntryColumn = keyof typeof entryColumns;

/**
 * One index range, read in order. `sql` returns message_id, destination_id, the place, and the columns of `shows`,
 * beginning after a given place.
 */
export type Range = {
  readonly name: string;
  /** The fields of the filter that hold for every entry of the range. */
  readonly keeps: readonly (keyof MessageFilter)[];
  /** The fields of the filter that can be checked on the entry itself. */
  readonly shows: readonly EntryColumn[];
  /** For a table with daily partitions, read backwards: $1 is the end of a span of days, $3 its beginning. */
  readonly daysOf?: 'messages' | 'attempts';
  /** The most entries of a step, if an entry costs more than in other ranges. */
  readonly stepAtMost?: number;
  readonly sql: (outbox: string) => string;
  readonly values: readonly unknown[];
  /** The place before the first entry. */
  readonly start: readonly string[];
};

export const lastId = 'ffffffff-ffff-ffff-ffff-ffffffffffff';
export const firstId = '00000000-0000-0000-0000-000000000000';

/**
 * The order and bounds of a read of the log backwards, from $1 down to $3. The indexes of filters have the slot of the
 * id in place of the id, so the ids of a slot are sorted: the order is that of the ids.
 */
const backwards = (outbox: string, slotted: boolean) => {
  const slot = `${outbox}.id_slot(m.id)`;
  return slotted
    ? {
        bounds: `m.id < $1::uuid AND m.id >= $3::uuid
         AND ${slot} BETWEEN ${outbox}.id_slot($3::uuid) AND ${outbox}.id_slot($1::uuid)`,
        order: `${slot} DESC, m.id DESC`,
      }
    : { bounds: 'm.id < $1::uuid AND m.id >= $3::uuid', order: 'm.id DESC' };
};

const everyColumn = Object.keys(entryColumns) as EntryColumn[];
const columnsOf = (row: string, shows: readonly EntryColumn[]): string =>
  shows.map((name) => `, ${row}.${entryColumns[name]}`).join('');

/** The log, backwards; `condition` null: all of it. */
export function newest(
  name: string,
  condition: string | null,
  values: readonly unknown[],
  keeps: readonly (keyof MessageFilter)[],
): Range {
  return {
    name,
    keeps: ['from', 'to', ...keeps],
    shows: everyColumn,
    daysOf: 'messages',
    sql: (outbox) => {
      const { bounds, order } = backwards(outbox, condition !== null);
      return `
      SELECT m.id AS message_id, NULL::int AS destination_id, ARRAY[m.id::text] AS after${columnsOf('m', everyColumn)}
        FROM ${outbox}.messages m
       WHERE ${bounds} AND ${condition ?? 'true'}
       ORDER BY ${order} LIMIT $2`;
    },
    values,
    start: [lastId],
  };
}

/** A step reads up to this many entries of each topic or code, and merges them. */
const mergedAtMost = 200;

/** The log of all topics with this beginning, such as `order.`, backwards. */
export function newestOfTopics(beginning: string): Range {
  return {
    name: 'topics',
    keeps: ['from', 'to', 'topic'],
    shows: everyColumn,
    daysOf: 'messages',
    stepAtMost: mergedAtMost,
    sql: (outbox) => {
      const { bounds, order } = backwards(outbox, true);
      return `
      SELECT x.id AS message_id, NULL::int AS destination_id, ARRAY[x.id::text] AS after${columnsOf('x', everyColumn)}
        FROM ${outbox}.topics_with($4, $3::uuid, $1::uuid, NULL) t(topic) CROSS JOIN LATERAL (
          SELECT m.id${columnsOf('m', everyColumn)} FROM ${outbox}.messages m
           WHERE m.topic = t.topic AND ${bounds}
           ORDER BY ${order} LIMIT $2) x
       ORDER BY x.id DESC LIMIT $2`;
    },
    values: [beginning],
    start: [lastId],
  };
}

/**
 * The condition for all keys of this name, one for each namespace and tenant. `first` is the number of its first
 * parameter.
 */
function keysNamed(first: number): string {
  return `s.key = $${first} AND s.namespace = coalesce($${first + 1}, s.namespace) AND s.tenant_id = coalesce($${first + 2}, s.tenant_id)`;
}

export function newestOfKey({ key, namespace, tenantId }: MessageFilter): Range {
  return {
    name: 'key',
    keeps: ['from', 'to', 'key', 'namespace', 'tenantId'],
    shows: everyColumn,
    daysOf: 'messages',
    sql: (outbox) => {
      const { bounds, order } = backwards(outbox, true);
      return `
      SELECT x.id AS message_id, NULL::int AS destination_id, ARRAY[x.id::text] AS after${columnsOf('x', everyColumn)}
        FROM ${outbox}.keys s CROSS JOIN LATERAL (
          SELECT m.id${columnsOf('m', everyColumn)} FROM ${outbox}.messages m
           WHERE m.key_id = s.id AND ${bounds}
           ORDER BY ${order} LIMIT $2) x
       WHERE ${keysNamed(4)}
       ORDER BY x.id DESC LIMIT $2`;
    },
    values: [key, namespace ?? null, tenantId ?? null],
    start: [lastId],
  };
}

export function one(id: string): Range {
  return {
    name: 'id',
    keeps: ['id'],
    shows: [],
    sql: () => `
      SELECT x.id AS message_id, NULL::int AS destination_id, ARRAY[x.id::text] AS after
        FROM (VALUES ($3::uuid)) x(id) WHERE x.id < $1::uuid LIMIT $2`,
    values: [id],
    start: [lastId],
  };
}

/**
 * The message with this dedupe key in each namespace, tenant and topic. An entry is one of these, also if the key does not
 * occur there.
 */
export function ofDedupeKey({ dedupeKey, namespace, tenantId }: MessageFilter): Range {
  return {
    name: 'dedupe key',
    keeps: ['dedupeKey', 'namespace', 'tenantId'],
    shows: [],
    stepAtMost: 1000,
    sql: (outbox) => `
      SELECT f.message_id, NULL::int AS destination_id, ARRAY[f.namespace, f.tenant_id, f.topic] AS after
        FROM ${outbox}.find_dedupe_key($5, $6, $7, ARRAY[$1, $2, $3]::text[], $4::int) f`,
    values: [dedupeKey, namespace ?? null, tenantId ?? null],
    start: ['', '', ''],
  };
}

/** An HTTP status is the code of the other side: webhooks record it beside one of these codes. */
const httpStatus = /^[1-5][0-9][0-9]$/;
const codesWithStatus = ['http_status', 'endpoint_gone'];

/** The error codes among which an error code of a filter is found. */
export function codesFor(errorCode: string): string[] {
  return httpStatus.test(errorCode) ? [errorCode, ...codesWithStatus] : [errorCode];
}

/** Whether a failure has this code: as its error code, or as the HTTP status of the answer. */
export function hasCode(
  failure: { errorCode: string | null; remoteCode: string | null },
  code: string,
): boolean {
  if (failure.errorCode === code) return true;
  const [, ...withStatus] = codesFor(code);
  return failure.remoteCode === code && withStatus.includes(failure.errorCode ?? '');
}

/** The same in SQL, for a row with error_code and remote_code. */
export function hasCodeIn(row: string, code: string): string {
  const withStatus = codesWithStatus.map((each) => `'${each}'`).join(', ');
  return `(${row}.error_code = ${code}
           OR (${row}.remote_code = ${code} AND ${code} ~ '${httpStatus.source}' AND ${row}.error_code IN (${withStatus})))`;
}

/** Failed attempts with this code, or with any, backwards. A message that failed twice comes once. */
export function failed(errorCode?: string): Range {
  const isAny = errorCode === undefined;
  return {
    name: isAny ? 'any code' : 'code',
    keeps: ['from', 'to'],
    shows: [],
    daysOf: 'attempts',
    ...(isAny && { stepAtMost: mergedAtMost }),
    sql: (outbox) => `
      SELECT DISTINCT ON (a.message_id) a.message_id, NULL::int AS destination_id, ARRAY[a.message_id::text] AS after
        FROM ${isAny ? `${outbox}.failure_codes($3::uuid, $1::uuid)` : 'unnest($4::text[])'} c(code) CROSS JOIN LATERAL (
          SELECT DISTINCT ON (x.message_id) x.message_id FROM ${outbox}.attempts x
           WHERE x.error_code = c.code AND x.message_id < $1::uuid AND x.message_id >= $3::uuid
           ORDER BY x.message_id DESC LIMIT $2) a
       ORDER BY a.message_id DESC LIMIT $2`,
    values: isAny ? [] : [codesFor(errorCode)],
    start: [lastId],
  };
}

export function unrouted({ from, to }: MessageFilter): Range {
  return {
    name: 'unrouted',
    keeps: ['status', 'from', 'to'],
    shows: [],
    sql: (outbox) => `
      SELECT u.message_id, NULL::int AS destination_id, ARRAY[u.message_id::text] AS after
        FROM ${outbox}.unrouted_messages u
       WHERE u.message_id < $1::uuid
         AND u.message_id >= coalesce(${outbox}.id_at($3), '${firstId}') AND u.message_id < coalesce(${outbox}.id_at($4), '${lastId}')
       ORDER BY u.message_id DESC LIMIT $2`,
    values: [from ?? null, to ?? null],
    start: [lastId],
  };
}

/** The columns of a pending delivery. */
const pendingColumns = ['namespace', 'tenantId'] as const;

/**
 * The next due deliveries of each destination, merged. A message can be due at several destinations at the same
 * time.
 */
function dueRange(
  name: string,
  inner: (outbox: string) => string,
  values: readonly unknown[],
  keeps: readonly (keyof MessageFilter)[] = [],
): Range {
  return {
    name,
    keeps: ['status', 'destination', ...keeps],
    shows: pendingColumns,
    sql: (outbox) => `
      SELECT d.message_id, d.destination_id, ARRAY[d.available_at::text, d.message_id::text, d.destination_id::text] AS after, d.namespace, d.tenant_id
        FROM ${outbox}.searched_destinations('waiting', $5) t(id) CROSS JOIN LATERAL (${inner(outbox)}) d
       ORDER BY d.available_at, d.message_id, d.destination_id LIMIT $4`,
    values,
    start: ['-infinity', firstId, '-1'],
  };
}

/** The first condition is the one that the index can use. */
const behindDue = `(x.available_at, x.message_id) >= ($1::timestamptz, $2::uuid)
         AND (x.available_at, x.message_id, x.destination_id) > ($1::timestamptz, $2::uuid, $3::int)`;

export function queue(destination: string | null): Range {
  return dueRange(
    'queue',
    (outbox) => `
      SELECT x.message_id, x.destination_id, x.available_at, x.namespace, x.tenant_id FROM ${outbox}.deliveries x
       WHERE x.destination_id = t.id AND x.key_id IS NULL AND ${behindDue}
       ORDER BY x.available_at, x.message_id LIMIT $4`,
    [destination],
  );
}

export function queueOfTenant(destination: string | null, tenantId: string): Range {
  return dueRange(
    'queue of tenant',
    (outbox) => `
      SELECT x.message_id, x.destination_id, x.available_at, x.namespace, x.tenant_id FROM ${outbox}.deliveries x
       WHERE x.destination_id = t.id AND x.tenant_id = $6 AND x.key_id IS NULL
         AND ${behindDue}
       ORDER BY x.available_at, x.message_id LIMIT $4`,
    [destination, tenantId],
    ['tenantId'],
  );
}

export function retrying(destination: string | null): Range {
  return dueRange(
    'retrying',
    (outbox) => `
      SELECT x.message_id, x.destination_id, x.available_at, x.namespace, x.tenant_id FROM ${outbox}.deliveries x
       WHERE x.destination_id = t.id AND x.tries > 0 AND x.available_at >= $1::timestamptz
         AND ${behindDue}
       ORDER BY x.available_at, x.message_id LIMIT $4`,
    [destination],
  );
}

/** Messages with a key, in the order of their keys. */
export function lanes(destination: string | null): Range {
  return {
    name: 'lanes',
    keeps: ['status', 'destination'],
    shows: pendingColumns,
    sql: (outbox) => `
      SELECT d.message_id, d.destination_id, ARRAY[d.destination_id::text, d.key_id::text, d.sequence::text] AS after, d.namespace, d.tenant_id
        FROM ${outbox}.searched_destinations('waiting', $5) t(id) CROSS JOIN LATERAL (
          SELECT x.message_id, x.destination_id, x.key_id, x.sequence, x.namespace, x.tenant_id FROM ${outbox}.deliveries x
           WHERE x.destination_id = t.id AND x.key_id IS NOT NULL
             AND (x.destination_id, x.key_id, x.sequence) > ($1::int, $2::bigint, $3::bigint)
           ORDER BY x.destination_id, x.key_id, x.sequence LIMIT $4) d
       WHERE t.id >= $1::int
       ORDER BY d.destination_id, d.key_id, d.sequence LIMIT $4`,
    values: [destination],
    start: ['-1', '-1', '-1'],
  };
}

export function lanesOfKey({ key, namespace, tenantId, destination }: MessageFilter): Range {
  return {
    name: 'lanes of key',
    keeps: ['status', 'destination', 'key', 'namespace', 'tenantId'],
    shows: pendingColumns,
    sql: (outbox) => `
      SELECT d.message_id, d.destination_id, ARRAY[d.destination_id::text, d.key_id::text, d.sequence::text] AS after, d.namespace, d.tenant_id
        FROM ${outbox}.keys s CROSS JOIN ${outbox}.searched_destinations('waiting', $8) t(id) CROSS JOIN LATERAL (
          SELECT x.message_id, x.destination_id, x.key_id, x.sequence, x.namespace, x.tenant_id FROM ${outbox}.deliveries x
           WHERE x.destination_id = t.id AND x.key_id = s.id
             AND (x.destination_id, x.key_id, x.sequence) > ($1::int, $2::bigint, $3::bigint)
           ORDER BY x.destination_id, x.key_id, x.sequence LIMIT $4) d
       WHERE ${keysNamed(5)}
       ORDER BY d.destination_id, d.key_id, d.sequence LIMIT $4`,
    values: [key, namespace ?? null, tenantId ?? null, destination ?? null],
    start: ['-1', '-1', '-1'],
  };
}

/** Not an index range: the number of leased messages is limited by what relays can hold. */
export function leased(destination: string | null): Range {
  return {
    name: 'leased',
    keeps: ['destination'],
    shows: [],
    sql: (outbox) => `
      SELECT u.id AS message_id, l.destination_id, ARRAY[u.id::text, l.destination_id::text] AS after
        FROM ${outbox}.leases l JOIN ${outbox}.destinations t ON t.id = l.destination_id, unnest(l.message_ids) u(id)
       WHERE (u.id, l.destination_id) < ($1::uuid, $2::int) AND t.name = coalesce($4, t.name)
       ORDER BY u.id DESC, l.destination_id DESC LIMIT $3`,
    values: [destination],
    start: [lastId, '2147483647'],
  };
}

/** The cause of a dead letter: the planner inlines it, and finds the index dead_letters_by_cause. */
export function causeOf(outbox: string, letter: string): string {
  return `${outbox}.cause_of(${letter}.error_code, ${letter}.remote_code)`;
}

/** Dead letters by code: the index starts with the destination, so the latest of each are merged. */
export function deadOfCode(errorCode: string, destination: string | null): Range {
  const codes = codesFor(errorCode);
  return {
    name: 'dead of code',
    keeps: ['status', 'destination', ...(codes.length === 1 ? (['errorCode'] as const) : [])],
    shows: [],
    sql: (outbox) => `
        SELECT d.message_id, d.destination_id, ARRAY[d.dead_at::text, d.message_id::text] AS after
          FROM ${outbox}.searched_destinations('dead', $5) t(id) CROSS JOIN unnest($4::text[]) c(code) CROSS JOIN LATERAL (
            SELECT x.message_id, x.destination_id, x.dead_at FROM ${outbox}.dead_letters x
             WHERE x.destination_id = t.id AND x.error_code = c.code AND (x.dead_at, x.message_id) < ($1::timestamptz, $2::uuid)
             ORDER BY x.dead_at DESC, x.message_id DESC LIMIT $3) d
         ORDER BY d.dead_at DESC, d.message_id DESC LIMIT $3`,
    values: [codes, destination],
    start: ['infinity', lastId],
  };
}

/** Dead letters, the latest first; `condition` is on $4, null: all. */
export function dead(
  name: string,
  condition: ((outbox: string) => string) | null,
  value?: string,
  keeps: readonly (keyof MessageFilter)[] = [],
): Range {
  return {
    name,
    keeps: ['status', ...keeps],
    shows: [],
    sql: (outbox) => `
      SELECT d.message_id, d.destination_id, ARRAY[d.dead_at::text, d.message_id::text] AS after
        FROM ${outbox}.dead_letters d
       WHERE (d.dead_at, d.message_id) < ($1::timestamptz, $2::uuid) AND ${condition?.(outbox) ?? 'true'}
       ORDER BY d.dead_at DESC, d.message_id DESC LIMIT $3`,
    values: condition === null ? [] : [value],
    start: ['infinity', lastId],
  };
}

/** Dead letters of all topics with this beginning: the latest of each are merged. */
export function deadOfTopics(beginning: string): Range {
  return {
    name: 'dead of topics',
    keeps: ['status', 'topic'],
    shows: [],
    stepAtMost: mergedAtMost,
    sql: (outbox) => `
      SELECT d.message_id, d.destination_id, ARRAY[d.dead_at::text, d.message_id::text] AS after
        FROM ${outbox}.dead_topics_with($4, NULL) t(topic) CROSS JOIN LATERAL (
          SELECT x.message_id, x.destination_id, x.dead_at FROM ${outbox}.dead_letters x
           WHERE x.topic = t.topic AND (x.dead_at, x.message_id) < ($1::timestamptz, $2::uuid)
           ORDER BY x.dead_at DESC, x.message_id DESC LIMIT $3) d
       ORDER BY d.dead_at DESC, d.message_id DESC LIMIT $3`,
    values: [beginning],
    start: ['infinity', lastId],
  };
}

/** Dead letters that died in this time. */
export function deadOfTime({ failedFrom, failedTo }: MessageFilter): Range {
  const since = failedFrom?.toISOString() ?? '-infinity';
  return {
    ...dead('dead of time', () => 'd.dead_at >= $4::timestamptz', since, [
      'failedFrom',
      'failedTo',
    ]),
    // before the first message of that time, because the read begins after its start
    start: [failedTo?.toISOString() ?? 'infinity', firstId],
  };
}
