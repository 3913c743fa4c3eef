// Live tail: events as they happen, the newest first, with the filters of the address. The server remembers where this
// browser is, so no event is shown twice, and says how many were left out. While the pointer or the keyboard is in the
// list, new events are collected and counted.

import { useEffect, useRef, useState } from 'preact/hooks';

import { tailEvents } from '../../../src/listing/tail-events.js';
import { ApiError, get, withQuery } from '../api.js';
import type { TailAnswer, TailEvent } from '../answers.js';
import { useHeld, usePause } from '../live.js';
import { Filters } from '../parts/filters.js';
import type { Filter } from '../parts/filters.js';
import { Icon } from '../parts/icon.js';
import { Problem } from '../parts/problem.js';
import { Table } from '../parts/table.js';
import type { Column } from '../parts/table.js';
import { Time } from '../parts/time.js';
import { linkTo, usePlace } from '../route.js';
import { count, milliseconds, plural } from '../shown.js';

const everyMs = 1000;
/** Older events are dropped. */
const shownAtMost = 300;

const filters: readonly Filter[] = [
  { name: 'topic', label: 'Topic' },
  {
    name: 'event',
    label: 'Event',
    choices: tailEvents.map((word) => [word, word.replaceAll('_', ' ')] as const),
  },
  { name: 'destination', label: 'Destination' },
  { name: 'tenantId', label: 'Tenant' },
  { name: 'key', label: 'Key' },
  { name: 'errorCode', label: 'Error code' },
  { name: 'aggregateType', label: 'Aggregate type', rare: true },
  { name: 'aggregateId', label: 'Aggregate id', rare: true },
  { name: 'namespace', label: 'Namespace', rare: true },
];

/** The filters of another list that a tail has too. */
export function tailQuery(query: URLSearchParams): Record<string, string | null> {
  const status = query.get('status');
  const same = tailEvents.some((event) => event === status);
  return {
    ...Object.fromEntries(filters.map(({ name }) => [name, query.get(name)])),
    event: query.get('event') ?? (same ? status : null),
  };
}

const columns: readonly Column<TailEvent>[] = [
  { head: 'When', width: 'time', cell: ({ at }) => <Time at={at} /> },
  {
    head: 'Event',
    width: 'medium',
    cell: ({ event }) => <span class={`status ${event}`}>{event.replaceAll('_', ' ')}</span>,
  },
  {
    head: 'Topic',
    inCard: 'title',
    cell: ({ messageId, topic, key }) => (
      <a class="topic" href={linkTo(`messages/${messageId}`)} title={messageId}>
        {topic ?? messageId}
        {key !== null && <small>{key}</small>}
      </a>
    ),
  },
  { head: 'Destination', width: 'name', cell: ({ destination }) => destination ?? '–' },
  { head: 'Tries', numeric: true, width: 'tries', cell: ({ tries }) => tries ?? '–' },
  {
    head: 'Took',
    numeric: true,
    width: 'number',
    cell: ({ latencyMs }) => milliseconds(latencyMs),
  },
  {
    head: 'Error',
    cell: ({ errorCode, error }) =>
      errorCode !== null && (
        <span class="error-cell" title={error ?? ''}>
          <code>{errorCode}</code> {error}
        </span>
      ),
  },
];

export function TailScreen() {
  const { query } = usePlace();
  const [paused, togglePaused] = usePause();
  const held = useHeld();
  const { shown, error, following, clear } = useTail(withQuery('tail', tailQuery(query)), paused);
  const before = useRef(shown);
  // what was shown when the pointer or the keyboard came into the table stays, until the list is cleared
  if (!held || shown.total < before.current.total) before.current = shown;
  const { events, left, unseen, again, total } = before.current;
  const more = shown.total - total;
  const state = paused ? 'paused' : held ? 'held' : following ? 'live' : 'connecting';
  return (
    <>
      <header class="screen-head">
        <h1>Live tail</h1>
        {error === undefined && (
          <span class={`live-state ${state === 'live' ? 'on' : ''}`} role="status">
            {state}
          </span>
        )}
        {more > 0 && <span class="muted">{plural(more, 'new event')}</span>}
        <span class="head-actions">
          <button type="button" class="small" aria-pressed={paused} onClick={togglePaused}>
            <Icon name={paused ? 'play' : 'pause'} /> {paused ? 'Resume' : 'Pause'}
          </button>
          <button type="button" class="small" onClick={clear}>
            Clear
          </button>
        </span>
      </header>
      <Filters path="tail" filters={filters} />
      <Problem error={error} />
      {again && (
        <p class="notice">
          The tail began again: what happened while it was paused or away is not shown.
        </p>
      )}
      {(left > 0 || unseen) && <p class="notice">{leftOut(left, unseen)}</p>}
      <Table
        label="Events"
        rows={events}
        loading={false}
        rowKey={({ messageId, destination, claimNo, event }) =>
          `${messageId} ${destination ?? ''} ${claimNo ?? ''} ${event}`
        }
        empty="New events appear here as they happen."
        columns={columns}
      />
    </>
  );
}

function leftOut(left: number, unseen: boolean): string {
  if (left === 0) return 'Events may have been left out: there were too many entries to read.';
  const number = unseen ? `At least ${count(left)}` : count(left);
  return `${number} events were left out: there were too many.`;
}

type Shown = {
  events: TailEvent[];
  /** Events so far, also those that were dropped. */
  total: number;
  /** Matching events that are not shown; more of them if `unseen`. */
  left: number;
  /** The server did not read all entries. */
  unseen: boolean;
  again: boolean;
};

const nothing: Shown = { events: [], total: 0, left: 0, unseen: false, again: false };

/** Follows from now on; another address begins a new tail. */
function useTail(address: string, paused: boolean) {
  const [shown, setShown] = useState(nothing);
  const [error, setError] = useState<Error>();
  const [tail, setTail] = useState<{ id?: string; of: string }>({ of: address });
  const id = tail.of === address ? tail.id : undefined;
  useEffect(() => setShown(nothing), [address]);
  useEffect(() => {
    if (paused) return undefined;
    const stop = new AbortController();
    let timer: number | undefined;
    let known = id;
    const run = async (first: boolean): Promise<void> => {
      try {
        if (!document.hidden) {
          const path = known === undefined ? address : `tail/${known}`;
          const answer = await get<TailAnswer>(path, stop.signal, { refresh: !first });
          if (stop.signal.aborted) return;
          setError(undefined);
          setTail({ id: answer.tail, of: address });
          known = answer.tail;
          setShown((before) => added(before, answer));
        }
      } catch (failure) {
        if (stop.signal.aborted) return;
        const status = failure instanceof ApiError ? failure.status : 0;
        const isForgotten = status === 404 && known !== undefined;
        if (isForgotten) {
          known = undefined;
          setTail({ of: address });
          setShown((before) => ({ ...before, again: true }));
        } else setError(failure as Error);
        // it would be rejected again
        if (status === 400) return;
      }
      timer = window.setTimeout(() => void run(false), everyMs);
    };
    void run(true);
    return () => {
      stop.abort();
      window.clearTimeout(timer);
    };
  }, [address, paused]);
  return {
    shown,
    error,
    following: id !== undefined,
    clear: () => setShown(nothing),
  };
}

function added(before: Shown, { events, more, unseen }: TailAnswer): Shown {
  if (events.length === 0 && more === 0 && !unseen) return before;
  return {
    ...before,
    events: [...events.toReversed(), ...before.events].slice(0, shownAtMost),
    total: before.total + events.length,
    left: before.left + more,
    unseen: before.unseen || unseen,
  };
}
