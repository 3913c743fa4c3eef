// Screen of the flow: which topics go to which destinations, with rates and problems, as a diagram and as a table.

import type { Flow } from './answers.js';
import { Diagram } from './diagram.js';
import { useLive } from '../../live.js';
import { Problem } from '../../parts/problem.js';
import { Dot } from '../../parts/status.js';
import { Table } from '../../parts/table.js';
import { shownTime } from '../../parts/time.js';
import { linkTo } from '../../route.js';
import { rate } from '../../shown.js';
import { DestinationName } from '../destination-state.js';

type Destination = Flow['destinations'][number];

export function FlowScreen() {
  const { data, error, loading, refresh } = useLive<Flow>('flow', { everyMs: 10_000 });
  const found = new Map(data?.destinations.map((each) => [each.name, each]));
  return (
    <>
      <header class="screen-head">
        <h1>Flow</h1>
        {data !== undefined && <span class="muted">{periodWords(data)}</span>}
      </header>
      <Problem error={error} again={refresh} />
      {data !== undefined && data.topics.length + data.destinations.length > 0 && (
        <section class="panel flow-panel">
          <Diagram flow={data} />
        </section>
      )}
      <Table
        label="Topics and their destinations"
        rows={data?.topics}
        loading={loading}
        rowKey={({ topic }) => topic}
        empty="No topic was seen lately, and no route names one."
        columns={[
          {
            head: 'Topic',
            width: 'large',
            inCard: 'title',
            cell: ({ topic }) => <a href={linkTo('events', { topic })}>{topic}</a>,
          },
          {
            head: 'Per second',
            width: 'number',
            numeric: true,
            cell: ({ perSecond }) => rate(perSecond),
          },
          {
            head: 'Destinations',
            cell: ({ destinations }) => (
              <Receivers destinations={destinations.flatMap((name) => found.get(name) ?? [])} />
            ),
          },
        ]}
      />
      <p class="footnote">
        The 20 busiest topics, and 20 destinations, those with problems first. A rate is the number
        of messages of a topic, or of tries of a destination, a second. Endpoints of customers are
        not shown.
      </p>
    </>
  );
}

/** The period of the rates of topics, and that of destinations. */
function periodWords({ from, to }: Flow): string {
  const [first, last] = [new Date(from), new Date(to)];
  const topics =
    first < last
      ? `from ${shownTime(first)} to ${shownTime(last)}`
      : 'not counted yet, relays do so every 30 seconds';
  return `rates of topics: ${topics}; of destinations: the last minute`;
}

function Receivers({ destinations }: { destinations: readonly Destination[] }) {
  if (destinations.length === 0) return <span class="muted">none of those shown</span>;
  return (
    <span class="wrapped">
      {destinations.map(({ name, perSecond, state, problem }, place) => (
        <span key={name}>
          {place > 0 && ', '}
          <Dot kind={state} /> <DestinationName name={name} /> ({rate(perSecond)}/s
          {problem !== null && <b>, {problem}</b>})
        </span>
      ))}
    </span>
  );
}
