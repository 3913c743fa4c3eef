// The pages of one window in turn. While one is processed the next ones are on their way, on connections of their
// own, and where those behind them end is being planned: the database finds, sends and plans at the same time as
// this process reads and delivers.

import type { Database } from '../database/connection.js';
import type { CursorFilter } from '../database/cursors.js';
import { planWindow, readPage } from '../database/windows.js';
import type { PageSize, PlannedPage, Window } from '../database/windows.js';
import type { ClaimedMessage } from '../model/claimed-message.js';

export type Page = {
  messages: ClaimedMessage[];
  position: string;
  /** Nothing is left of the window. */
  finished: boolean;
};

/** Pages under way beside the one that is processed. */
const pagesAhead = 2;
/** Pages whose ends are found in one call. */
export const plannedPages = 4;

/** `size` is asked before each plan: with one page at a time, nothing is read before it is needed. */
export async function* pagesOf(
  database: Database,
  window: Window,
  filters: readonly CursorFilter[],
  size: () => PageSize,
): AsyncGenerator<Page> {
  const planned = plannedPagesOf(window, size, async (position) =>
    planWindow(database, window, position, filters, size()),
  );
  const next = async (): Promise<Page | undefined> => {
    const { value: page } = await planned.next();
    if (page === undefined) return undefined;
    const { messages, until: position, finished } = page;
    const read = messages === 0 ? [] : await readPage(database, window, page, filters);
    return { messages: read, position, finished };
  };
  const underWay: Promise<Page | undefined>[] = [];
  for (;;) {
    const ahead = isEager(size()) ? pagesAhead : 0;
    while (underWay.length <= ahead) underWay.push(handled(next()));
    const page = await underWay.shift();
    if (page === undefined) return;
    yield page;
  }
}

/** While those of one plan are read, the next plan is made. */
async function* plannedPagesOf(
  window: Window,
  size: () => PageSize,
  plan: (position: string) => Promise<PlannedPage[]>,
): AsyncGenerator<PlannedPage, undefined> {
  let pages = window.pages;
  for (;;) {
    const last = pages.at(-1);
    if (last === undefined) return;
    const more = !last.finished && isEager(size()) ? handled(plan(last.until)) : undefined;
    yield* pages;
    if (last.finished) return;
    pages = await (more ?? plan(last.until));
  }
}

function isEager({ pages }: PageSize): boolean {
  return pages > 1;
}

/** Its failure is told to whoever waits for it, if anybody still does. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
