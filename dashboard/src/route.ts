// Route of the page: the screen and its filters, in the fragment of the address (#). It survives a reload, can be
// shared as a link, works with the back button, and needs no support from proxies.

import { useEffect, useMemo, useState } from 'preact/hooks';

export type Place = { path: string[]; query: URLSearchParams };

export function placeOf(hash: string): Place {
  const [path = '', query = ''] = hash.replace(/^#?\/?/, '').split('?', 2);
  return {
    path: path.split('/').filter(Boolean).map(decoded),
    query: new URLSearchParams(query),
  };
}

/** A part that is not encoded properly stays as it is: it names nothing that exists. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** An address on this page; empty and undefined parameters are left out. */
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
    // the address may have changed between the first render and now
    changed();
    return () => removeEventListener('hashchange', changed);
  }, []);
  return useMemo(() => placeOf(hash), [hash]);
}
