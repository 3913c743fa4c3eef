// Recent deliveries of an endpoint, live. A row opens its delivery with request and responses; it can be sent again.

import { useState } from 'preact/hooks';

import { pathOf } from './answers.js';
import type { Deliveries, Delivery, Endpoint } from './answers.js';
import { DeliveryDialog } from './delivery.js';
import { ReplayDialog } from './replay.js';
import { DeliveryStatus, deliveryWords } from './state.js';
import { withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Ago, shownTime } from '../../parts/time.js';
import { goTo, linkTo, usePlace } from '../../route.js';
import { milliseconds } from '../../shown.js';

const statuses = ['', 'delivered', 'retrying', 'pending', 'dead'] as const;

export function EndpointDeliveries({ endpoint }: { endpoint: Endpoint }) {
  const { path, query } = usePlace();
  const opened = query.get('delivery');
  const next = query.get('next');
  /** The time of the point that was clicked in the chart. */
  const [createdFrom, createdTo] = [query.get('createdFrom'), query.get('createdTo')];
  const [replaying, setReplaying] = useState(false);
  const { data, error, loading, refresh } = useLive<Deliveries>(
    withQuery(pathOf(endpoint.name, '/messages'), {
      status: query.get('status'),
      topic: query.get('topic'),
      from: createdFrom,
      to: createdTo,
      limit: 20,
      next,
    }),
    { everyMs: 3000, paused: next !== null },
  );
  /** This screen with some parameters changed; null removes one. */
  const here = (changes: Record<string, string | null>): string => {
    const changed = new URLSearchParams(query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === '') changed.delete(name);
      else changed.set(name, value);
    }
    return linkTo(path.map(encodeURIComponent).join('/'), changed);
  };
  return (
    <section aria-label="Deliveries" class="deliveries">
      <header class="section-head">
        <h2>Deliveries</h2>
        <Action label="Send again since…" icon="replay" act={() => setReplaying(true)} />
        <span class="spacer" />
        {createdFrom !== null && createdTo !== null && (
          <span class="zoomed">
            created {shownTime(new Date(createdFrom))} to {shownTime(new Date(createdTo))}{' '}
            <a class="button small" href={here({ createdFrom: null, createdTo: null, next: null })}>
              All times
            </a>
          </span>
        )}
        <div class="choices" role="group" aria-label="Status">
          {statuses.map((status) => (
            <button
              key={status}
              type="button"
              aria-pressed={(query.get('status') ?? '') === status}
              onClick={() => goTo(here({ status, next: null }))}
            >
              {deliveryWords[status] ?? 'All'}
            </button>
          ))}
        </div>
      </header>
      <Problem error={error} again={refresh} />
      <Table
        label="Deliveries"
        rows={data?.messages}
        loading={loading}
        rowKey={({ messageId }) => messageId}
        empty={
          ['status', 'topic', 'createdFrom', 'createdTo'].some((name) => query.has(name))
            ? 'No delivery matches.'
            : 'Nothing has been sent here yet. A test event shows whether the address works.'
        }
        columns={[
          {
            head: 'Event',
            inCard: 'title',
            cell: (delivery) => (
              <a href={here({ delivery: delivery.messageId })} title={delivery.messageId}>
                {delivery.topic ?? delivery.messageId}
              </a>
            ),
          },
          {
            head: 'Status',
            width: 'small',
            cell: (delivery) => <DeliveryStatus delivery={delivery} />,
          },
          { head: 'Response', width: 'medium', cell: (delivery) => <Response of={delivery} /> },
          {
            head: 'Tries',
            width: 'tries',
            numeric: true,
            cell: ({ tries }) => String(tries),
          },
          {
            head: 'Created',
            width: 'small',
            cell: ({ createdAt }) => <Ago at={createdAt} />,
          },
        ]}
      />
      {(next !== null || data?.next) && (
        <nav class="pager" aria-label="Pages">
          {next !== null && <a href={here({ next: null })}>Newest</a>}
          {data?.next && (
            <a class="button" href={here({ next: data.next })} rel="next">
              Older
            </a>
          )}
        </nav>
      )}
      {replaying && (
        <ReplayDialog
          endpoint={endpoint.name}
          close={(started) => {
            setReplaying(false);
            if (started) refresh();
          }}
        />
      )}
      {opened !== null && (
        <DeliveryDialog
          key={opened}
          endpoint={endpoint}
          id={opened}
          part={query.get('part') === 'request' ? 'request' : 'responses'}
          show={(part) => goTo(here({ part: part === 'request' ? part : null }))}
          close={() => goTo(here({ delivery: null, part: null }))}
        />
      )}
    </section>
  );
}

/** The last answer: its status and duration, or why there was none. */
function Response({ of: { attempts } }: { of: Delivery }) {
  const last = attempts.at(-1);
  if (last === undefined) return <span class="muted">–</span>;
  return (
    <span title={last.errorMessage ?? ''}>
      <code>{last.remoteCode ?? last.errorCode ?? '–'}</code>{' '}
      <span class="muted">{last.latencyMs !== null && milliseconds(last.latencyMs)}</span>
    </span>
  );
}
