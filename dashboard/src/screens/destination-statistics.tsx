// Activity of a destination: a chart of deliveries, failed tries and dead letters over a range of time.

import type { DestinationDetail, Statistics } from '../answers.js';
import { withQuery } from '../api.js';
import { useLive } from '../live.js';
import { ChartGroupContext } from '../parts/chart-group.js';
import { LiveChart, wholeTops } from '../parts/live-chart.js';
import { Problem } from '../parts/problem.js';
import { TimeRanges, useTimeRange } from '../parts/time-range.js';
import { linkTo } from '../route.js';
import { count, share } from '../shown.js';
import { destinationPath } from './destination-state.js';

type Props = { destination: Pick<DestinationDetail, 'name' | 'statisticsFrom'> };

export function DestinationStatistics({ destination: { name, statisticsFrom } }: Props) {
  const range = useTimeRange(statisticsFrom, 60);
  const { data, error, loading, refresh } = useLive<Statistics>(
    range.asked && withQuery(destinationPath(name, '/statistics'), range.asked),
    { everyMs: 10_000 },
  );
  const points = data?.points ?? [];
  return (
    <section aria-label="Activity">
      <header class="section-head">
        <h2>Activity</h2>
        <TimeRanges range={range} longest="30d" />
      </header>
      <Problem error={error} again={refresh} />
      <ChartGroupContext.Provider value={range.group}>
        <LiveChart
          loading={loading}
          title="Deliveries"
          at={points.map(({ at }) => at)}
          behind={(from, to) => behind(name, points, from, to)}
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
      </ChartGroupContext.Provider>
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

/** The messages with a try that failed in a time; if none failed, the messages that were created then. */
function behind(name: string, points: Statistics['points'], from: Date, to: Date): string {
  const [first, last] = [from.toISOString(), to.toISOString()];
  const failed = points.some(
    ({ at, failed: tries }) => Date.parse(at) === to.getTime() && tries > 0,
  );
  return linkTo('messages', {
    destination: name,
    ...(failed ? { failedFrom: first, failedTo: last } : { from: first, to: last }),
  });
}
