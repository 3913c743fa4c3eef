// Search for messages, also for dead letters: the first page is live. If it ends before the page is full, the search goes
// on by itself, request by request, until the page is full, everything was searched, or the user stops it.

import { useEffect, useRef, useState } from 'preact/hooks';

import type { ListedMessage, MessagePage } from '../answers.js';
import { get } from '../api.js';
import { useLive } from '../live.js';
import type { LiveOptions } from '../live.js';
import { Pager } from '../parts/pager.js';
import { count } from '../shown.js';

export const pageSize = 50;

type Found = { messages: ListedMessage[]; next: string | null; searched: number };

type Further = Found & { state: 'searching' | 'stopped' | 'searched'; error?: Error };

export type Search = {
  /** Undefined: no answer yet. */
  messages: ListedMessage[] | undefined;
  next: string | null;
  /** How many entries were searched so far. */
  searched: number;
  /** `live`: one request was enough, and is repeated. */
  state: 'live' | Further['state'];
  error: Error | undefined;
  loading: boolean;
  refresh: () => void;
  stop: () => void;
  goOn: () => void;
  /** Repeats what has failed. */
  again: () => void;
};

export function useSearch(address: string, options: LiveOptions): Search {
  const [further, setFurther] = useState<Further>();
  const running = useRef<AbortController | undefined>(undefined);
  const { data, error, loading, refresh } = useLive<MessagePage>(address, {
    ...options,
    paused: options.paused === true || further !== undefined,
  });
  const run = (from: Found): void => {
    running.current?.abort();
    const stop = new AbortController();
    running.current = stop;
    setFurther({ ...from, state: 'searching' });
    void goThrough(options.prepare?.(address) ?? address, from, stop.signal, setFurther);
  };
  useEffect(() => {
    if (loading) return undefined;
    if (data === undefined || isFull(data)) setFurther(undefined);
    else run({ messages: data.messages, next: data.next, searched: data.searchedInAll });
    return () => running.current?.abort();
  }, [data, loading]);
  // until the next filter has an answer, the rows of the previous one stay
  const found = further ?? { ...data, searched: data?.searchedInAll ?? 0, state: 'live' as const };
  const goOn = (): void => further && run(further);
  return {
    messages: found.messages,
    next: found.next ?? null,
    searched: found.searched,
    state: found.state,
    error: error ?? further?.error,
    loading,
    refresh,
    stop() {
      running.current?.abort();
      setFurther((before) => before && { ...before, state: 'stopped' });
    },
    goOn,
    again: found.state === 'stopped' ? goOn : refresh,
  };
}

function isFull({ messages, next }: Pick<Found, 'messages' | 'next'>): boolean {
  return next === null || messages.length >= pageSize;
}

/** Searches on until the page is full, and tells how far it has come. */
async function goThrough(
  address: string,
  from: Found,
  stop: AbortSignal,
  tell: (further: Further) => void,
): Promise<void> {
  const [path = '', text] = address.split('?', 2);
  let found = from;
  try {
    while (!isFull(found)) {
      const query = new URLSearchParams(text);
      query.set('next', found.next ?? '');
      query.set('limit', String(pageSize - found.messages.length));
      const page = await get<MessagePage>(`${path}?${query.toString()}`, stop);
      if (stop.aborted) return;
      found = {
        messages: [...found.messages, ...page.messages],
        next: page.next,
        searched: page.searchedInAll,
      };
      tell({ ...found, state: isFull(found) ? 'searched' : 'searching' });
    }
  } catch (error) {
    if (!stop.aborted) tell({ ...found, state: 'stopped', error: error as Error });
  }
}

/** What an empty list says; `none` only when everything was searched. */
export function emptyWords({ state, next }: Search, none: string): string {
  if (state === 'stopped') return 'Nothing found so far; there is more to search.';
  return state === 'searching' || next !== null ? 'Searching…' : none;
}

/** The pager of the list, and how far the search has come, with the button that stops it or goes on. */
export function SearchPager({ search }: { search: Search }) {
  const isUnfinished = search.state === 'searching' || search.state === 'stopped';
  return (
    <Pager next={isUnfinished ? null : search.next}>
      <Progress search={search} />
    </Pager>
  );
}

function Progress({ search }: { search: Search }) {
  const { messages, searched, state } = search;
  if (messages === undefined) return null;
  if (state === 'live') return <>{count(messages.length)} shown</>;
  const so = `searched ${count(searched)}, found ${count(messages.length)}`;
  if (state === 'searched')
    return (
      <span class="search-progress">
        {count(messages.length)} shown, {so}
        <button type="button" class="small" onClick={search.refresh}>
          Search again
        </button>
      </span>
    );
  return (
    <span class="search-progress">
      {state === 'searching' ? `Searching: ${so}` : `Stopped: ${so}; there is more to search`}
      <button
        type="button"
        class="small"
        onClick={state === 'searching' ? search.stop : search.goOn}
      >
        {state === 'searching' ? 'Stop' : 'Search on'}
      </button>
    </span>
  );
}
