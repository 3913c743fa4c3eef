// Time range of the charts of a screen: the last minutes to days, or a time that the user has zoomed into. It is in the
// address, so Back zooms out, and the other parameters of the address stay.

import { useCallback } from 'preact/hooks';

import { useNewGroup } from './chart-group.js';
import type { ChartGroup } from './chart-group.js';
import { shownTime } from './time.js';
import { goTo, linkTo, usePlace } from '../route.js';

type Range = readonly [name: string, minutes: number, words: string];

const ranges: readonly Range[] = [
  ['15m', 15, '15 min'],
  ['1h', 60, '1 h'],
  ['6h', 360, '6 h'],
  ['24h', 1440, '24 h'],
  ['7d', 10_080, '7 d'],
  ['30d', 43_200, '30 d'],
];

/** The shortest time that charts can show. */
const shortestMs = 60_000;

export type TimeRange = {
  /** The parameters of a request for the charts; null while it is not known which range is usual. */
  asked: Record<string, string | number> | null;
  /** How often the charts change. */
  everyMs: number;
  group: ChartGroup;
  /** The name of the shown range, unless a zoomed time is shown. */
  name: string | undefined;
  zoomed: { from: string; to: string } | undefined;
  /** This screen with another range; undefined: the chosen one, without the zoom. */
  linkOf: (name: string | undefined) => string;
};

/**
 * The range of the address, or the usual one: of `usualMinutes`, or a shorter one if the data is younger. `since`: when
 * the data begins, null if there is none, undefined while this is not known.
 */
export function useTimeRange(
  since: string | null | undefined,
  usualMinutes: number,
  now = Date.now(),
): TimeRange {
  const { path, query } = usePlace();
  const here = path.map(encodeURIComponent).join('/');
  const [from, to] = [query.get('from'), query.get('to')];
  const isZoomed = from !== null && to !== null && !Number.isNaN(Date.parse(from) + Date.parse(to));
  const chosen = query.get('range');
  const linkOf = (range: string | undefined): string => {
    const changed = new URLSearchParams(query);
    if (range !== undefined) changed.set('range', range);
    for (const name of ['from', 'to']) changed.delete(name);
    return linkTo(here, changed);
  };
  const address = query.toString();
  const zoom = useCallback(
    (first: Date, last: Date) => {
      const start = Math.min(first.getTime(), last.getTime() - shortestMs);
      const changed = new URLSearchParams(address);
      changed.set('from', new Date(start).toISOString());
      changed.set('to', last.toISOString());
      goTo(linkTo(here, changed));
    },
    [here, address],
  );
  const group = useNewGroup(zoom);
  const range =
    ranges.find(([name]) => name === chosen) ??
    (since === undefined ? undefined : usualRange(since, usualMinutes, now));
  const minutes = range?.[1];
  return {
    asked: isZoomed ? { from, to } : minutes === undefined ? null : { minutes },
    // charts of more than an hour need fewer updates
    everyMs: isZoomed || minutes === undefined || minutes > 60 ? 60_000 : 10_000,
    group,
    name: isZoomed ? undefined : range?.[0],
    zoomed: isZoomed ? { from, to } : undefined,
    linkOf,
  };
}

/** The shortest range that has all data, if it is shorter than the usual one. */
function usualRange(since: string | null, usualMinutes: number, now: number): Range | undefined {
  const minutes = since === null ? 0 : (now - Date.parse(since)) / 60_000;
  return ranges.find(([, each]) => each >= Math.min(minutes, usualMinutes));
}

type Props = {
  range: TimeRange;
  /** Up to this one. */
  longest: string;
};

/** The ranges as links, and the zoomed time with a link that leaves it. */
export function TimeRanges({ range: { name: shown, zoomed, linkOf }, longest }: Props) {
  const last = ranges.findIndex(([name]) => name === longest);
  return (
    <>
      {zoomed && (
        <span class="zoomed">
          {shownTime(new Date(zoomed.from))} to {shownTime(new Date(zoomed.to))}{' '}
          <a class="button small" href={linkOf(undefined)}>
            Zoom out
          </a>
        </span>
      )}
      <nav class="segments" aria-label="Time range">
        {ranges.slice(0, last + 1).map(([name, , words]) => (
          <a key={name} href={linkOf(name)} aria-current={name === shown ? 'true' : undefined}>
            {words}
          </a>
        ))}
      </nav>
    </>
  );
}
