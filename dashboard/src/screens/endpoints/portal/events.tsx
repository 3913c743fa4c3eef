// Screen of events: what the customer can receive, with descriptions and examples.

import type { OfferedEvents } from '../answers.js';
import { formatJson } from '../../../json-format.js';
import { useLive } from '../../../live.js';
import { Copy } from '../../../parts/copy.js';
import { Empty, Problem } from '../../../parts/problem.js';

export type OfferedEvent = OfferedEvents['events'][number];

export function EventsScreen() {
  const { data, error, refresh } = useLive<OfferedEvents>('events', { everyMs: 600_000 });
  return (
    <>
      <header class="screen-head">
        <div>
          <h1>Events</h1>
          <p class="muted">What your endpoints can receive, and what a request carries.</p>
        </div>
      </header>
      <Problem error={error} again={refresh} />
      <ul class="event-list" aria-label="Events">
        {data?.events.map((event) => (
          <li key={event.topic} class="panel">
            <h2>
              <code>{event.topic}</code>
            </h2>
            {event.description !== null && <p>{event.description}</p>}
            <Example event={event} />
          </li>
        ))}
      </ul>
      {data?.events.length === 0 && <Empty>No events are described here.</Empty>}
    </>
  );
}

export function Example({ event: { topic, example } }: { event: OfferedEvent }) {
  if (example === undefined) return null;
  const text = JSON.stringify(example);
  return (
    <details class="example">
      <summary>Example</summary>
      <pre tabIndex={0} aria-label={`Example of ${topic}`}>
        {formatJson(text)}
      </pre>
      <Copy label="Copy" text={formatJson(text)} />
    </details>
  );
}
