// Several searches as one list: the pages of the first, then those of the next. The position of a page names its search
// and has the number of entries that the searches before it have read: `retrying.1200.POSITION`.

import { ConfigurationError, shown } from '../core/errors.js';

/** The search ends after `budgetMs`. */
export type WantedPage = { limit: number; next?: string; budgetMs?: number };

type Page<Row> = {
  messages: Row[];
  next: string | null;
  searched: number;
  searchedInAll: number;
};

export async function listInTurn<Name extends string, Row>(
  names: readonly [Name, ...Name[]],
  { limit, next: given, budgetMs }: WantedPage,
  list: (name: Name, page: WantedPage) => Promise<Page<Row>>,
): Promise<Page<Row>> {
  const startedMs = performance.now();
  const leftMs = (): number => startedMs + (budgetMs ?? Infinity) - performance.now();
  let { name, before, next } = readPlace(names, given);
  const messages: Row[] = [];
  let searched = 0;
  for (;;) {
    const page = await list(name, {
      limit: limit - messages.length,
      ...(next !== '' && { next }),
      ...(budgetMs !== undefined && { budgetMs: leftMs() }),
    });
    messages.push(...page.messages);
    searched += page.searched;
    const searchedInAll = before + page.searchedInAll;
    const found = { messages, searched, searchedInAll };
    if (page.next !== null) return { ...found, next: `${name}.${before}.${page.next}` };
    const following = names[names.indexOf(name) + 1];
    if (following === undefined) return { ...found, next: null };
    [name, before, next] = [following, searchedInAll, ''];
    // also without time left: the next part then makes one short step
    if (messages.length >= limit) return { ...found, next: `${name}.${before}.` };
  }
}

function readPlace<Name extends string>(
  names: readonly [Name, ...Name[]],
  text: string | undefined,
): { name: Name; before: number; next: string } {
  if (text === undefined) return { name: names[0], before: 0, next: '' };
  const [word, before = '', next] = text.split('.');
  const name = names.find((each) => each === word);
  if (name === undefined || next === undefined || !/^\d{1,15}$/.test(before))
    throw new ConfigurationError(`next is ${shown(text)}: pass next from the previous page`);
  return { name, before: Number(before), next };
}
