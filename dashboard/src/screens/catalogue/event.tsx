// Screen of one event: what it means, its schema and an example, its versions, receivers and volume.

import type { CatalogueEvent } from './answers.js';
import { withQuery } from '../../api.js';
import { formatJson } from '../../json-format.js';
import { useLive } from '../../live.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { linkTo } from '../../route.js';
import { count, countUpTo } from '../../shown.js';
import { DestinationName } from '../destination-state.js';

/** Endpoints are counted up to this number. */
const mostEndpoints = 10_000;

export function EventScreen({ topic }: { topic: string }) {
  const { data, error, loading, refresh } = useLive<CatalogueEvent>(
    withQuery('catalogue/event', { topic }),
    { everyMs: 30_000 },
  );
  const event = data?.topic === topic ? data : undefined;
  return (
    <>
      <header class="screen-head">
        <h1 class="event-topic">{topic}</h1>
        <span class="head-actions">
          <a class="button small" href={linkTo('events')}>
            All events
          </a>
          <a class="button small" href={linkTo('messages', { topic })}>
            Messages
          </a>
        </span>
      </header>
      <Problem error={error} again={refresh} />
      {event !== undefined && <Facts event={event} />}
      <h2 class="event-head">Receivers</h2>
      <Table
        label="Receivers"
        rows={event?.receivers}
        loading={loading}
        rowKey={(receiver) => JSON.stringify(receiver)}
        empty="No destination has a route for it."
        columns={[
          {
            head: 'Destination',
            inCard: 'title',
            cell: ({ destination }) => <DestinationName name={destination} />,
          },
          { head: 'By the route', width: 'name', cell: (receiver) => receiver.topic },
          { head: 'Namespace', width: 'medium', cell: ({ namespace }) => namespace ?? 'all' },
          { head: 'Tenant', width: 'medium', cell: ({ tenantId }) => tenantId ?? 'all' },
          {
            head: 'Messages',
            width: 'number',
            cell: ({ destination }) => (
              <a
                href={linkTo('messages', { destination, topic })}
                aria-label={`Show the messages at ${destination}`}
              >
                Show
              </a>
            ),
          },
        ]}
      />
      {event !== undefined && <Shape event={event} />}
    </>
  );
}

function Facts({ event }: { event: CatalogueEvent }) {
  const { description, versions, topic, endpoints, volume, completeTo, declared } = event;
  const others = versions.filter((other) => other !== topic);
  return (
    <section class="panel event-facts">
      <p>
        {declared ? (
          (description ?? <span class="muted">Its schema has no description.</span>)
        ) : (
          <span class="warn-text">It has no schema in the configuration of this server.</span>
        )}
      </p>
      <dl>
        <dt>Version</dt>
        <dd>
          {event.version} of {event.event}
          {others.map((other) => (
            <span key={other}>
              {' · '}
              <a href={linkTo('events', { topic: other })}>{other}</a>
            </span>
          ))}
        </dd>
        <dt>Endpoints</dt>
        <dd>{countUpTo(endpoints, mostEndpoints)}</dd>
        {Object.entries(volume).map(([period, messages]) => (
          <>
            <dt key={`${period} head`}>Last {period}</dt>
            <dd key={period}>{count(messages)}</dd>
          </>
        ))}
        <dt>Counted up to</dt>
        <dd>
          <Time at={completeTo} />
        </dd>
      </dl>
    </section>
  );
}

function Shape({ event }: { event: CatalogueEvent }) {
  const { schema, example, problem } = event;
  if (problem !== null) return <p class="notice">{problem}</p>;
  if (schema === null) return null;
  return (
    <div class="event-shape">
      <section>
        <h2 class="event-head">Example</h2>
        <pre tabIndex={0} aria-label="Example">
          {formatJson(JSON.stringify(example))}
        </pre>
      </section>
      <section>
        <h2 class="event-head">JSON Schema</h2>
        <pre tabIndex={0} aria-label="JSON Schema">
          {formatJson(JSON.stringify(schema))}
        </pre>
      </section>
    </div>
  );
}
