// Screen of destinations: pending deliveries, problems, and buttons to pause, resume and test a destination.

import type { Destination } from '../answers.js';
import { post } from '../api.js';
import { useLive } from '../live.js';
import { Action } from '../parts/action.js';
import { Problem } from '../parts/problem.js';
import { Dot } from '../parts/status.js';
import { Table } from '../parts/table.js';
import { Ago } from '../parts/time.js';
import { goTo, linkTo } from '../route.js';
import { about, count, plural, rate, share } from '../shown.js';

export function destinationState(destination: Destination): {
  kind: 'good' | 'warn' | 'bad' | 'off';
  words: string;
} {
  if (destination.paused) return { kind: 'warn', words: 'paused' };
  if (!destination.configured)
    return { kind: destination.waiting > 0 ? 'bad' : 'off', words: 'in no configuration' };
  if (destination.breakers.length > 0) return { kind: 'bad', words: 'breaker open' };
  const { deliveredLately, failedLately } = destination;
  if (failedLately > deliveredLately) return { kind: 'warn', words: 'fails often' };
  return { kind: 'good', words: destination.kind };
}

export function DestinationsScreen() {
  const { data, error, loading, refresh } = useLive<{ destinations: Destination[] }>(
    'destinations',
  );
  const change = async (destination: Destination): Promise<void> => {
    const verb = destination.paused ? 'resume' : 'pause';
    await post(`destinations/${encodeURIComponent(destination.name)}/${verb}`);
    refresh();
  };
  const test = async ({ name }: Destination): Promise<void> => {
    const { messageId } = await post<{ messageId: string }>(
      `destinations/${encodeURIComponent(name)}/test`,
    );
    // the message's screen shows the result of the test
    goTo(linkTo(`messages/${messageId}`));
  };
  const amount = (
    destination: Destination,
    metric: 'waiting' | 'retrying' | 'processing' | 'dead',
  ) => (
    <a
      class={destination[metric] === 0 ? 'muted' : metric === 'dead' ? 'bad-text' : ''}
      href={linkTo('messages', {
        status: metric === 'waiting' ? 'pending' : metric,
        destination: destination.name,
      })}
    >
      {metric === 'processing' ? count(destination.processing) : about(destination[metric])}
    </a>
  );
  return (
    <>
      <header class="screen-head">
        <h1>Destinations</h1>
      </header>
      <Problem error={error} again={refresh} />
      <Table
        label="Destinations"
        rows={data?.destinations}
        loading={loading}
        rowKey={(destination) => destination.name}
        empty="No destination is configured."
        columns={[
          {
            head: 'Destination',
            width: 'name',
            inCard: 'title',
            cell: (destination) => <Name destination={destination} />,
          },
          { head: 'State', cell: (destination) => <State destination={destination} /> },
          {
            head: 'Breaker',
            width: 'count',
            cell: (destination) => <Breaker destination={destination} />,
          },
          {
            head: 'Tries/s',
            width: 'number',
            numeric: true,
            cell: ({ triesPerSecond, ratePerSecond }) => (
              <span title={ratePerSecond === null ? 'no limit' : 'now, of what the limit allows'}>
                {rate(triesPerSecond)}
                {ratePerSecond !== null && (
                  <span class="muted"> of {shownLimit(ratePerSecond)}</span>
                )}
              </span>
            ),
          },
          {
            head: 'Delivery rate',
            width: 'number',
            numeric: true,
            cell: ({ deliveryRate }) => share(deliveryRate),
          },
          {
            head: 'Success rate',
            width: 'number',
            numeric: true,
            cell: ({ successRate }) => share(successRate),
          },
          {
            head: 'Waiting',
            numeric: true,
            width: 'count',
            cell: (row) => amount(row, 'waiting'),
          },
          {
            head: 'Retrying',
            numeric: true,
            width: 'count',
            cell: (row) => amount(row, 'retrying'),
          },
          {
            head: 'In flight',
            numeric: true,
            width: 'count',
            cell: (row) => amount(row, 'processing'),
          },
          { head: 'Dead', numeric: true, width: 'count', cell: (row) => amount(row, 'dead') },
          {
            head: 'Actions',
            width: 'actions-2',
            cell: (destination) => (
              <span class="row-actions">
                <Action
                  label={destination.paused ? 'Resume' : 'Pause'}
                  icon={destination.paused ? 'play' : 'pause'}
                  bare
                  act={() => change(destination)}
                />
                {destination.configured && (
                  <Action label="Send a test" icon="send" bare act={() => test(destination)} />
                )}
              </span>
            ),
          },
        ]}
      />
      <p class="footnote">
        Waiting counts pending deliveries, retrying ones included. A paused destination keeps its
        pending deliveries; those in flight are finished. Tries are counted over the last minute,
        rates over the last five: the delivery rate is the share of finished deliveries that were
        delivered, the success rate that of single tries. A test is a message with the topic
        waybill.test to that destination alone. ≈ is an estimate.
      </p>
    </>
  );
}

function Name({ destination }: { destination: Destination }) {
  const { name, kind, maxAttempts, whenDead, owners } = destination;
  return (
    <>
      <Dot kind={destinationState(destination).kind} />{' '}
      <a href={linkTo('messages', { destination: name })}>{name}</a>
      <small class="why muted not-in-card" title="kind, maximum tries, whenDead policy">
        {kind} · {plural(maxAttempts, 'try', 'tries')} · {whenDead}
      </small>
      {owners.length > 0 && (
        <small class="why muted not-in-card" title="who defines it, and in which versions">
          {owners.map(shownOwner).join(', ')}
        </small>
      )}
    </>
  );
}

function shownOwner({ name, versions }: Destination['owners'][number]): string {
  if (name === 'sql') return 'defined in SQL';
  return versions.length === 0 ? name : `${name} ${versions.join(' and ')}`;
}

function State({ destination }: { destination: Destination }) {
  const { paused, pausedAt, pausedBy, pausedCode, pausedReason, configured } = destination;
  if (!paused)
    return configured ? <>delivering</> : <span class="muted">in no configuration any more</span>;
  const why = [pausedCode, pausedReason].filter((part) => part !== null).join(': ');
  return (
    <span class="warn-text" title={why}>
      paused <Ago at={pausedAt} />
      {pausedBy !== null && (
        <small class="why" title={pausedBy}>
          {' '}
          by {pausedBy}
        </small>
      )}
      {why !== '' && <small class="why">{why}</small>}
    </span>
  );
}

function Breaker({ destination }: { destination: Destination }) {
  const { breakers, hasBreaker } = destination;
  if (breakers.length === 0) return hasBreaker ? <>closed</> : <span class="muted">none</span>;
  return (
    <>
      {breakers.map(({ relay, state, since, failures }) => (
        <span
          key={relay}
          class="bad-text"
          title={`at ${relay}, ${plural(failures, 'failure')} in a row`}
        >
          {state} <Ago at={since} />
        </span>
      ))}
    </>
  );
}

function shownLimit(perSecond: number): string {
  return Number.isInteger(perSecond) ? count(perSecond) : rate(perSecond);
}
