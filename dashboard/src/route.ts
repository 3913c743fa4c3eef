// Where one is: the screen and its filters, in the part of the address behind #. It can be reloaded, sent to
// somebody, and gone back from; and no proxy has to know about it.

import { useEffect, useMemo, useState } from 'preact/hooks';

export type Place = { path: string[]; query: URLSearchParams };

export function placeOf(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#?\/?/, '').split('?', 2);
  return {
    path: path.split('/').filter(Boolean).map(decodeURIComponent),
    query: new URLSearchParams(query),
  };
}

/** An address on this page; what is empty or undefined is left out. */
export function linkTo(
  path: string,
  query: Record<string, string | null | undefined> | URLSearchParams = {},
): string {
  const entries = query instanceof URLSearchParams ? [...query] : Object.entries(query);
  const given = entries.filter((entry): entry is [string, string] => Boolean(entry[1]));
  const text = new URLSearchParams(given).toString();
  return `#/${path}${text === '' ? '' : `?${text}`}`;
}

export function goTo(link: string): void {
  location.hash = link;
}

export function usePlace(): Place {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = (): void => setHash(location.hash);
    addEventListener('hashchange', changed);
    // it may have changed between the first drawing and now
    changed();
    return () => removeEventListener('hashchange', changed);
  }, []);
  return useMemo(() => placeOf(hash), [hash]);
}
