// Live data: polls the server while the screen is visible. The last answer stays on the screen during the next request
// and after an error: an old number is better than an empty place.

import { useEffect, useRef, useState } from 'preact/hooks';

import { ApiError, get, isOutage } from './api.js';

export type Live<T> = {
  data: T | undefined;
  error: Error | undefined;
  /** The address has had no answer yet. Until then, the data is that of the previous address. */
  loading: boolean;
  /** Polls all live data of the screen at once, also while it is paused or held: an action can change several tables. */
  refresh: () => void;
};

export type LiveOptions = {
  everyMs?: number;
  paused?: boolean;
  /** Also while the pointer or the keyboard is in a table. Not for what is in a table or above one: it would move rows. */
  always?: boolean;
  /** Adds parameters that depend on the time of the request. */
  prepare?: (address: string) => string;
};

/** How often a screen asks during an outage, also one that asks seldom. */
const outageMs = 5000;

let isPaused = false;
/** The tables that the pointer or the keyboard is in. */
const holding = new Set<object>();
const changes = new EventTarget();

function useChanging<T>(read: () => T): T {
  const [value, setValue] = useState(read);
  useEffect(() => {
    const changed = (): void => setValue(read);
    // it may have changed between the first render and now
    changed();
    changes.addEventListener('held', changed);
    return () => changes.removeEventListener('held', changed);
  }, []);
  return value;
}

/** Whether the user has paused the live updates of all screens, and a function that changes it. */
export function usePause(): [boolean, () => void] {
  const paused = useChanging(() => isPaused);
  const toggle = (): void => {
    isPaused = !isPaused;
    changes.dispatchEvent(new Event('held'));
  };
  return [paused, toggle];
}

/** Whether the pointer or the keyboard is in a table. */
export function useHeld(): boolean {
  return useChanging(() => holding.size > 0);
}

/** Holds live updates until each table has released them. */
export function hold(table: object, on: boolean): void {
  if (on) holding.add(table);
  else holding.delete(table);
  // the heading of the screen says so
  document.documentElement.toggleAttribute('data-held', holding.size > 0);
  changes.dispatchEvent(new Event('held'));
}

function refresh(): void {
  changes.dispatchEvent(new Event('refresh'));
}

/** A null address polls nothing. */
export function useLive<T>(
  address: string | null,
  { everyMs = 5000, paused = false, always = false, prepare }: LiveOptions = {},
): Live<T> {
  const [state, setState] = useState<{ data?: T; error?: Error; of: string | null }>({
    of: address,
  });
  const [turn, setTurn] = useState(0);
  const isHeld = useRef(paused);
  isHeld.current = paused;
  const waits = (): boolean => isHeld.current || isPaused || (!always && holding.size > 0);

  useEffect(() => {
    const again = (): void => setTurn((before) => before + 1);
    changes.addEventListener('refresh', again);
    return () => changes.removeEventListener('refresh', again);
  }, []);

  useEffect(() => {
    const stop = new AbortController();
    let timer: number | undefined;
    // the server was down: held updates ask too, until the error can be removed
    let failed = false;
    const later = (): void => {
      const waitMs = failed ? Math.min(everyMs, outageMs) : everyMs;
      if (!stop.signal.aborted) timer = window.setTimeout(() => void run(false), waitMs);
    };
    const run = async (first: boolean): Promise<void> => {
      if (address === null) return;
      if (!first && ((waits() && !failed) || document.hidden)) return later();
      try {
        const data = await get<T>(prepare?.(address) ?? address, stop.signal, { refresh: !first });
        // an answer that arrives while updates are held is not shown
        if (!stop.signal.aborted)
          setState((before) =>
            !first && waits() && before.of === address && before.data !== undefined
              ? { data: before.data, of: address }
              : { data, of: address },
          );
        failed = false;
      } catch (error) {
        if (!stop.signal.aborted)
          setState((before) => ({
            ...(before.of === address && before),
            error: error as Error,
            of: address,
          }));
        failed = isOutage(error);
        // it would be rejected again
        if (error instanceof ApiError && error.status === 400) return;
      }
      later();
    };
    void run(true);
    return () => {
      stop.abort();
      window.clearTimeout(timer);
    };
  }, [address, everyMs, turn]);

  const { data, of } = state;
  const error = of === address ? state.error : undefined;
  const answered = of === address && (data !== undefined || error !== undefined);
  return { data, error, loading: address !== null && !answered, refresh };
}
