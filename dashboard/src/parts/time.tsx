// Shows times in the zone of the page; the title has the whole time and the zone.

import { seconds } from '../shown.js';
import { currentZone, isoTime, offsetOf, zoneName } from '../zone.js';

const local = formatsIn(undefined);
const utc = formatsIn('UTC');

function formatsIn(timeZone: string | undefined) {
  const dayAndMonth = { timeZone, day: '2-digit', month: 'short' } as const;
  return {
    clock: new Intl.DateTimeFormat(undefined, {
      timeZone,
      hour: '2-digit',
      minute: '2-digit',
      second: '2-digit',
      hourCycle: 'h23',
    }),
    day: new Intl.DateTimeFormat(undefined, dayAndMonth),
    dayOfYear: new Intl.DateTimeFormat(undefined, { ...dayAndMonth, year: 'numeric' }),
  };
}

export function shownTime(at: Date, now = new Date()): string {
  const { clock, day, dayOfYear } = currentZone() === 'UTC' ? utc : local;
  const [date, today] = [isoTime(at).slice(0, 10), isoTime(now).slice(0, 10)];
  if (date === today) return clock.format(at);
  const format = date.slice(0, 4) === today.slice(0, 4) ? day : dayOfYear;
  return `${format.format(at)} ${clock.format(at)}`;
}

function wholeTime(at: Date): string {
  return `${isoTime(at)}${offsetOf(at)} ${zoneName()}`;
}

export function Time({ at }: { at: string | null | undefined }) {
  if (at === null || at === undefined) return <span class="muted">–</span>;
  const date = new Date(at);
  return (
    <time dateTime={at} title={wholeTime(date)}>
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
    <time dateTime={at} title={wholeTime(date)}>
      {passed >= 0 ? `${seconds(passed)} ago` : `in ${seconds(-passed)}`}
    </time>
  );
}

const inSentence = /\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC/;

/** A sentence of the database, which writes times in UTC, with its times in the zone of the page. */
export function WithTimes({ text }: { text: string }) {
  const found = inSentence.exec(text);
  if (found === null) return <>{text}</>;
  const [time] = found;
  return (
    <>
      {text.slice(0, found.index)}
      <Time at={`${time.slice(0, 10)}T${time.slice(11, 19)}Z`} />
      <WithTimes text={text.slice(found.index + time.length)} />
    </>
  );
}
