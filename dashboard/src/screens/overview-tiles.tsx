// Tiles of the overview. Each tile has a fixed size, and says so if there is no data yet.

import type { Overview } from '../answers.js';
import { Spark } from '../parts/chart.js';
import type { Line } from '../parts/chart.js';
import { linkTo } from '../route.js';
import { about, count, milliseconds, rate, seconds, share } from '../shown.js';

/** Null if no relay was there to count: that is not a zero. */
export function outOf(point: Overview['points'][number]): number | null {
  const sampled = point.in !== null || point.waiting !== null;
  return sampled || point.out > 0 || point.failed > 0 ? point.out : null;
}

type Tile = {
  name: string;
  /** Null: no data yet. */
  value: string | null;
  note: string;
  spark?: Pick<Line, 'values' | 'colour'>;
  link?: string;
  bad?: boolean;
};

type TilesProps = {
  /** The last minutes. */
  now: Overview | undefined;
  /** The range of the charts. */
  range: Overview | undefined;
};

export function Tiles({ now, range }: TilesProps) {
  return (
    <ul class="tiles">
      {tilesOf(now, range).map((tile) => (
        <li key={tile.name} class={`tile ${tile.bad ? 'bad' : ''}`} data-tile={tile.name}>
          <TileBody tile={tile} />
        </li>
      ))}
    </ul>
  );
}

function TileBody({ tile }: { tile: Tile }) {
  const body = (
    <>
      <span class="tile-name">{tile.name}</span>
      <span class={tile.value === null ? 'tile-none' : 'tile-value'}>
        {tile.value ?? 'no data yet'}
      </span>
      <span class="tile-note">{tile.note}</span>
      {tile.spark && tile.value !== null && <Spark {...tile.spark} />}
    </>
  );
  return tile.link === undefined ? <div>{body}</div> : <a href={tile.link}>{body}</a>;
}

type Point = Overview['points'][number];

/** The value over the last minute, which has six points of ten seconds. */
function lately(points: readonly Point[], pick: (point: Point) => number | null): number | null {
  const values = points.slice(-6).flatMap((point) => pick(point) ?? []);
  return values.length === 0 ? null : values.reduce((a, b) => a + b, 0) / values.length;
}

function tilesOf(now: Overview | undefined, range: Overview | undefined): Tile[] {
  const points = range?.points ?? [];
  const current = now?.points ?? [];
  const health = now?.health ?? {};
  const oldest = health['oldest_waiting_seconds'];
  const ofPaused = health['oldest_paused_seconds'] ?? 0;
  const waitsForPause = ofPaused > 0 && ofPaused >= (oldest ?? 0);
  const last = (pick: (point: Point) => number | null): number | null =>
    current.map(pick).findLast((value) => value !== null) ?? null;
  const known = (value: number | null | undefined, shown: (value: number) => string) =>
    value === null || value === undefined ? null : shown(value);
  const ended = (now?.deliveredToday ?? 0) + (now?.diedToday ?? 0);
  const today = ended > 0 || current.some((point) => outOf(point) !== null);
  return [
    {
      name: 'In',
      value: known(
        lately(current, (point) => point.in),
        rate,
      ),
      note: 'per second',
      spark: { values: points.map((point) => point.in), colour: 'blue' },
    },
    {
      name: 'Out',
      value: known(lately(current, outOf), rate),
      note: 'per second',
      spark: { values: points.map(outOf), colour: 'green' },
    },
    {
      name: 'Waiting',
      value: known(health['waiting'], about),
      note: `${count(health['processing'] ?? 0)} processing`,
      spark: { values: points.map((point) => point.waiting), colour: 'blue' },
      link: linkTo('messages', { status: 'pending' }),
    },
    {
      name: 'Oldest due',
      value: known(oldest, seconds) ?? (now ? 'none' : null),
      note: waitsForPause ? 'its destination is paused' : 'since it was due',
      bad: (oldest ?? 0) > 300,
    },
    {
      name: 'Average',
      value: known(
        last((point) => point.averageMs),
        milliseconds,
      ),
      note: 'time to delivery',
      spark: { values: points.map((point) => point.averageMs), colour: 'grey' },
    },
    {
      name: 'p50',
      value: known(
        last((point) => point.p50Ms),
        milliseconds,
      ),
      note: 'time to delivery',
    },
    {
      name: 'p99',
      value: known(
        last((point) => point.p99Ms),
        milliseconds,
      ),
      note: 'time to delivery',
    },
    {
      name: 'Delivered today',
      value: today ? count(now?.deliveredToday) : null,
      note: 'since midnight UTC',
    },
    {
      name: 'Success rate',
      value: known(health['success_rate'], share),
      note: 'of tries, last 5 min',
    },
    {
      name: 'Retrying',
      value: known(health['retrying'], about),
      note: 'wait for another try',
      link: linkTo('messages', { status: 'retrying' }),
    },
    {
      name: 'Dead',
      value: known(health['dead'], about),
      note: today ? `${count(now?.diedToday)} died today` : 'need an operator',
      link: linkTo('dead-letters'),
      bad: (health['dead'] ?? 0) > 0,
    },
    {
      name: 'Delivery rate',
      value: known(health['delivery_rate'], share),
      note:
        known(health['delivery_rate'], (delivered) => `dead rate ${share(1 - delivered)}, 5 min`) ??
        'of those that ended',
    },
  ];
}
