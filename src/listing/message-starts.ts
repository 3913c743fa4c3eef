// Starts of a message search: every sequence of index ranges that contains all matches, and the choice of one. A search
// reads from its start and checks the other filters on each entry, so it starts where there are few entries: 3,000
// messages of a tenant rather than a million pending ones.

import type { Database } from '../database/connection.js';
import {
  causeOf,
  codesFor,
  dead,
  deadOfCode,
  deadOfTime,
  deadOfTopics,
  failed,
  isPattern,
  lanes,
  lanesOfKey,
  leased,
  newest,
  newestOfKey,
  newestOfTopics,
  ofDedupeKey,
  one,
  queue,
  queueOfTenant,
  retrying,
  unrouted,
} from './message-ranges.js';
import type { MessageFilter, Range } from './message-ranges.js';

/** `size` is the name under which `search_sizes` counts the entries; null: it is the only start. */
export type Start = { size: string | null; ranges: readonly Range[] };

/** Fewer pending messages than this are read in the order in which they are due, also if another filter is faster. */
const fewEntries = 1000;

/** The ranges of the smallest start. */
export async function chooseStart(
  database: Database,
  filter: MessageFilter,
): Promise<readonly Range[]> {
  const starts = startsFor(filter);
  const [first] = starts;
  if (first === undefined || starts.length === 1) return first?.ranges ?? [];
  const codes = filter.errorCode === undefined ? [] : codesFor(filter.errorCode);
  const rows = await database.query<{ range: string; entries: number }>(
    'list messages',
    `SELECT s.range, s.entries::float8 AS entries FROM ${database.schema}.search_sizes($1, $2) s`,
    [starts.map(({ size }) => size), JSON.stringify({ ...filter, codes })],
  );
  const sizes = new Map(rows.map(({ range, entries }) => [range, entries]));
  const sizeOf = ({ size }: Start): number => sizes.get(size ?? '') ?? Number.POSITIVE_INFINITY;
  if (hasOrder(filter) && sizeOf(first) < fewEntries) return first.ranges;
  return starts.reduce((best, start) => (sizeOf(start) < sizeOf(best) ? start : best)).ranges;
}

/** The ranges of the start with this range: a search goes on where it has begun. */
export function startWith(filter: MessageFilter, range: string): readonly Range[] {
  const start = startsFor(filter).find(({ ranges }) => ranges.some(({ name }) => name === range));
  return start?.ranges ?? [];
}

/** Whether the first start has another order than the others. */
function hasOrder({ status }: MessageFilter): boolean {
  return status === 'pending' || status === 'retrying';
}

/** The first one has the order of the status. */
export function startsFor(filter: MessageFilter): Start[] {
  const { status, destination = null, tenantId } = filter;
  // first, because only its range checks the dedupe key; an id is checked on every candidate
  if (filter.dedupeKey !== undefined) return [{ size: null, ranges: [ofDedupeKey(filter)] }];
  if (filter.id !== undefined) return [{ size: null, ranges: [one(filter.id)] }];
  switch (status) {
    case 'pending': {
      const inQueue =
        tenantId === undefined ? queue(destination) : queueOfTenant(destination, tenantId);
      const ranges =
        filter.key === undefined ? [inQueue, lanes(destination)] : [lanesOfKey(filter)];
      return [{ size: 'pending', ranges }, ...inLog(filter)];
    }
    case 'retrying':
      return [{ size: 'retrying', ranges: [retrying(destination)] }, ...inLog(filter)];
    case 'processing':
      return [{ size: null, ranges: [leased(destination)] }];
    case 'dead':
      return inDeadLetters(filter);
    case 'unrouted':
      return [{ size: 'unrouted', ranges: [unrouted(filter)] }, ...inLog(filter)];
    default: {
      const starts = inLog(filter);
      return starts.length > 0 ? starts : [{ size: null, ranges: [newest('all', null, [], [])] }];
    }
  }
}

/** Indexes of the log, newest first. */
function inLog(filter: MessageFilter): Start[] {
  const { aggregateId, key, tenantId, topic, errorCode } = filter;
  const starts: Start[] = [];
  const add = (size: string, range: Range) => starts.push({ size, ranges: [range] });
  const isTimed = filter.failedFrom !== undefined || filter.failedTo !== undefined;
  if (errorCode !== undefined) add('code', failed(errorCode));
  else if (isTimed) add('any code', failed());
  if (aggregateId !== undefined)
    add('aggregate', newest('aggregate', 'm.aggregate_id = $4', [aggregateId], ['aggregateId']));
  if (key !== undefined) add('key', newestOfKey(filter));
  if (tenantId !== undefined)
    add('tenant', newest('tenant', 'm.tenant_id = $4', [tenantId], ['tenantId']));
  if (topic === undefined) return starts;
  if (!isPattern(topic)) {
    add('topic', newest('topic', 'm.topic = $4', [topic], ['topic']));
    return starts;
  }
  add('topics', newestOfTopics(topic.slice(0, -1)));
  // for a pattern that fits very many topics
  add('all', newest('all', null, [], []));
  return starts;
}

/** Indexes of the dead letters, the latest first. */
function inDeadLetters(filter: MessageFilter): Start[] {
  const { destination, errorCode, cause, tenantId, topic } = filter;
  const starts: Start[] = [];
  const add = (range: Range) => starts.push({ size: range.name, ranges: [range] });
  if (cause !== undefined)
    add(dead('dead of cause', (outbox) => `${causeOf(outbox, 'd')} = $4`, cause, ['cause']));
  if (errorCode !== undefined) add(deadOfCode(errorCode, destination ?? null));
  else if (destination !== undefined)
    add(
      dead(
        'dead of destination',
        (outbox) =>
          `d.destination_id = (SELECT t.id FROM ${outbox}.destinations t WHERE t.name = $4)`,
        destination,
        ['destination'],
      ),
    );
  if (tenantId !== undefined)
    add(dead('dead of tenant', () => 'd.tenant_id = $4', tenantId, ['tenantId']));
  if (topic !== undefined && isPattern(topic)) {
    add(deadOfTopics(topic.slice(0, -1)));
    // for a pattern that fits very many topics
    add(dead('dead', null));
  } else if (topic !== undefined)
    add(dead('dead of topic', () => 'd.topic = $4', topic, ['topic']));
  if (filter.failedFrom !== undefined || filter.failedTo !== undefined) add(deadOfTime(filter));
  return starts.length > 0 ? starts : [{ size: null, ranges: [dead('dead', null)] }];
}
