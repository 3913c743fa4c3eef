// Chart of live data, and the place of the tiles: both say that they load until the first answer.

import type { ComponentProps } from 'preact';

import { Chart } from './chart.js';

/** Counts whose halves are whole too. */
export const wholeTops = [2, 4, 10, 20, 40, 100, 200, 400, 1000, 2000, 4000];

export function LiveChart({
  loading,
  ...chart
}: ComponentProps<typeof Chart> & { loading: boolean }) {
  if (!loading || chart.at.length > 0) return <Chart {...chart} />;
  return (
    <section class="panel chart" aria-busy="true">
      <header>
        <h2>{chart.title}</h2>
      </header>
      <div class="legend" />
      <div class="plot">
        <p class="no-data">Loading…</p>
      </div>
      <div class="axis" />
    </section>
  );
}

export function LoadingTiles({ count }: { count: number }) {
  return (
    <ul class="tiles" aria-busy="true">
      {Array.from({ length: count }, (_, index) => (
        <li key={index} class="tile">
          <div>
            <span class="tile-none">Loading…</span>
          </div>
        </li>
      ))}
    </ul>
  );
}
