// Search for messages: the first page is live. If it ends before the page is full, the search goes on by itself, request
// by request, until the page is full, everything was searched, or the user stops it.

import { useEffect, useRef, useState } from 'preact/hooks';

import type { ListedMessage, MessagePage } from '../answers.js';
import { get } from '../api.js';
import { useLive } from '../live.js';

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
};

export function useSearch(
  address: string,
  { paused, prepare }: { paused: boolean; prepare: (address: string) => string },
): Search {
  const [further, setFurther] = useState<Further>();
  const running = useRef<AbortController | undefined>(undefined);
  const { data, error, loading, refresh } = useLive<MessagePage>(address, {
    everyMs: 2000,
    paused: paused || further !== undefined,
    prepare,
  });
  const run = (from: Found): void => {
    running.current?.abort();
    const stop = new AbortController();
    running.current = stop;
    setFurther({ ...from, state: 'searching' });
    void goThrough(prepare(address), from, stop.signal, setFurther);
  };
  useEffect(() => {
    if (loading) return undefined;
    if (data === undefined || isFull(data)) setFurther(undefined);
    else run({ messages: data.messages, next: data.next, searched: data.searchedInAll });
    return () => running.current?.abort();
  }, [data, loading]);
  // until the next filter has an answer, the rows of the previous one stay
  const found = further ?? { ...data, searched: data?.searchedInAll ?? 0, state: 'live' as const };
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
    goOn() {
      if (further !== undefined) run(further);
    },
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
