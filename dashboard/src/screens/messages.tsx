// Screen of messages: a search box and a table with filters, live until it is paused.

import { useState } from 'preact/hooks';

import { listedStatuses } from '../../../src/listing/statuses.js';
import type { ListedMessage } from '../answers.js';
import { ApiError, withQuery } from '../api.js';
import { useHeld, usePause } from '../live.js';
import { Action, useMayOperateAll } from '../parts/action.js';
import { useQuestion } from '../parts/dialog.js';
import type { Question } from '../parts/dialog.js';
import { Filters } from '../parts/filters.js';
import type { Filter } from '../parts/filters.js';
import { Icon } from '../parts/icon.js';
import { Outcomes } from '../parts/outcomes.js';
import { PayloadDialog } from '../parts/payload.js';
import { Problem } from '../parts/problem.js';
import { SavedFilters } from '../parts/saved-filters.js';
import { SearchBox } from '../parts/search-box.js';
import { Table } from '../parts/table.js';
import { linkTo, usePlace } from '../route.js';
import { isPayload } from '../search-words.js';
import { useDiscards } from './discards.js';
import { deleteQuestion, isOpen, retryNow, useMessageColumns } from './message-rows.js';
import { SearchPager, emptyWords, pageSize, useSearch } from './message-search.js';
import type { Search } from './message-search.js';
import { useRetryFailed } from './retry-failed.js';
import type { RetryFailed } from './retry-failed.js';
import { useRetryResults } from './retry-results.js';
import { ReplayDialog } from './replays/replay-dialog.js';
import type { Asked } from './replays/replay-form.js';
import { tailQuery } from './tail.js';
import { startOfDay } from '../zone.js';

/** The values of the filter `last`: minutes, or `today`. */
const periods = [
  ['15', 'last 15 minutes'],
  ['60', 'last hour'],
  ['today', 'today'],
  ['1440', 'last day'],
  ['10080', 'last week'],
] as const;

const filters: readonly Filter[] = [
  { name: 'topic', label: 'Topic', completes: 'topics' },
  {
    name: 'status',
    label: 'Status',
    choices: listedStatuses.map((word) => [word, word] as const),
  },
  { name: 'destination', label: 'Destination', completes: 'destinations' },
  { name: 'tenantId', label: 'Tenant', completes: 'tenants' },
  { name: 'key', label: 'Key' },
  { name: 'errorCode', label: 'Error code' },
  { name: 'last', label: 'Created', choices: periods },
  { name: 'id', label: 'Message id', rare: true },
  { name: 'aggregateType', label: 'Aggregate type', rare: true },
  { name: 'aggregateId', label: 'Aggregate id', rare: true },
  { name: 'dedupeKey', label: 'Dedupe key', rare: true },
  { name: 'namespace', label: 'Namespace', rare: true },
  { name: 'from', label: 'Created from', type: 'datetime-local', rare: true },
  { name: 'to', label: 'Created before', type: 'datetime-local', rare: true },
  { name: 'failedFrom', label: 'Failed from', type: 'datetime-local', rare: true },
  { name: 'failedTo', label: 'Failed before', type: 'datetime-local', rare: true },
];

/** The filters, and those by fields of the payload that are set. */
function filtersIn(query: URLSearchParams): readonly Filter[] {
  const fields = [...query.keys()].filter(isPayload);
  return [
    ...filters,
    ...fields.map((name) => ({ name, label: name.replace('payload.', 'Payload ') })),
  ];
}

/** Resolves "the last hour", and "today" in the shown time zone, at the time of each request. */
function withTimes(address: string): string {
  const [path = '', text] = address.split('?', 2);
  const query = new URLSearchParams(text);
  const from = startOf(query.get('last'));
  query.delete('last');
  if (from !== null && !query.has('from')) query.set('from', from.toISOString());
  return `${path}?${query.toString()}`;
}

function startOf(last: string | null): Date | null {
  if (last === null || last === '') return null;
  if (!isPeriod(last)) throw new ApiError(400, unknownPeriod(last));
  return last === 'today' ? startOfDay() : new Date(Date.now() - Number(last) * 60_000);
}

const isPeriod = (last: string): boolean => periods.some(([value]) => value === last);

function unknownPeriod(last: string): string {
  const known = periods.map(([value]) => value).join(', ');
  return `last is ${JSON.stringify(last)}: give one of ${known}`;
}

export function MessagesScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const [paused, togglePaused] = usePause();
  const held = useHeld();
  const { ask, asking, dialog } = useQuestion((done) => done && refresh());
  const [replay, setReplay] = useState<Partial<Asked>>();
  const mayOperateAll = useMayOperateAll();
  const [payloadOf, setPayloadOf] = useState<string>();
  const shown = filtersIn(query);
  const asked = Object.fromEntries(shown.map(({ name }) => [name, query.get(name)]));
  const { follow, results } = useRetryResults();
  const { retryFailed, madeDue } = useRetryFailed();
  const search = useSearch(withQuery('messages', { ...asked, limit: pageSize, next }), {
    everyMs: 2000,
    paused: next !== null || asking || replay !== undefined || payloadOf !== undefined,
    prepare: withTimes,
  });
  const { error, loading, refresh } = search;
  const { discard, discarded } = useDiscards(ask, refresh);
  const remove = (message: ListedMessage): void => {
    const question = deleteQuestion(message);
    if (message.status === 'dead') discard(message, question);
    else ask(question);
  };
  const columns = useMessageColumns(search.messages);
  const state = stateOf(search, next !== null, paused, held);
  return (
    <>
      <header class="screen-head">
        <h1>Messages</h1>
        {error === undefined && (
          <span class={`live-state ${state === 'live' ? 'on' : ''}`} role="status">
            {state}
          </span>
        )}
        <span class="head-actions">
          <button type="button" class="small" aria-pressed={paused} onClick={togglePaused}>
            <Icon name={paused ? 'play' : 'pause'} /> {paused ? 'Resume' : 'Pause'}
          </button>
          <a class="button small" href={linkTo('tail', tailQuery(query))}>
            Live tail
          </a>
          {mayOperateAll && (
            <>
              <Action
                label="Retry failed"
                icon="retry"
                act={() => ask(retryQuestion(query, retryFailed))}
              />
              <Action label="Replay…" icon="replay" act={() => setReplay(askedBy(query))} />
            </>
          )}
        </span>
      </header>
      <SearchBox />
      <Filters path="messages" filters={shown} />
      <SavedFilters />
      <Problem error={error} again={search.again} />
      <Table
        label="Messages"
        rows={search.messages}
        loading={loading}
        rowKey={(message) => `${message.messageId} ${message.destination ?? ''}`}
        empty={emptyWords(search, 'No message matches.')}
        columns={[
          ...columns,
          {
            head: 'Actions',
            width: 'actions',
            cell: (message) => (
              <span class="row-actions">
                <button
                  type="button"
                  class="bare"
                  aria-label="Payload"
                  title="Payload"
                  onClick={() => setPayloadOf(message.messageId)}
                >
                  <Icon name="payload" />
                </button>
                {isOpen(message) && (
                  <>
                    <Action
                      label="Retry now"
                      icon="retry"
                      bare
                      act={() =>
                        retryNow(message, ask, () => {
                          if (message.status === 'dead') follow(message);
                          refresh();
                        })
                      }
                    />
                    <Action label="Delete" icon="delete" bare act={() => remove(message)} />
                  </>
                )}
              </span>
            ),
          },
        ]}
      />
      <SearchPager search={search} />
      <Outcomes>
        {results}
        {madeDue}
        {discarded}
      </Outcomes>
      {dialog}
      {replay && (
        <ReplayDialog asked={replay} leftOut={leftOut(query)} close={() => setReplay(undefined)} />
      )}
      {payloadOf !== undefined && (
        <PayloadDialog id={payloadOf} close={() => setPayloadOf(undefined)} />
      )}
    </>
  );
}

function stateOf(search: Search, isLater: boolean, paused: boolean, held: boolean): string {
  if (search.state !== 'live') return search.state;
  return isLater ? 'not the first page' : paused ? 'paused' : held ? 'held' : 'live';
}

/** The filters by name, with "the last hour" as a time. */
function filtersOf(query: URLSearchParams): Record<string, string> {
  const given = Object.fromEntries(
    filtersIn(query).map(({ name }) => [name, query.get(name)] as const),
  );
  const [, text] = withTimes(withQuery('x', given)).split('?', 2);
  return Object.fromEntries(new URLSearchParams(text));
}

/** The filters that a replay supports too. */
function askedBy(query: URLSearchParams): Partial<Asked> {
  const { id, from, to, destination, topic, key, tenantId, namespace } = filtersOf(query);
  const asked = { destination, topic, key, tenantId, namespace, since: from, until: to };
  return {
    ...Object.fromEntries(Object.entries(asked).filter(([, value]) => value !== undefined)),
    ...(id !== undefined && { ids: [id] }),
  };
}

const replayable = ['id', 'from', 'to', 'destination', 'topic', 'key', 'tenantId', 'namespace'];

/** The labels of the filters that a replay does not support. */
function leftOut(query: URLSearchParams): string[] {
  const given = filtersOf(query);
  return filtersIn(query)
    .filter(({ name }) => given[name] !== undefined && !replayable.includes(name))
    .map(({ label }) => label);
}

/** Asks before it makes the failed deliveries that match the filters due. */
export function retryQuestion(query: URLSearchParams, retryFailed: RetryFailed): Question {
  const { status: _, ...filter } = filtersOf(query);
  const { destination, ...others } = filter;
  return {
    title: 'Retry failed',
    text: (
      <p>
        All deliveries that wait for a retry{' '}
        {destination === undefined ? (
          'at all destinations'
        ) : (
          <>
            at <b>{destination}</b>
          </>
        )}{' '}
        {Object.keys(others).length > 0 && <b>and match the filters </b>}
        become due now. Dead letters are not changed.
      </p>
    ),
    button: 'Retry now',
    act: () => retryFailed(filter),
  };
}
