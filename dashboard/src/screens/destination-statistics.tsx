// Activity of a destination: a chart of deliveries, failed tries and dead letters over an hour, a day, a week or a month.

import { useState } from 'preact/hooks';

import type { Statistics } from '../answers.js';
import { useLive } from '../live.js';
import { LiveChart, wholeTops } from '../parts/live-chart.js';
import { Problem } from '../parts/problem.js';
import { linkTo } from '../route.js';
import { count, share } from '../shown.js';
import { destinationPath } from './destination-state.js';

const ranges = [
  { name: '1 hour', minutes: 60 },
  { name: '24 hours', minutes: 1440 },
  { name: '7 days', minutes: 10_080 },
  { name: '30 days', minutes: 43_200 },
] as const;

export function DestinationStatistics({ name }: { name: string }) {
  const [minutes, setMinutes] = useState<number>(ranges[0].minutes);
  const { data, error, loading, refresh } = useLive<Statistics>(
    destinationPath(name, `/statistics?minutes=${minutes}`),
    { everyMs: 10_000 },
  );
  const points = data?.points ?? [];
  return (
    <section aria-label="Activity">
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
      <LiveChart
        loading={loading}
        title="Deliveries"
        at={points.map(({ at }) => at)}
        behind={(from, to) =>
          linkTo('messages', {
            destination: name,
            failedFrom: from.toISOString(),
            failedTo: to.toISOString(),
          })
        }
        shown={count}
        tops={wholeTops}
        lines={[
          {
            name: 'Delivered',
            colour: 'green',
            area: true,
            values: points.map(({ delivered }) => delivered),
          },
          { name: 'Failed tries', colour: 'amber', values: points.map(({ failed }) => failed) },
          { name: 'Died', colour: 'red', values: points.map(({ died }) => died) },
        ]}
      />
      {data && (
        <p class="footnote">
          In this time: {count(data.delivered)} delivered, {count(data.failed)} failed tries,{' '}
          {count(data.died)} died; delivery rate {share(data.deliveryRate)}, success rate{' '}
          {share(data.successRate)}.
        </p>
      )}
    </section>
  );
}
