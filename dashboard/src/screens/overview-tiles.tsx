// The numbers of the overview. Each tile keeps its size, and says so where there is no data yet.

import type { Overview } from '../answers.js';
import { Spark } from '../parts/chart.js';
import type { Line } from '../parts/chart.js';
import { linkTo } from '../route.js';
import { count, countUpTo, milliseconds, rate, seconds, share } from '../shown.js';

/** Nothing counted and nobody there to count is not a zero. */
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

const countedAtMost = 100_000;

export function Tiles({ overview }: { overview: Overview | undefined }) {
  return (
    <ul class="tiles">
      {tilesOf(overview).map((tile) => (
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

function tilesOf(overview: Overview | undefined): Tile[] {
  const points = overview?.points ?? [];
  const health = overview?.health ?? {};
  const sum = (pick: (point: Overview['points'][number]) => number): number =>
    points.reduce((total, point) => total + pick(point), 0);
  const counted = points.some(
    (point) => point.waiting !== null || point.out > 0 || point.failed > 0,
  );
  const out = sum((point) => point.out);
  const failed = sum((point) => point.failed);
  const died = sum((point) => point.died);
  const last = <T,>(pick: (point: Overview['points'][number]) => T | null): T | null =>
    points.map(pick).findLast((value) => value !== null) ?? null;
  const known = (value: number | null | undefined, shown: (value: number) => string) =>
    value === null || value === undefined ? null : shown(value);
  const today = counted || (overview?.deliveredToday ?? 0) + (overview?.diedToday ?? 0) > 0;
  const atMost = (value: number): string => countUpTo(value, countedAtMost);
  return [
    {
      name: 'In',
      value: known(
        last((point) => point.in),
        rate,
      ),
      note: 'per second',
      spark: { values: points.map((point) => point.in), colour: 'blue' },
    },
    {
      name: 'Out',
      value: counted ? rate(points.at(-1)?.out) : null,
      note: 'per second',
      spark: { values: points.map(outOf), colour: 'green' },
    },
    {
      name: 'Waiting',
      value: known(health['waiting'], atMost),
      note: `${count(health['processing'] ?? 0)} with a relay`,
      spark: { values: points.map((point) => point.waiting), colour: 'blue' },
      link: linkTo('messages', { status: 'waiting' }),
    },
    {
      name: 'Oldest due',
      value: known(health['oldest_waiting_seconds'], seconds) ?? (overview ? 'none' : null),
      note: 'since it was due',
      bad: (health['oldest_waiting_seconds'] ?? 0) > 300,
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
      name: 'Processed today',
      value: today ? count(overview?.deliveredToday) : null,
      note: 'since midnight UTC',
    },
    {
      name: 'Success rate',
      value: out + failed > 0 ? share(out / (out + failed)) : null,
      note: 'of tries in this range',
    },
    {
      name: 'Retrying',
      value: known(health['retrying'], atMost),
      note: 'wait for another try',
      link: linkTo('messages', { status: 'retrying' }),
    },
    {
      name: 'Dead',
      value: known(health['dead'], atMost),
      note: today ? `${count(overview?.diedToday)} died today` : 'need a person',
      link: linkTo('dead-letters'),
      bad: (health['dead'] ?? 0) > 0,
    },
    {
      name: 'Dead rate',
      value: out + died > 0 ? share(died / (out + died)) : null,
      note: 'of those that ended',
    },
  ];
}
