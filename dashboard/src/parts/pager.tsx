// Pager: links to the next page. The position is in the address, so that the back button works.

import type { ComponentChildren } from 'preact';

import { linkTo, usePlace } from '../route.js';

type PagerProps = { next: string | null; nextLabel?: string; children?: ComponentChildren };

export function Pager({ next, nextLabel = 'Next page', children }: PagerProps) {
  const { path, query } = usePlace();
  const at = (place: string | null): string => {
    const changed = new URLSearchParams(query);
    if (place === null) changed.delete('next');
    else changed.set('next', place);
    return linkTo(path.map(encodeURIComponent).join('/'), changed);
  };
  return (
    <nav class="pager" aria-label="Pages">
      <span class="muted">{children}</span>
      {query.has('next') && <a href={at(null)}>First page</a>}
      {next !== null && (
        <a class="button" href={at(next)} rel="next">
          {nextLabel}
        </a>
      )}
    </nav>
  );
}
