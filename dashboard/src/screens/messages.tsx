// Screen of messages: a table with filters, live until it is paused.

import { useState } from 'preact/hooks';

import type { MessagePage } from '../answers.js';
import { post, withQuery } from '../api.js';
import { useLive } from '../live.js';
import { Action, useMayOperateAll } from '../parts/action.js';
import { useQuestion } from '../parts/dialog.js';
import type { Question } from '../parts/dialog.js';
import { Filters } from '../parts/filters.js';
import type { Filter } from '../parts/filters.js';
import { Icon } from '../parts/icon.js';
import { Pager } from '../parts/pager.js';
import { PayloadDialog } from '../parts/payload.js';
import { Problem } from '../parts/problem.js';
import { Table } from '../parts/table.js';
import { usePlace } from '../route.js';
import { count } from '../shown.js';
import { deleteQuestion, isOpen, messageColumns, retryNow } from './message-rows.js';
import { ReplayDialog } from './replays/replay-dialog.js';
import type { Asked } from './replays/replay-form.js';

const filters: readonly Filter[] = [
  { name: 'topic', label: 'Topic' },
  {
    name: 'status',
    label: 'Status',
    choices: [
      'pending',
      'retrying',
      'processing',
      'delivered',
      'dead',
      'discarded',
      'unrouted',
    ].map((word) => [word, word] as const),
  },
  { name: 'destination', label: 'Destination' },
  { name: 'tenantId', label: 'Tenant' },
  { name: 'key', label: 'Key' },
  { name: 'errorCode', label: 'Error code' },
  {
    name: 'last',
    label: 'Created',
    choices: [
      ['15', 'last 15 minutes'],
      ['60', 'last hour'],
      ['1440', 'last day'],
      ['10080', 'last week'],
    ],
  },
  { name: 'id', label: 'Message id', rare: true },
  { name: 'aggregateType', label: 'Aggregate type', rare: true },
  { name: 'aggregateId', label: 'Aggregate id', rare: true },
  { name: 'namespace', label: 'Namespace', rare: true },
  { name: 'from', label: 'Created from', type: 'datetime-local', rare: true },
  { name: 'to', label: 'Created before', type: 'datetime-local', rare: true },
];

const pageSize = 50;

/** Resolves "the last hour" at the time of each request. */
function withTimes(address: string): string {
  const [path = '', text] = address.split('?', 2);
  const query = new URLSearchParams(text);
  const minutes = Number(query.get('last'));
  query.delete('last');
  if (minutes > 0 && !query.has('from'))
    query.set('from', new Date(Date.now() - minutes * 60_000).toISOString());
  return `${path}?${query.toString()}`;
}

export function MessagesScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const [paused, setPaused] = useState(false);
  const [held, setHeld] = useState(false);
  const { ask, asking, dialog } = useQuestion((done) => done && refresh());
  const [replay, setReplay] = useState<Partial<Asked>>();
  const mayOperateAll = useMayOperateAll();
  const [payloadOf, setPayloadOf] = useState<string>();
  const asked = Object.fromEntries(filters.map(({ name }) => [name, query.get(name)]));
  const { data, error, loading, refresh } = useLive<MessagePage>(
    withQuery('messages', { ...asked, limit: pageSize, next }),
    {
      everyMs: 2000,
      paused:
        paused ||
        held ||
        next !== null ||
        asking ||
        replay !== undefined ||
        payloadOf !== undefined,
      prepare: withTimes,
    },
  );
  const rows = data?.messages ?? [];
  const state = next !== null ? 'not the first page' : paused ? 'paused' : held ? 'held' : 'live';
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
          <button
            type="button"
            class="small"
            aria-pressed={paused}
            onClick={() => setPaused(!paused)}
          >
            <Icon name={paused ? 'play' : 'pause'} /> {paused ? 'Resume' : 'Pause'}
          </button>
          {mayOperateAll && (
            <>
              <Action label="Retry failed" icon="retry" act={() => ask(retryFailed(query))} />
              <Action label="Replay…" icon="replay" act={() => setReplay(askedBy(query))} />
            </>
          )}
        </span>
      </header>
      <Filters path="messages" filters={filters} />
      <Problem error={error} again={refresh} />
      <Table
        label="Messages"
        rows={data?.messages}
        loading={loading}
        rowKey={(message) => `${message.messageId} ${message.destination ?? ''}`}
        onHold={setHeld}
        empty={emptyWords(data)}
        columns={[
          ...messageColumns,
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
                      act={() => retryNow(message, ask, refresh)}
                    />
                    <Action
                      label="Delete"
                      icon="delete"
                      bare
                      act={() => ask(deleteQuestion(message))}
                    />
                  </>
                )}
              </span>
            ),
          },
        ]}
      />
      <Pager
        next={data?.next ?? null}
        nextLabel={rows.length < pageSize ? 'Search on' : 'Next page'}
      >
        {data !== undefined &&
          (data.next !== null && rows.length < pageSize
            ? `Searched ${count(data.searchedInAll)}, found ${rows.length}; there is more to search`
            : `${rows.length} shown`)}
      </Pager>
      {dialog}
      {replay && <ReplayDialog asked={replay} close={() => setReplay(undefined)} />}
      {payloadOf !== undefined && (
        <PayloadDialog id={payloadOf} close={() => setPayloadOf(undefined)} />
      )}
    </>
  );
}

function emptyWords(data: MessagePage | undefined): string {
  if (data === undefined) return 'Searching …';
  return data.next === null
    ? 'No message matches.'
    : 'Nothing found so far; there is more to search.';
}

/** The filters by name, with "the last hour" as a time. */
function filtersOf(query: URLSearchParams): Record<string, string> {
  const given = Object.fromEntries(filters.map(({ name }) => [name, query.get(name)] as const));
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

function retryFailed(query: URLSearchParams): Question {
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
    act: () => post('retrying/retry', filter),
  };
}
