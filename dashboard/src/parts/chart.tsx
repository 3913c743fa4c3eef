// Line chart over time, drawn as SVG. Missing data is a gap, never a zero.

import { useRef } from 'preact/hooks';

import { goTo } from '../route.js';
import { timeOf, useGroup } from './chart-group.js';
import type { ChartGroup } from './chart-group.js';
import { shownTime } from './time.js';

export type Line = {
  name: string;
  /** One of the colours of style/parts.css. */
  colour: 'blue' | 'green' | 'amber' | 'red' | 'grey';
  values: readonly (number | null)[];
  area?: boolean;
};

type ChartProps = {
  title: string;
  at: readonly string[];
  lines: readonly Line[];
  shown: (value: number) => string;
  /** Values for the top of the axis; the smallest that fits is used. Default: 1, 2 or 5 times a power of ten. */
  tops?: readonly number[];
  /** The address of the messages behind the point of this time. */
  behind?: (from: Date, to: Date) => string;
};

/** Seconds whose halves are round numbers too. */
export const timeTops = [
  1, 2, 4, 10, 20, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 345_600,
];

const width = 600;
const height = 120;

export function Chart({ title, at, lines, shown, tops = [], behind }: ChartProps) {
  const group = useGroup();
  const values = lines.flatMap((line) => line.values.filter((value) => value !== null));
  const largest = Math.max(0, ...values);
  const top = tops.find((each) => each >= largest) ?? niceTop(largest);
  const place = group.pointed === undefined ? -1 : at.indexOf(group.pointed);
  const pointed = place === -1 ? undefined : place;
  const index = pointed ?? at.length - 1;
  const selected = group.selected?.map((moment) => at.indexOf(moment));
  const handlers = usePointing(at, index, group, behind);
  const texts = lines.map(({ name, values: all }) => {
    const value = pointed === undefined ? lastOf(all) : (all[index] ?? null);
    return { name, text: value === null ? '–' : shown(value) };
  });
  const time = at[index] === undefined ? '' : shownTime(new Date(at[index]));
  return (
    <section class="panel chart">
      <header>
        <h2>{title}</h2>
        <span class="muted chart-time">{pointed !== undefined && time}</span>
      </header>
      <ul class="legend">
        {lines.map((line, number) => (
          <li key={line.name}>
            <span class={`swatch ${line.colour}`} /> {line.name} <b>{texts[number]?.text}</b>
          </li>
        ))}
      </ul>
      <div class="plot">
        {values.length === 0 ? (
          <p class="no-data">No data yet{stepOf(at)}</p>
        ) : (
          <>
            <svg
              viewBox={`0 0 ${width} ${height}`}
              preserveAspectRatio="none"
              class={behind === undefined ? '' : 'opens'}
              role="slider"
              aria-label={`${title} over time`}
              aria-valuemin={0}
              aria-valuemax={at.length - 1}
              aria-valuenow={index}
              aria-valuetext={`${time}: ${texts.map(({ name, text }) => `${name} ${text}`).join(', ')}`}
              tabIndex={0}
              {...handlers}
            >
              {[0, 0.5, 1].map((part) => (
                <line
                  key={part}
                  class="grid"
                  x1="0"
                  x2={width}
                  y1={part * height}
                  y2={part * height}
                />
              ))}
              {lines.map((line) => (
                <g key={line.name} class={line.colour}>
                  {line.area && <path class="area" d={areaOf(line.values, top)} />}
                  <path class="line" d={pathOf(line.values, top)} />
                </g>
              ))}
              {selected !== undefined && !selected.includes(-1) && (
                <rect
                  class="selected"
                  x={xOf(Math.min(...selected), at.length)}
                  width={
                    xOf(Math.max(...selected), at.length) - xOf(Math.min(...selected), at.length)
                  }
                  y="0"
                  height={height}
                />
              )}
              {pointed !== undefined && (
                <line
                  class="cursor"
                  x1={xOf(index, at.length)}
                  x2={xOf(index, at.length)}
                  y1="0"
                  y2={height}
                />
              )}
            </svg>
            <span class="top-label">{shown(top)}</span>
            <span class="middle-label">{shown(top / 2)}</span>
          </>
        )}
      </div>
      <div class="axis">
        <span>{at[0] !== undefined && shownTime(new Date(at[0])).slice(0, -3)}</span>
        <span class="chart-hint">{hintOf(group, behind)}</span>
        <span>{at.length > 0 && shownTime(new Date(at.at(-1) ?? '')).slice(0, -3)}</span>
      </div>
    </section>
  );
}

/** What the pointer can do in the chart. */
function hintOf({ zoom }: ChartGroup, behind: ChartProps['behind']): string {
  const actions = [zoom && 'drag to zoom', behind && 'click for messages'];
  return actions.filter(Boolean).join(', ');
}

/**
 * The pointer or the arrow keys show the values of one moment, in all charts of the group. Dragging, or Shift with the
 * arrow keys, selects a time to zoom into. A click or Enter opens the messages behind a moment.
 */
function usePointing(
  at: readonly string[],
  index: number,
  { selected, point, select, zoom }: ChartGroup,
  behind: ChartProps['behind'],
) {
  /** Where a drag began. */
  const began = useRef<number | undefined>(undefined);
  const last = at.length - 1;
  const placeOf = (event: PointerEvent): number => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const place = Math.round(((event.clientX - box.left) / box.width) * last);
    return Math.max(0, Math.min(last, place));
  };
  const selectFrom = (first: number, to: number): void => {
    const [one, other] = [at[first], at[to]];
    if (one !== undefined && other !== undefined) select(first === to ? undefined : [one, other]);
  };
  const open = (place: number): void => {
    const time = timeOf(at, place, place);
    if (time !== null && behind !== undefined) goTo(behind(...time));
  };
  const zoomIn = (first: number, to: number): void => {
    const time = timeOf(at, first, to);
    select(undefined);
    point(undefined);
    if (time !== null) zoom?.(...time);
  };
  return {
    onPointerDown(event: PointerEvent) {
      if (event.button !== 0) return;
      began.current = placeOf(event);
      if (event.pointerType === 'mouse')
        (event.currentTarget as Element).setPointerCapture(event.pointerId);
    },
    onPointerMove(event: PointerEvent) {
      const place = placeOf(event);
      point(at[place]);
      if (began.current !== undefined && zoom !== undefined) selectFrom(began.current, place);
    },
    onPointerUp(event: PointerEvent) {
      const [first, place] = [began.current, placeOf(event)];
      began.current = undefined;
      if (first === undefined) return;
      if (first === place) open(place);
      else if (zoom !== undefined) zoomIn(first, place);
    },
    onPointerCancel() {
      began.current = undefined;
      select(undefined);
    },
    onPointerLeave() {
      if (began.current === undefined) point(undefined);
    },
    onKeyDown(event: KeyboardEvent) {
      const by = event.key === 'ArrowLeft' ? -1 : event.key === 'ArrowRight' ? 1 : 0;
      const start = selected === undefined ? index : at.indexOf(selected[0]);
      if (by !== 0) {
        event.preventDefault();
        const place = Math.max(0, Math.min(last, index + by));
        point(at[place]);
        if (event.shiftKey && zoom !== undefined) selectFrom(start, place);
        else select(undefined);
      } else if (event.key === 'Enter') {
        if (selected === undefined) open(index);
        else zoomIn(start, index);
      } else if (event.key === 'Escape') {
        select(undefined);
        point(undefined);
      }
    },
    onBlur() {
      select(undefined);
      point(undefined);
    },
  };
}

/** A line without axes, for a tile. */
export function Spark({ values, colour }: Pick<Line, 'values' | 'colour'>) {
  const top = Math.max(...values.map((value) => value ?? 0)) || 1;
  return (
    <svg
      class={`spark ${colour}`}
      viewBox={`0 0 ${width} ${height}`}
      preserveAspectRatio="none"
      aria-hidden="true"
    >
      <path class="area" d={areaOf(values, top)} />
      <path class="line" d={pathOf(values, top)} />
    </svg>
  );
}

function xOf(index: number, length: number): number {
  return length < 2 ? 0 : (index / (length - 1)) * width;
}

function runsOf(values: Line['values'], top: number): string[][] {
  const runs: string[][] = [[]];
  values.forEach((value, index) => {
    if (value === null) return void runs.push([]);
    const y = height - (value / (top || 1)) * (height - 4) - 2;
    runs.at(-1)?.push(`${xOf(index, values.length).toFixed(1)},${y.toFixed(1)}`);
  });
  // a single point would be invisible
  return runs
    .filter((run) => run.length > 0)
    .map((run) =>
      run.length === 1
        ? [...run, `${Number(run[0]?.split(',')[0]) + 3},${run[0]?.split(',')[1] ?? 0}`]
        : run,
    );
}

function pathOf(values: Line['values'], top: number): string {
  return runsOf(values, top)
    .map((run) => `M${run.join('L')}`)
    .join('');
}

function areaOf(values: Line['values'], top: number): string {
  return runsOf(values, top)
    .map((run) => {
      const first = run[0]?.split(',')[0] ?? 0;
      const last = run.at(-1)?.split(',')[0] ?? 0;
      return `M${first},${height}L${run.join('L')}L${last},${height}Z`;
    })
    .join('');
}

/** Says how often points are added, so that a new user knows how long to wait. */
function stepOf([first, second]: readonly string[]): string {
  if (first === undefined || second === undefined) return '';
  const stepSeconds = Math.round((Date.parse(second) - Date.parse(first)) / 1000);
  const minutes = Math.round(stepSeconds / 60);
  if (stepSeconds < 60) return `: a point every ${stepSeconds} seconds`;
  return `: a point ${minutes === 1 ? 'every minute' : `every ${minutes} minutes`}`;
}

function lastOf(values: Line['values']): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

/** 1, 2 or 5 times a power of ten. */
function niceTop(largest: number): number {
  if (largest === 0) return 1;
  const power = 10 ** Math.floor(Math.log10(largest));
  return ([1, 2, 5, 10].find((factor) => factor * power >= largest) ?? 10) * power;
}
