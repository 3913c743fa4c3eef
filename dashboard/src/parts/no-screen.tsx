// Screen for an address that names no screen, or one that the token may not see.

import { Fragment } from 'preact';

import type { Entry } from '../entry.js';
import { linkTo } from '../route.js';
import { useTitle } from '../title.js';

type NoScreenProps = {
  /** The screen exists, and this token may not see it. */
  exists: boolean;
  offered: readonly Entry[];
};

export function NoScreen({ exists, offered }: NoScreenProps) {
  const title = exists ? 'Not for this token' : 'No such screen';
  useTitle(title);
  return (
    <>
      <header class="screen-head">
        <h1>{title}</h1>
      </header>
      {exists ? (
        <p class="notice">
          This token sees <Links entries={offered} /> only.
        </p>
      ) : (
        <p class="notice">
          No screen has this address. Open <Links entries={offered.slice(0, 1)} />.
        </p>
      )}
    </>
  );
}

/** Links as a list in a sentence: `Messages and Live tail`. */
function Links({ entries }: { entries: readonly Entry[] }) {
  const before = (index: number): string =>
    index === 0 ? '' : index === entries.length - 1 ? ' and ' : ', ';
  return (
    <>
      {entries.map(({ path, name }, index) => (
        <Fragment key={path}>
          {before(index)}
          <a href={linkTo(path)}>{name}</a>
        </Fragment>
      ))}
    </>
  );
}
