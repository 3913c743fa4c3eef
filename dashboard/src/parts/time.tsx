// Shows times: local time in the text, UTC in the title.

import { seconds } from '../shown.js';

const clock = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
});
const day = new Intl.DateTimeFormat(undefined, { day: '2-digit', month: 'short' });
const dayOfYear = new Intl.DateTimeFormat(undefined, {
  day: '2-digit',
  month: 'short',
  year: 'numeric',
});

export function shownTime(at: Date, now = new Date()): string {
  if (at.toDateString() === now.toDateString()) return clock.format(at);
  const date = at.getFullYear() === now.getFullYear() ? day : dayOfYear;
  return `${date.format(at)} ${clock.format(at)}`;
}

export function Time({ at }: { at: string | null | undefined }) {
  if (at === null || at === undefined) return <span class="muted">–</span>;
  const date = new Date(at);
  return (
    <time dateTime={at} title={`${date.toISOString().replace('T', ' ').replace('Z', '')} UTC`}>
      {shownTime(date)}
    </time>
  );
}

/** The time that has passed since, or that is left until then. */
export function Ago({ at }: { at: string | null | undefined }) {
  if (at === null || at === undefined) return <span class="muted">–</span>;
  const date = new Date(at);
  const passed = (Date.now() - date.getTime()) / 1000;
  return (
    <time dateTime={at} title={`${date.toISOString().replace('T', ' ').replace('Z', '')} UTC`}>
      {passed >= 0 ? `${seconds(passed)} ago` : `in ${seconds(-passed)}`}
    </time>
  );
}
