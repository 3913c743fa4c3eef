// Screen of destinations: pending deliveries, problems, and buttons to pause, resume and test a destination. Those with
// problems come first.

import { destinationProblems, problemState } from '../../../src/core/destination-state.js';
import type { Destination, DestinationPage } from '../answers.js';
import { withQuery } from '../api.js';
import { useLive } from '../live.js';
import { Action } from '../parts/action.js';
import { Filters } from '../parts/filters.js';
import { Pager } from '../parts/pager.js';
import { Problem } from '../parts/problem.js';
import { Dot } from '../parts/status.js';
import { Table } from '../parts/table.js';
import { Ago } from '../parts/time.js';
import { linkTo, usePlace } from '../route.js';
import { about, count, plural, rate, share } from '../shown.js';
import { DestinationScreen } from './destination.js';
import {
  State,
  destinationState,
  linkToDestination,
  pauseOrResume,
  sendTest,
  shownLimit,
  shownOwner,
} from './destination-state.js';

const problems = destinationProblems.map(
  (problem) => [problem, problemState(problem).words] as const,
);
const origins = [
  ['file', 'configurations and SQL'],
  ['database', 'endpoints'],
] as const;
const orders = [
  ['name', 'name'],
  ['waiting', 'most waiting'],
  ['dead', 'most dead'],
] as const;

export function DestinationsScreen() {
  const { path } = usePlace();
  return path[1] === undefined ? (
    <DestinationTable />
  ) : (
    <DestinationScreen key={path[1]} name={path[1]} />
  );
}

function DestinationTable() {
  const { query } = usePlace();
  const next = query.get('next');
  const { data, error, loading, refresh } = useLive<DestinationPage>(
    withQuery('destinations', {
      search: query.get('search'),
      problem: query.get('problem'),
      origin: query.get('origin'),
      order: query.get('order'),
      limit: 50,
      next,
    }),
    { paused: next !== null },
  );
  const isFiltered = ['search', 'problem', 'origin'].some((name) => query.has(name));
  const change = async (destination: Destination): Promise<void> => {
    await pauseOrResume(destination);
    refresh();
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
      <Filters
        path="destinations"
        filters={[
          { name: 'search', label: 'Text in the name' },
          { name: 'problem', label: 'Problem', choices: problems },
          { name: 'origin', label: 'From', choices: origins },
          { name: 'order', label: 'Order', choices: orders, none: 'problems first' },
        ]}
      />
      <Problem error={error} again={refresh} />
      <Table
        label="Destinations"
        rows={data?.destinations}
        loading={loading}
        rowKey={(destination) => destination.name}
        empty={isFiltered ? 'No destination matches.' : 'No destination is configured.'}
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
            width: 'rate',
            numeric: true,
            cell: ({ deliveryRate }) => share(deliveryRate),
          },
          {
            head: 'Success rate',
            width: 'rate',
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
            head: 'Processing',
            numeric: true,
            width: 'number',
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
                  <Action label="Send a test" icon="send" bare act={() => sendTest(destination)} />
                )}
              </span>
            ),
          },
        ]}
      />
      <Pager next={data?.next ?? null} />
      <p class="footnote">
        Destinations with problems come first. Waiting counts pending deliveries, retrying ones
        included. A paused destination keeps its pending deliveries; processing ones are finished.
        Tries are counted over the last minute, rates over the last five: the delivery rate is the
        share of finished deliveries that were delivered, the success rate that of single tries. A
        test is a message with the topic waybill.test to that destination alone. ≈ is an estimate.
      </p>
    </>
  );
}

function Name({ destination }: { destination: Destination }) {
  const { name, kind, maxAttempts, whenDead, owners } = destination;
  return (
    <>
      <Dot kind={destinationState(destination).kind} />{' '}
      <a href={linkToDestination(destination)}>{name}</a>
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
