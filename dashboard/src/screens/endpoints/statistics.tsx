// Statistics of an endpoint: totals and a chart over a range of time.

import { pathOf } from './answers.js';
import type { Endpoint, Statistics } from './answers.js';
import { withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { ChartGroupContext } from '../../parts/chart-group.js';
import { LiveChart, wholeTops } from '../../parts/live-chart.js';
import { Problem } from '../../parts/problem.js';
import { TimeRanges, useTimeRange } from '../../parts/time-range.js';
import { linkTo, usePlace } from '../../route.js';
import { count, countUpTo, share } from '../../shown.js';

/** Where the API stops counting pending deliveries of one endpoint. */
const countedAtMost = 100_000;

export function EndpointStatistics({ endpoint }: { endpoint: Endpoint }) {
  const { path, query } = usePlace();
  const range = useTimeRange(endpoint.createdAt, 1440);
  const { data, error, loading, refresh } = useLive<Statistics>(
    range.asked && withQuery(pathOf(endpoint.name, '/statistics'), range.asked),
    { everyMs: 10_000 },
  );
  /** This screen, with the deliveries of the messages that were created in a time. */
  const behind = (from: Date, to: Date): string => {
    const changed = new URLSearchParams(query);
    changed.set('createdFrom', from.toISOString());
    changed.set('createdTo', to.toISOString());
    for (const name of ['status', 'topic', 'next']) changed.delete(name);
    return linkTo(path.map(encodeURIComponent).join('/'), changed);
  };
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
        <TimeRanges range={range} longest="30d" />
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
      <ChartGroupContext.Provider value={range.group}>
        <LiveChart
          loading={loading}
          title="Deliveries"
          at={data?.points.map(({ at }) => at) ?? []}
          behind={behind}
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
      </ChartGroupContext.Provider>
    </section>
  );
}
