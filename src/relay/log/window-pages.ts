// Pages of one window, in order. While a page is processed, the next pages are read and the ones after them planned,
// on separate connections, so the database and this process work at the same time.

import type { Database } from '../../database/connection.js';
import { planWindow, readPage } from '../../database/windows.js';
import type { LogPart, PageSize, PlannedPage, Window } from '../../database/windows.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';

export type Page = {
  messages: ClaimedMessage[];
  position: string;
  /** Nothing is left of the window. */
  finished: boolean;
};

/** Pages that are read ahead of the one that is processed. */
const pagesAhead = 2;
/** Pages planned in one call. */
export const plannedPages = 4;

/** `size` is called before each plan. With one page per plan, nothing is read ahead. */
export async function* pagesOf(
  database: Database,
  window: Window,
  part: LogPart,
  size: () => PageSize,
): AsyncGenerator<Page> {
  const planned = plannedPagesOf(window, size, async (position) =>
    planWindow(database, window, position, part, size()),
  );
  const next = async (): Promise<Page | undefined> => {
    const { value: page } = await planned.next();
    if (page === undefined) return undefined;
    const { messages, until: position, finished } = page;
    const read = messages === 0 ? [] : await readPage(database, window, page, part);
    return { messages: read, position, finished };
  };
  const inFlight: Promise<Page | undefined>[] = [];
  for (;;) {
    const ahead = isEager(size()) ? pagesAhead : 0;
    while (inFlight.length <= ahead) inFlight.push(handled(next()));
    const page = await inFlight.shift();
    if (page === undefined) return;
    yield page;
  }
}

/** Makes the next plan while the pages of the current one are read. */
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

/** Prevents an unhandled rejection if no caller awaits the promise any more. */
function handled<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}
