// Message list: filters and pages through messages in an outbox of any size. The filters decide which index ranges are
// read, one after the other (message-starts.ts). A bounded number of entries is read at a time, and the
// remaining filters are applied to them. So a page can be short and still have a next one: no filter makes a query
// slow, and none hides anything.

import { ConfigurationError, shown } from '../core/errors.js';
import type { Database } from '../database/connection.js';
import { listInTurn } from './list-in-turn.js';
import type { WantedPage } from './list-in-turn.js';
import { findCandidates } from './message-candidates.js';
import type { Candidate, Candidates } from './message-candidates.js';
import { Days } from './message-days.js';
import type { DaySpan } from './message-days.js';
import { causeOf, hasCodeIn, isPattern, lastId, topicFits } from './message-ranges.js';
import type { MessageFilter, Range } from './message-ranges.js';
import { chooseStart, startWith } from './message-starts.js';
import { matchPayloads, payloadPath } from './payload-filter.js';

export type ListedMessage = {
  messageId: string;
  destination: string | null;
  status: string;
  retrying: boolean;
  namespace: string | null;
  topic: string | null;
  tenantId: string | null;
  key: string | null;
  sequence: string | null;
  aggregateType: string | null;
  aggregateId: string | null;
  tries: number;
  nextTryAt: Date | null;
  errorCode: string | null;
  error: string | null;
  createdAt: Date;
  changedAt: Date;
};

export type MessagePage = {
  messages: ListedMessage[];
  /** Where the next page begins; null at the end. */
  next: string | null;
  /** How many index entries were read. */
  searched: number;
  /** The same, with all pages before this one. */
  searchedInAll: number;
};

/** A place in an index: the name of the range, and the last entry's columns. */
type Place = { range: string; after: string[] | null };

/** What `next` contains: where the search goes on, and how many entries it has read. */
type Continuation = Place & { searched: number };

const mostEntries = 20_000;
/** Index entries that a step reads: twice the page at first, then these; fewer if the time left is short. */
const secondStepEntries = 400;
const laterStepEntries = 2500;
const fewestEntries = 100;

/** Days per step: one at first, twice as many after each span that did not fill the page, up to this number. */
const daysAtMost = 16;

/**
 * Newest first. Pending ones without a key by due time, then those with a key, key by key, unless another filter is
 * faster (then newest first). Dead ones by time of death, the latest first. Failed ones: first the dead, then those that
 * wait for a retry.
 */
export async function listMessages(
  database: Database,
  search: MessageFilter,
  page: WantedPage,
): Promise<MessagePage> {
  if (search.status === 'failed')
    return listInTurn(['dead', 'retrying'], page, (status, part) =>
      listMessages(database, { ...search, status }, part),
    );
  const filter = checked(search);
  const startedMs = performance.now();
  const deadlineMs = startedMs + (page.budgetMs ?? Number.POSITIVE_INFINITY);
  const given = page.next === undefined ? null : readPlace(page.next);
  const ranges =
    given === null ? await chooseStart(database, filter) : startWith(filter, given.range);
  let place: Place | null = given ?? { range: ranges[0]?.name ?? '', after: null };
  const messages: ListedMessage[] = [];
  const few = Math.max(2 * page.limit, 100);
  let searched = 0;
  let days: Days | undefined;
  let daysTogether = 1;
  for (
    let step = 0;
    place !== null &&
    messages.length < page.limit &&
    searched < mostEntries &&
    (step === 0 || performance.now() < deadlineMs);
    step += 1
  ) {
    const { range: name, after }: Place = place;
    const index = ranges.findIndex((range) => range.name === name);
    const range = ranges[index];
    if (range === undefined || (after !== null && after.length !== range.start.length)) {
      throw new ConfigurationError('next belongs to another filter: begin with the first page');
    }
    const more = searched <= few ? secondStepEntries : laterStepEntries;
    const wanted = searched === 0 ? few : Math.max(more, few);
    // reading a hundred rows from disk can take as long as a thousand from memory
    const nowMs = performance.now();
    const affordable = Math.ceil((searched / (nowMs - startedMs)) * (deadlineMs - nowMs));
    const looked = Math.min(
      searched === 0 ? wanted : Math.max(Math.min(wanted, affordable), fewestEntries),
      mostEntries - searched,
      range.stepAtMost ?? mostEntries,
    );
    if (range.daysOf !== undefined) days ??= await Days.read(database, range.daysOf, filter);
    // undefined: the range has no days; null: no day is left
    const span: DaySpan | null | undefined =
      range.daysOf && days?.before(after?.[0] ?? lastId, daysTogether);
    const candidates: Candidates =
      span === null
        ? { found: [], searched: 0, last: null }
        : await findCandidates(database, filter, range, span ?? after, looked);
    const last = await takeMatching(database, filter, candidates.found, messages, {
      limit: page.limit,
      deadlineMs,
    });
    const following: Range | undefined = ranges[index + 1];
    searched += last?.position ?? candidates.searched;
    if (last !== null) place = { range: name, after: last.after };
    else if (candidates.searched === looked) place = { range: name, after: candidates.last };
    else if (span) {
      place = { range: name, after: [span.from] };
      daysTogether = Math.min(2 * daysTogether, daysAtMost);
    } else place = following === undefined ? null : { range: following.name, after: null };
  }
  // no day is left to read
  if (place !== null && days?.before(place.after?.[0] ?? lastId, 1) === null) place = null;
  const searchedInAll = (given?.searched ?? 0) + searched;
  return {
    messages,
    next: place === null ? null : writePlace({ ...place, searched: searchedInAll }),
    searched,
    searchedInAll,
  };
}

/** The filter as it is searched; refuses a malformed pattern of topics, and a malformed field of a payload. */
function checked(filter: MessageFilter): MessageFilter {
  const { topic, to, failedTo, ...others } = filter;
  if (filter.payload !== undefined) payloadPath(filter.payload);
  if (topic !== undefined && topic.includes('*') && topic !== '*') {
    if (!isPattern(topic) || topic.indexOf('*') < topic.length - 1 || topic.length < 3)
      throw new ConfigurationError(
        `topic is ${shown(topic)}: give a whole topic, or the beginning of topics as in order.*`,
      );
  }
  // a message that was created later has not failed before; dead letters are found by the time of death
  const end = [to, filter.status === 'dead' ? undefined : failedTo]
    .filter((time) => time !== undefined)
    .toSorted((one, other) => one.getTime() - other.getTime())[0];
  return {
    ...others,
    ...(topic !== undefined && topic !== '*' && { topic }),
    ...(failedTo !== undefined && { failedTo }),
    ...(end !== undefined && { to: end }),
  };
}

type Limits = { limit: number; deadlineMs: number };

/** Does what `take` does, with the candidates whose payloads match. */
async function takeMatching(
  database: Database,
  filter: MessageFilter,
  candidates: readonly Candidate[],
  messages: ListedMessage[],
  limits: Limits,
): Promise<Candidate | null> {
  if (filter.payload === undefined) return take(database, filter, candidates, messages, limits);
  const path = payloadPath(filter.payload);
  for (let first = 0; first < candidates.length;) {
    const rest = candidates.slice(first);
    const { checked: count, matching } = await matchPayloads(database, path, rest);
    const last = await take(database, filter, matching, messages, limits);
    if (last !== null) return last;
    first += count;
    if (first < candidates.length && performance.now() > limits.deadlineMs)
      return candidates[first - 1] ?? null;
  }
  return null;
}

/**
 * Adds matching messages until there are enough or time is up; then returns the last candidate that was checked,
 * else null.
 */
async function take(
  database: Database,
  filter: MessageFilter,
  candidates: readonly Candidate[],
  messages: ListedMessage[],
  { limit, deadlineMs }: Limits,
): Promise<Candidate | null> {
  const few = Math.max(2 * limit, 100);
  for (let first = 0; first < candidates.length; first += few) {
    const some = candidates.slice(first, first + few);
    const details = await detailsOf(database, filter, some);
    // the destinations of one message stay on one page
    for (const candidate of some) {
      messages.push(...details(candidate));
      if (messages.length >= limit) return candidate;
    }
    const rest = candidates.length - first - some.length;
    if (rest > 0 && performance.now() > deadlineMs) return some.at(-1) ?? null;
  }
  return null;
}

/** The matching deliveries of each candidate. */
async function detailsOf(
  database: Database,
  filter: MessageFilter,
  candidates: readonly Candidate[],
): Promise<(candidate: Candidate) => ListedMessage[]> {
  const { status } = filter;
  const { schema } = database;
  const wanted = status === 'retrying' ? 'pending' : status;
  const ids = [...new Set(candidates.map(({ messageId }) => messageId))].toSorted();
  const { failedFrom = null, failedTo = null } = filter;
  const isTimed = failedFrom !== null || failedTo !== null;
  const within = (time: string) =>
    `${time} >= coalesce($16::timestamptz, '-infinity') AND ${time} < coalesce($17::timestamptz, 'infinity')`;
  const failedThen =
    // when it died
    status === 'dead'
      ? within('s.changed_at')
      : `EXISTS (
          SELECT FROM ${schema}.attempts a
           WHERE a.message_id = s.message_id AND a.message_id BETWEEN $18::uuid AND $19::uuid AND a.destination_id = s.destination_id
             AND a.error_code IS NOT NULL AND a.state <> 'discarded' AND ${within('a.ended_at')})`;
  const rows = await database.query<ListedMessage & { destinationId: number | null }>(
    'list messages',
    `SELECT s.message_id AS "messageId", s.destination_id AS "destinationId", s.destination, s.status, s.retrying, s.namespace, s.topic,
            s.tenant_id AS "tenantId", s.key, s.sequence::text AS sequence, s.aggregate_type AS "aggregateType", s.aggregate_id AS "aggregateId",
            s.tries, s.next_try_at AS "nextTryAt", s.error_code AS "errorCode", s.error, s.created_at AS "createdAt", s.changed_at AS "changedAt"
       FROM ${schema}.describe_messages($1) s
      WHERE ($2::text IS NULL OR s.status = $2) AND ($3::boolean IS NULL OR s.retrying)
        AND ($4::text IS NULL OR s.destination = $4) AND ($5::text IS NULL OR ${topicFits('s.topic', '$5')}) AND ($6::text IS NULL OR s.namespace = $6)
        AND ($7::text IS NULL OR s.tenant_id = $7) AND ($8::text IS NULL OR s.key = $8) AND ($9::text IS NULL OR s.aggregate_type = $9)
        AND ($10::text IS NULL OR s.aggregate_id = $10) AND ($11::text IS NULL OR ${hasCodeIn('s', '$11')})
        AND ($12::timestamptz IS NULL OR s.created_at >= $12) AND ($13::timestamptz IS NULL OR s.created_at < $13)
        AND ($14::uuid IS NULL OR s.message_id = $14) AND ($15::text IS NULL OR ${causeOf(schema, 's')} = $15) AND ${isTimed ? failedThen : 'true'}`,
    [
      ids,
      wanted ?? null,
      status === 'retrying' ? true : null,
      filter.destination ?? null,
      filter.topic ?? null,
      filter.namespace ?? null,
      filter.tenantId ?? null,
      filter.key ?? null,
      filter.aggregateType ?? null,
      filter.aggregateId ?? null,
      filter.errorCode ?? null,
      filter.from ?? null,
      filter.to ?? null,
      filter.id ?? null,
      filter.cause ?? null,
      ...(isTimed ? [failedFrom, failedTo] : []),
      // the bounds are for the planner, which then skips all other days
      ...(isTimed && status !== 'dead' ? [ids[0], ids.at(-1)] : []),
    ],
  );
  const byMessage = new Map<string, typeof rows>();
  for (const row of rows)
    byMessage.set(row.messageId, [...(byMessage.get(row.messageId) ?? []), row]);
  return ({ messageId, destinationId: only }) =>
    (byMessage.get(messageId) ?? [])
      .filter(({ destinationId }) => only === null || only === destinationId)
      .map(({ destinationId: _destinationId, ...message }) => message);
}

function writePlace({ range, after, searched }: Continuation): string {
  return Buffer.from(JSON.stringify([range, after, searched])).toString('base64url');
}

function readPlace(text: string): Continuation {
  try {
    const [range, after, searched] = JSON.parse(
      Buffer.from(text, 'base64url').toString('utf8'),
    ) as unknown[];
    const isPlace =
      after === null || (Array.isArray(after) && after.every((x) => typeof x === 'string'));
    if (
      typeof range === 'string' &&
      isPlace &&
      Number.isSafeInteger(searched) &&
      Number(searched) >= 0
    )
      return { range, after, searched: Number(searched) };
  } catch {
    // reported below
  }
  throw new ConfigurationError(`next is ${shown(text)}: pass next from the previous page`);
}
