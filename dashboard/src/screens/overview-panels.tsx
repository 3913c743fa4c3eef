// Panels of the overview: destinations and relays.

import type { DestinationPage, Relay } from '../answers.js';
import { useLive } from '../live.js';
import { Problem } from '../parts/problem.js';
import { Dot } from '../parts/status.js';
import { linkTo } from '../route.js';
import { about, count, seconds } from '../shown.js';
import { destinationState, linkToDestination } from './destination-state.js';
import { isLiving } from './relays.js';

const mostShown = 20;

/** The most urgent destinations: the server sorts them. */
export function DestinationsPanel() {
  const { data, error, refresh } = useLive<DestinationPage>(`destinations?limit=${mostShown}`);
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
              <a href={linkToDestination(destination)}>{destination.name}</a>
              <span class="muted">{kind === 'good' ? destination.kind : words}</span>
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
      {data?.next && (
        <p class="more">
          <a href={linkTo('destinations')}>More destinations</a>
        </p>
      )}
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
              <span>{count(relay.processing)} processing</span>
              <span>{seconds(relay.heartbeatSecondsAgo)} ago</span>
            </span>
          </li>
        ))}
      </ul>
      {data?.relays.length === 0 && <p class="empty">No relay runs. Start one: waybill start.</p>}
    </section>
  );
}
