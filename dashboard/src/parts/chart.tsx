// Line chart over time, drawn as SVG. Missing data is a gap, never a zero. The pointer or the arrow keys show the
// values of one moment.

import { useState } from 'preact/hooks';

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
};

/** Seconds whose halves are round numbers too. */
export const timeTops = [
  1, 2, 4, 10, 20, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 345_600,
];

const width = 600;
const height = 120;

export function Chart({ title, at, lines, shown, tops = [] }: ChartProps) {
  const [pointed, setPointed] = useState<number>();
  const values = lines.flatMap((line) => line.values.filter((value) => value !== null));
  const largest = Math.max(0, ...values);
  const top = tops.find((each) => each >= largest) ?? niceTop(largest);
  const index = Math.min(pointed ?? at.length - 1, at.length - 1);
  const point = (event: PointerEvent): void => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    setPointed(Math.round(((event.clientX - box.left) / box.width) * (at.length - 1)));
  };
  const step = (event: KeyboardEvent): void => {
    const by = event.key === 'ArrowLeft' ? -1 : event.key === 'ArrowRight' ? 1 : 0;
    if (by !== 0) setPointed(Math.max(0, Math.min(at.length - 1, index + by)));
    if (event.key === 'Escape') setPointed(undefined);
  };
  return (
    <section class="panel chart">
      <header>
        <h2>{title}</h2>
        <span class="muted chart-time">
          {pointed !== undefined && at[index] !== undefined && shownTime(new Date(at[index]))}
        </span>
      </header>
      <ul class="legend">
        {lines.map((line) => {
          const value = pointed === undefined ? lastOf(line.values) : (line.values[index] ?? null);
          return (
            <li key={line.name}>
              <span class={`swatch ${line.colour}`} /> {line.name}{' '}
              <b>{value === null ? '–' : shown(value)}</b>
            </li>
          );
        })}
      </ul>
      <div class="plot">
        {values.length === 0 ? (
          <p class="no-data">No data yet{stepOf(at)}</p>
        ) : (
          <>
            <svg
              viewBox={`0 0 ${width} ${height}`}
              preserveAspectRatio="none"
              role="img"
              aria-label={`${title} over time`}
              tabIndex={0}
              onPointerMove={point}
              onPointerLeave={() => setPointed(undefined)}
              onKeyDown={step}
              onBlur={() => setPointed(undefined)}
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
        <span>{at.length > 0 && shownTime(new Date(at.at(-1) ?? '')).slice(0, -3)}</span>
      </div>
    </section>
  );
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
