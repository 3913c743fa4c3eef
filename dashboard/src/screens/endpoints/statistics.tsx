// Statistics of an endpoint: totals and a chart over a day, a week or a month.

import { useState } from 'preact/hooks';

import { pathOf } from './answers.js';
import type { Endpoint, Statistics } from './answers.js';
import { useLive } from '../../live.js';
import { LiveChart, wholeTops } from '../../parts/live-chart.js';
import { Problem } from '../../parts/problem.js';
import { count, countUpTo, share } from '../../shown.js';

const ranges = [
  { name: '24 hours', minutes: 1440 },
  { name: '7 days', minutes: 10_080 },
  { name: '30 days', minutes: 43_200 },
] as const;

/** Where the API stops counting pending deliveries of one endpoint. */
const countedAtMost = 100_000;

export function EndpointStatistics({ endpoint }: { endpoint: Endpoint }) {
  const [minutes, setMinutes] = useState<number>(ranges[0].minutes);
  const { data, error, loading, refresh } = useLive<Statistics>(
    pathOf(endpoint.name, `/statistics?minutes=${minutes}`),
    { everyMs: 10_000 },
  );
  const tiles: [string, string, string][] = [
    ['Delivered', count(data?.delivered), ''],
    ['Failed tries', count(data?.failed), data && data.failed > 0 ? 'warn-text' : ''],
    ['Success rate', share(data?.successRate), ''],
    ['Waiting', countUpTo(endpoint.waiting, countedAtMost), ''],
  ];
  return (
    <section aria-label="Statistics">
      <header class="section-head">
        <h2>Activity</h2>
        <div class="choices" role="group" aria-label="Time">
          {ranges.map((range) => (
            <button
              key={range.minutes}
              type="button"
              aria-pressed={range.minutes === minutes}
              onClick={() => setMinutes(range.minutes)}
            >
              {range.name}
            </button>
          ))}
        </div>
      </header>
      <Problem error={error} again={refresh} />
      <dl class="totals">
        {tiles.map(([name, value, kind]) => (
          <div key={name} class="panel">
            <dt>{name}</dt>
            <dd class={kind}>{value}</dd>
          </div>
        ))}
      </dl>
      <LiveChart
        loading={loading}
        title="Deliveries"
        at={data?.points.map(({ at }) => at) ?? []}
        shown={count}
        tops={wholeTops}
        lines={[
          {
            name: 'Delivered',
            colour: 'green',
            area: true,
            values: data?.points.map(({ delivered }) => delivered) ?? [],
          },
          {
            name: 'Failed tries',
            colour: 'red',
            values: data?.points.map(({ failed }) => failed) ?? [],
          },
        ]}
      />
    </section>
  );
}
