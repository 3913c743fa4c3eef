// Alerts panel of the overview: the alerts that fire, with their remedies.

import type { Alert } from '../../../../src/features/alerts/database.js';
import { useLive } from '../../live.js';
import { Problem, sentence } from '../../parts/problem.js';
import { Dot } from '../../parts/status.js';
import { linkTo } from '../../route.js';
import { count } from '../../shown.js';

/** The screen that shows the subject of an alert. */
const whereToLook: Record<string, string> = {
  waiting: linkTo('messages', { status: 'pending' }),
  oldest_waiting_seconds: linkTo('destinations'),
  average_delivery_seconds: linkTo('destinations'),
  retrying: linkTo('messages', { status: 'retrying' }),
  retry_share: linkTo('messages', { status: 'retrying' }),
  dead_growth: linkTo('dead-letters'),
  dead_share: linkTo('dead-letters'),
  stuck_dispatching: linkTo('relays'),
  no_relay: linkTo('relays'),
  breaker_open: linkTo('destinations'),
  paused_waiting: linkTo('destinations'),
  unrouted: linkTo('messages', { status: 'unrouted' }),
  stalled_cursors: linkTo('destinations'),
  partitions_ahead: linkTo('database'),
};

/** The database writes numbers without separators. */
function withSeparators(text: string): string {
  return text.replace(/(?<![\w.-])\d{4,}(?![\w-])/g, count);
}

/** `alarms`: those of the health view, which are shown below the alerts. */
export function AlertsPanel({ alarms }: { alarms: readonly string[] }) {
  const { data, error, refresh } = useLive<{ alerts: Alert[] }>('alerts', { everyMs: 5000 });
  const firing = data?.alerts.filter((alert) => alert.firing) ?? [];
  const calm = firing.length + alarms.length === 0;
  return (
    <section class={`panel alerts ${calm ? '' : 'firing'}`} aria-label="Alerts" tabIndex={0}>
      <header>
        <h2>Alerts</h2>
        <span class="muted">
          {data !== undefined && `${firing.length} of ${data.alerts.length} fire`}
        </span>
      </header>
      <Problem error={error} again={refresh} />
      {data === undefined ? (
        <p class="muted">Looking…</p>
      ) : calm ? (
        <p>
          <Dot kind="good" /> No alert is firing.
        </p>
      ) : (
        <ul>
          {firing.map((alert) => (
            <li key={alert.alert}>
              <Dot kind="bad" />
              <div>
                <p>
                  <a href={whereToLook[alert.alert] ?? linkTo('overview')}>
                    {sentence(withSeparators(alert.sentence))}
                  </a>
                </p>
                <p class="muted">{sentence(alert.remedy)}</p>
              </div>
            </li>
          ))}
          {alarms.map((alarm) => (
            <li key={alarm}>
              <Dot kind="warn" />
              <p>{sentence(withSeparators(alarm))}</p>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
