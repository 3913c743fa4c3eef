// Panels of the overview: firing alerts with their remedies, destinations, and relays.

import type { Destination, Overview, Relay } from '../answers.js';
import { useLive } from '../live.js';
import { Problem, sentence } from '../parts/problem.js';
import { Dot } from '../parts/status.js';
import { linkTo } from '../route.js';
import { about, count, seconds } from '../shown.js';
import { destinationState } from './destinations.js';
import { isLiving } from './relays.js';

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

export function AlertsPanel({ overview }: { overview: Overview | undefined }) {
  const firing = overview?.alerts.filter((alert) => alert.firing) ?? [];
  const alarms = overview?.alarms ?? [];
  const calm = firing.length + alarms.length === 0;
  return (
    <section class={`panel alerts ${calm ? '' : 'firing'}`} aria-label="Alerts" tabIndex={0}>
      <header>
        <h2>Alerts</h2>
        <span class="muted">
          {overview !== undefined && `${firing.length} of ${overview.alerts.length} fire`}
        </span>
      </header>
      {overview === undefined ? (
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
                    {sentence(alert.sentence)}
                  </a>
                </p>
                <p class="muted">{sentence(alert.remedy)}</p>
              </div>
            </li>
          ))}
          {alarms.map((alarm) => (
            <li key={alarm}>
              <Dot kind="warn" />
              <p>{sentence(alarm)}</p>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}

export function DestinationsPanel() {
  const { data, error, refresh } = useLive<{ destinations: Destination[] }>('destinations');
  return (
    <section class="panel list-panel destinations">
      <header>
        <h2>Destinations</h2>
        <a href={linkTo('destinations')}>All</a>
      </header>
      <Problem error={error} again={refresh} />
      <ul>
        {data?.destinations.map((destination) => {
          const { kind, words } = destinationState(destination);
          return (
            <li key={destination.name}>
              <Dot kind={kind} />
              <a href={linkTo('messages', { destination: destination.name })}>{destination.name}</a>
              <span class="muted">{words}</span>
              <span class="figures">
                <span title="waiting">{about(destination.waiting)} waiting</span>
                <span title="dead" class={destination.dead > 0 ? 'bad-text' : ''}>
                  {about(destination.dead)} dead
                </span>
              </span>
            </li>
          );
        })}
      </ul>
      {data?.destinations.length === 0 && <p class="empty">No destination is configured.</p>}
    </section>
  );
}

export function RelaysPanel() {
  const { data, error, refresh } = useLive<{ relays: Relay[] }>('relays');
  return (
    <section class="panel list-panel">
      <header>
        <h2>Relays</h2>
        <a href={linkTo('relays')}>All</a>
      </header>
      <Problem error={error} again={refresh} />
      <ul>
        {data?.relays.map((relay) => (
          <li key={`${relay.name} ${relay.startedAt}`}>
            <Dot kind={isLiving(relay) ? 'good' : 'bad'} />
            <span class="strong">{relay.name}</span>
            <span class="muted">{relay.version}</span>
            <span class="figures">
              <span>{count(relay.processing)} in flight</span>
              <span>{seconds(relay.heartbeatSecondsAgo)} ago</span>
            </span>
          </li>
        ))}
      </ul>
      {data?.relays.length === 0 && <p class="empty">No relay runs. Start one: waybill start.</p>}
    </section>
  );
}
