// Candidates of a message list: reads a bounded number of index entries and leaves out those that a quick lookup
// rules out. The caller checks the remaining ones in full.

import type { Database } from '../database/connection.js';
import type { DaySpan } from './message-days.js';
import { causeOf, entryColumns, hasCodeIn, topicFits } from './message-ranges.js';
import type { EntryColumn, MessageFilter, Range } from './message-ranges.js';

export type Candidate = {
  messageId: string;
  /** Null: the message at all of its destinations. */
  destinationId: number | null;
  /** The columns of the entry's place in the index. */
  after: string[];
  /** The number of the entry in this read, from 1. */
  position: number;
};

export type Candidates = {
  found: Candidate[];
  /** How many entries were read. */
  searched: number;
  /** The place of the last entry. */
  last: string[] | null;
};

export async function findCandidates(
  database: Database,
  filter: MessageFilter,
  range: Range,
  /** The place after which the read begins; for a range by days, the span of days. */
  place: readonly string[] | DaySpan | null,
  count: number,
): Promise<Candidates> {
  const begins =
    place !== null && 'days' in place
      ? [place.to, count, place.from]
      : [...(place ?? range.start), count];
  const values: unknown[] = [...begins, ...range.values];
  const conditions = conditionsOf(database.schema, filter, range, (value) => {
    values.push(value);
    return `$${values.length}`;
  });
  const rows = await database.query<Candidate & { fits: boolean }>(
    'list messages',
    `WITH entries AS MATERIALIZED (
       SELECT r.*, row_number() OVER ()::int AS position
         FROM (${range.sql(database.schema)}) r)
     SELECT e.message_id AS "messageId", e.destination_id AS "destinationId", e.after, e.position, c.fits
       FROM entries e
       CROSS JOIN LATERAL (SELECT coalesce(${conditions.join(' AND ') || 'true'}, false) AS fits OFFSET 0) c
      WHERE c.fits OR e.position = (SELECT max(x.position) FROM entries x)
      ORDER BY e.position`,
    values,
  );
  const last = rows.at(-1);
  return {
    found: await leaveOut(
      database,
      filter,
      range,
      rows.filter(({ fits }) => fits),
    ),
    searched: last?.position ?? 0,
    last: last?.after ?? null,
  };
}

/** The fields of a message that the filter names and the range does not keep. */
function wantedOf(filter: MessageFilter, { keeps }: Range): [EntryColumn, string][] {
  return (Object.keys(entryColumns) as EntryColumn[]).flatMap((name) => {
    const wanted = filter[name];
    return wanted === undefined || keeps.includes(name) ? [] : [[name, wanted]];
  });
}

/** The condition that this column of a row has the wanted value. */
function conditionOf(row: string, name: EntryColumn, wanted: string): string {
  const column = `${row}.${entryColumns[name]}`;
  return name === 'topic' ? topicFits(column, wanted) : `${column} = ${wanted}`;
}

/** Conditions on the entry itself. For dead letters these are all conditions, because they outlive their messages. */
function conditionsOf(
  outbox: string,
  filter: MessageFilter,
  range: Range,
  value: (value: unknown) => string,
): string[] {
  const { keeps, shows } = range;
  const conditions: string[] = wantedOf(filter, range)
    .filter(([name]) => shows.includes(name))
    .map(([name, wanted]) => conditionOf('e', name, value(wanted)));
  // an entry without the key
  if (keeps.includes('dedupeKey')) conditions.push('e.message_id IS NOT NULL');
  if (filter.from !== undefined && !keeps.includes('from'))
    conditions.push(`e.message_id >= ${outbox}.id_at(${value(filter.from)})`);
  if (filter.to !== undefined && !keeps.includes('to'))
    conditions.push(`e.message_id < ${outbox}.id_at(${value(filter.to)})`);
  // an unrouted message has no destination
  if (filter.status === 'unrouted' && filter.destination !== undefined) conditions.push('false');
  if (filter.status !== 'dead') return conditions;
  const columns = wantedOf(filter, range).map(([name, wanted]) =>
    conditionOf('x', name, value(wanted)),
  );
  if (filter.failedFrom !== undefined && !keeps.includes('failedFrom'))
    columns.push(`x.dead_at >= ${value(filter.failedFrom)}`);
  if (filter.failedTo !== undefined && !keeps.includes('failedTo'))
    columns.push(`x.dead_at < ${value(filter.failedTo)}`);
  if (filter.destination !== undefined && !keeps.includes('destination'))
    columns.push(
      `x.destination_id = (SELECT t.id FROM ${outbox}.destinations t WHERE t.name = ${value(filter.destination)})`,
    );
  if (filter.errorCode !== undefined && !keeps.includes('errorCode'))
    columns.push(hasCodeIn('x', value(filter.errorCode)));
  if (filter.cause !== undefined && !keeps.includes('cause'))
    columns.push(`${causeOf(outbox, 'x')} = ${value(filter.cause)}`);
  if (columns.length > 0)
    conditions.push(
      `EXISTS (SELECT FROM ${outbox}.dead_letters x WHERE x.message_id = e.message_id
                  AND x.destination_id = coalesce(e.destination_id, x.destination_id) AND ${columns.join(' AND ')})`,
    );
  return conditions;
}

const endings = new Map<MessageFilter['status'], string>([
  ['delivered', 'dispatched'],
  ['discarded', 'discarded'],
]);

/**
 * Leaves out candidates that their message or attempts rule out. A necessary condition only: it ignores the order of
 * attempts.
 */
async function leaveOut(
  database: Database,
  filter: MessageFilter,
  range: Range,
  candidates: Candidate[],
): Promise<Candidate[]> {
  const { status } = filter;
  const { keeps, shows } = range;
  const wanted = wantedOf(filter, range).filter(([name]) => !shows.includes(name));
  const ended = endings.get(status) ?? null;
  const errorCode = keeps.includes('errorCode') ? null : (filter.errorCode ?? null);
  const isPlace = status === 'pending' || status === 'retrying' || status === 'unrouted';
  const place = isPlace && !keeps.includes('status') ? status : null;
  // the destination is checked together with the attempt or the place that is required
  const isTimed = filter.failedFrom !== undefined || filter.failedTo !== undefined;
  const isElsewhere =
    status !== undefined && ended === null && errorCode === null && place === null && !isTimed;
  const destination =
    keeps.includes('destination') || isElsewhere ? null : (filter.destination ?? null);
  const isNothing =
    wanted.length === 0 &&
    ended === null &&
    errorCode === null &&
    destination === null &&
    place === null &&
    !isTimed;
  if (status === 'dead' || isNothing || candidates.length === 0) return candidates;
  const columns = new Map<EntryColumn, string>(wanted);
  const rows = await database.query<{ id: string }>(
    'list messages',
    `SELECT m.id FROM ${database.schema}.match_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13) m(id)`,
    [
      [...new Set(candidates.map(({ messageId }) => messageId))],
      columns.get('topic') ?? null,
      columns.get('namespace') ?? null,
      columns.get('tenantId') ?? null,
      columns.get('key') ?? null,
      columns.get('aggregateType') ?? null,
      columns.get('aggregateId') ?? null,
      destination,
      ended,
      errorCode,
      place,
      filter.failedFrom ?? null,
      filter.failedTo ?? null,
    ],
  );
  const matching = new Set(rows.map(({ id }) => id));
  return candidates.filter(({ messageId }) => matching.has(messageId));
}
