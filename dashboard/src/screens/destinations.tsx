// Destinations: what waits there, what is wrong, and the way to hold one back or let it go on.

import type { Destination } from '../answers.js';
import { post } from '../api.js';
import { useLive } from '../live.js';
import { Action } from '../parts/action.js';
import { Problem } from '../parts/problem.js';
import { Dot } from '../parts/status.js';
import { Table } from '../parts/table.js';
import { Ago } from '../parts/time.js';
import { linkTo } from '../route.js';
import { count, countUpTo } from '../shown.js';

const countedAtMost = 100_000;

export function destinationState(destination: Destination): {
  kind: 'good' | 'warn' | 'bad' | 'off';
  words: string;
} {
  if (destination.paused) return { kind: 'warn', words: 'paused' };
  if (!destination.configured)
    return { kind: destination.waiting > 0 ? 'bad' : 'off', words: 'in no configuration' };
  return { kind: 'good', words: destination.kind };
}

export function DestinationsScreen() {
  const { data, error, refresh } = useLive<{ destinations: Destination[] }>('destinations');
  const change = async (destination: Destination): Promise<void> => {
    const verb = destination.paused ? 'resume' : 'pause';
    await post(`destinations/${encodeURIComponent(destination.name)}/${verb}`);
    refresh();
  };
  const amount = (
    destination: Destination,
    status: 'waiting' | 'retrying' | 'processing' | 'dead',
  ) => (
    <a href={linkTo('messages', { status, destination: destination.name })}>
      {countUpTo(destination[status], countedAtMost)}
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
        rows={data?.destinations ?? []}
        rowKey={(destination) => destination.name}
        empty={data === undefined ? 'Looking…' : 'No destination is configured.'}
        columns={[
          {
            head: 'Destination',
            width: 'w-large',
            onPhone: 'title',
            cell: (destination) => (
              <>
                <Dot kind={destinationState(destination).kind} />{' '}
                <a href={linkTo('messages', { destination: destination.name })}>
                  {destination.name}
                </a>
              </>
            ),
          },
          {
            head: 'Kind',
            width: 'w-small',
            onPhone: 'hidden',
            cell: (destination) => destination.kind,
          },
          {
            head: 'State',
            cell: (destination) =>
              destination.paused ? (
                <span class="warn-text">
                  paused <Ago at={destination.pausedAt} />
                  {destination.pausedBy !== null && ` by ${destination.pausedBy}`}
                </span>
              ) : destination.configured ? (
                'delivering'
              ) : (
                <span class="muted">in no configuration any more</span>
              ),
          },
          {
            head: 'Waiting',
            numeric: true,
            width: 'w-number',
            cell: (row) => amount(row, 'waiting'),
          },
          {
            head: 'Retrying',
            numeric: true,
            width: 'w-number',
            cell: (row) => amount(row, 'retrying'),
          },
          {
            head: 'In hand',
            numeric: true,
            width: 'w-number',
            cell: (row) => amount(row, 'processing'),
          },
          { head: 'Dead', numeric: true, width: 'w-number', cell: (row) => amount(row, 'dead') },
          {
            head: 'Max tries',
            numeric: true,
            width: 'w-number',
            onPhone: 'hidden',
            cell: (destination) => count(destination.maxAttempts),
          },
          {
            head: 'When dead',
            width: 'w-small',
            onPhone: 'hidden',
            cell: (destination) => destination.whenDead,
          },
          {
            head: 'Actions',
            width: 'w-actions',
            cell: (destination) => (
              <Action
                label={destination.paused ? 'Resume' : 'Pause'}
                icon={destination.paused ? 'play' : 'pause'}
                act={() => change(destination)}
              />
            ),
          },
        ]}
      />
      <p class="footnote">
        Waiting includes retrying. A paused destination holds back what waits there; what is in hand
        is finished. Counting stops at {count(countedAtMost)}.
      </p>
    </>
  );
}
