// Screen of the event catalogue: every topic with its version, receivers and volume; a chosen one with its schema.

import type { Catalogue } from './answers.js';
import { EventScreen } from './event.js';
import { useLive } from '../../live.js';
import { Filters } from '../../parts/filters.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { linkTo, usePlace } from '../../route.js';
import { count } from '../../shown.js';

type Row = Catalogue['events'][number];

export function CatalogueScreen() {
  const { query } = usePlace();
  const topic = query.get('topic');
  // a topic is never empty
  return topic === null || topic === '' ? (
    <EventList query={query} />
  ) : (
    <EventScreen topic={topic} />
  );
}

function EventList({ query }: { query: URLSearchParams }) {
  const { data, error, loading, refresh } = useLive<Catalogue>('catalogue', { everyMs: 30_000 });
  const search = query.get('search')?.toLowerCase() ?? '';
  const declared = query.get('declared');
  const rows = data?.events.filter(
    (event) =>
      `${event.topic} ${event.description ?? ''}`.toLowerCase().includes(search) &&
      (declared === null || event.declared === (declared === 'yes')),
  );
  return (
    <>
      <header class="screen-head">
        <h1>Events</h1>
      </header>
      <Filters
        path="events"
        filters={[
          { name: 'search', label: 'Topic or description' },
          {
            name: 'declared',
            label: 'Schema',
            choices: [
              ['yes', 'declared'],
              ['no', 'only seen in the log'],
            ],
          },
        ]}
      />
      <Problem error={error} again={refresh} />
      <Table
        label="Events"
        rows={rows}
        loading={loading}
        rowKey={(event) => event.topic}
        empty="No event is declared, and none was seen in the last 24 hours."
        columns={[
          {
            head: 'Topic',
            inCard: 'title',
            cell: ({ topic }) => <a href={linkTo('events', { topic })}>{topic}</a>,
          },
          { head: 'Version', width: 'count', numeric: true, cell: ({ version }) => count(version) },
          { head: 'Description', cell: (event) => <Description event={event} /> },
          {
            head: 'Destinations',
            width: 'name',
            cell: ({ destinations }) =>
              destinations.length === 0 ? <span class="muted">none</span> : destinations.join(', '),
          },
          {
            head: 'Last 24 h',
            width: 'number',
            numeric: true,
            cell: ({ messages }) => count(messages),
          },
        ]}
      />
      <p class="footnote">
        Events are declared with defineEvents in the configuration of this server. Messages are
        counted up to <Time at={data?.completeTo} />. Endpoints of customers are not among the
        destinations: the screen of an event counts them.
      </p>
    </>
  );
}

function Description({ event }: { event: Row }) {
  if (!event.declared) return <span class="warn-text">no schema: only seen in the log</span>;
  if (event.description === null) return <span class="muted">none</span>;
  return <span title={event.description}>{event.description}</span>;
}
