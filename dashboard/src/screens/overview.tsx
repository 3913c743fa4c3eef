// Overview screen: current numbers, recent charts, firing alerts, and the state of each destination and relay.

import type { Overview } from '../answers.js';
import { withQuery } from '../api.js';
import { useLive } from '../live.js';
import { timeTops } from '../parts/chart.js';
import { ChartGroupContext } from '../parts/chart-group.js';
import { LiveChart, LoadingTiles, wholeTops } from '../parts/live-chart.js';
import { Outcomes } from '../parts/outcomes.js';
import { Problem } from '../parts/problem.js';
import { TimeRanges, useTimeRange } from '../parts/time-range.js';
import { linkTo } from '../route.js';
import { count, milliseconds, rate, seconds } from '../shown.js';
import { AlertsPanel } from './alerts/alerts-panel.js';
import { DestinationsPanel, RelaysPanel } from './overview-panels.js';
import { Tiles, outOf } from './overview-tiles.js';
import { useRetryFailed } from './retry-failed.js';

/** The range of the charts, unless the outbox is so new that its data would be a few points at the end of it. */
const usualMinutes = 60;

/** The messages that were created in a time. */
function created(from: Date, to: Date): string {
  return linkTo('messages', { from: from.toISOString(), to: to.toISOString() });
}

/** The messages of which a try failed in a time. */
function failed(from: Date, to: Date): string {
  return linkTo('messages', { failedFrom: from.toISOString(), failedTo: to.toISOString() });
}

/** The messages that died in a time, and are still dead. */
function died(from: Date, to: Date): string {
  return linkTo('messages', {
    status: 'dead',
    failedFrom: from.toISOString(),
    failedTo: to.toISOString(),
  });
}

export function OverviewScreen() {
  const { retryFailed, madeDue } = useRetryFailed();
  // the numbers are those of now, whatever range the charts show
  const now = useLive<Overview>(withQuery('overview', { minutes: 10 }), { everyMs: 5000 });
  const range = useTimeRange(now.data?.since, usualMinutes, now.data && Date.parse(now.data.now));
  const { data, error, loading, refresh } = useLive<Overview>(
    range.asked && withQuery('overview', range.asked),
    range,
  );
  // without a range in the address, the charts wait for the numbers, which choose one
  const isLoading = loading || now.loading;
  const points = data?.points ?? [];
  const at = points.map((point) => point.at);
  return (
    <>
      <header class="screen-head">
        <h1>Overview</h1>
        <TimeRanges range={range} longest="7d" />
      </header>
      <Problem error={error ?? now.error} again={refresh} />
      <div class="overview">
        {now.loading || (loading && data === undefined) ? (
          <LoadingTiles count={12} />
        ) : (
          <Tiles now={now.data} range={data} />
        )}
        <AlertsPanel alarms={now.data?.alarms ?? []} retryFailed={retryFailed} />
        <ChartGroupContext.Provider value={range.group}>
          <div class="charts">
            <LiveChart
              loading={isLoading}
              title="In and out per second"
              at={at}
              behind={created}
              shown={rate}
              lines={[
                { name: 'in', colour: 'blue', values: points.map((point) => point.in) },
                { name: 'out', colour: 'green', values: points.map(outOf), area: true },
              ]}
            />
            <LiveChart
              loading={isLoading}
              title="Time to delivery"
              at={at}
              behind={created}
              shown={milliseconds}
              lines={[
                { name: 'p99', colour: 'amber', values: points.map((point) => point.p99Ms) },
                { name: 'avg', colour: 'grey', values: points.map((point) => point.averageMs) },
                {
                  name: 'p50',
                  colour: 'blue',
                  values: points.map((point) => point.p50Ms),
                  area: true,
                },
              ]}
            />
            <LiveChart
              loading={isLoading}
              title="Waiting"
              at={at}
              shown={whole}
              tops={wholeTops}
              lines={[
                {
                  name: 'waiting',
                  colour: 'blue',
                  values: points.map((point) => point.waiting),
                  area: true,
                },
                {
                  name: 'retrying',
                  colour: 'amber',
                  values: points.map((point) => point.retrying),
                },
              ]}
            />
            <LiveChart
              loading={isLoading}
              title="Age of the oldest due"
              at={at}
              shown={seconds}
              tops={timeTops}
              lines={[
                {
                  name: 'oldest',
                  colour: 'blue',
                  values: points.map((point) => point.oldestSeconds),
                  area: true,
                },
              ]}
            />
            <LiveChart
              loading={isLoading}
              title="Failures per second"
              at={at}
              behind={failed}
              shown={rate}
              lines={[
                {
                  name: 'failed tries',
                  colour: 'amber',
                  values: points.map((point) => (outOf(point) === null ? null : point.failed)),
                },
                {
                  name: 'died',
                  colour: 'red',
                  values: points.map((point) => (outOf(point) === null ? null : point.died)),
                },
              ]}
            />
            <LiveChart
              loading={isLoading}
              title="Dead letters"
              at={at}
              behind={died}
              shown={whole}
              tops={wholeTops}
              lines={[
                {
                  name: 'dead',
                  colour: 'red',
                  values: points.map((point) => point.dead),
                  area: true,
                },
              ]}
            />
          </div>
        </ChartGroupContext.Provider>
        <DestinationsPanel />
        <RelaysPanel />
      </div>
      <Outcomes>{madeDue}</Outcomes>
    </>
  );
}

function whole(value: number): string {
  return count(Math.round(value));
}
