// Columns of a report. A head sorts by its column; a second click turns the order around.

import type { Report } from './answers.js';
import type { Column } from '../../parts/table.js';
import { linkTo } from '../../route.js';
import { DestinationName } from '../destination-state.js';
import { count, milliseconds, rate, share } from '../../shown.js';

type Row = Report['rows'][number];
type Sorting = {
  total: Report['total'] | undefined;
  sort: string;
  order: string | undefined;
  linkFor: (column: string, order: string | undefined) => string;
};

export function columnsOf(by: Report['by'], sorting: Sorting): Column<Row>[] {
  const column = (name: string, head: string, rest: Omit<Column<Row>, 'head' | 'sorted'>) => ({
    head,
    ...rest,
    sorted: sortedBy(name, sorting),
  });
  const number = (name: string, head: string, shown: (value: number | null) => string) =>
    column(name, head, {
      width: 'number',
      numeric: true,
      cell: (row) => shown((row as Record<string, unknown>)[name] as number | null),
    });
  const { total } = sorting;
  const title = column(
    'name',
    { topics: 'Topic', tenants: 'Tenant', destinations: 'Destination' }[by],
    {
      inCard: 'title',
      cell: (row) => <Name by={by} name={row.name} />,
    },
  );
  if (by !== 'destinations')
    return [
      title,
      number('messages', 'Messages', count),
      {
        head: 'Share',
        width: 'number',
        numeric: true,
        cell: (row) =>
          'messages' in row && total !== undefined && 'messages' in total && total.messages > 0
            ? share(row.messages / total.messages)
            : share(null),
      },
      number('perSecond', 'Per second', rate),
    ];
  return [
    title,
    number('tries', 'Tries', count),
    number('perSecond', 'Per second', rate),
    number('delivered', 'Delivered', count),
    number('failed', 'Failed tries', count),
    number('dead', 'Dead', count),
    number('deliveryRate', 'Delivery rate', share),
    number('successRate', 'Success rate', share),
    number('p50Ms', 'p50', milliseconds),
    number('p95Ms', 'p95', milliseconds),
    number('p99Ms', 'p99', milliseconds),
  ];
}

function sortedBy(name: string, { sort, order, linkFor }: Sorting): Column<Row>['sorted'] {
  const first = name === 'name' ? 'asc' : 'desc';
  const now = sort === name ? (order ?? first) : undefined;
  const next = now === first ? (first === 'asc' ? 'desc' : 'asc') : undefined;
  return { column: name, now, href: linkFor(name, next) };
}

function Name({ by, name }: { by: Report['by']; name: string | null }) {
  if (name === null) return <span class="muted">all others together</span>;
  if (name === '') return <span class="muted">without a tenant</span>;
  // a destination that was removed has no screen
  if (by === 'destinations' && name.startsWith('#'))
    return <span class="muted">removed ({name})</span>;
  if (by === 'destinations') return <DestinationName name={name} />;
  const filter = by === 'topics' ? 'topic' : 'tenantId';
  return <a href={linkTo('messages', { [filter]: name })}>{name}</a>;
}
