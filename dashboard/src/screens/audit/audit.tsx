// Screen of operators' actions: who did what, to how many, and when.

import type { Actions } from './answers.js';
import { withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Filters } from '../../parts/filters.js';
import type { Filter } from '../../parts/filters.js';
import { Pager } from '../../parts/pager.js';
import { Problem } from '../../parts/problem.js';
import { SavedFilters } from '../../parts/saved-filters.js';
import { Subject } from '../../parts/subject.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { linkTo, usePlace } from '../../route.js';
import { count } from '../../shown.js';

const filters: readonly Filter[] = [
  { name: 'actor', label: 'Who' },
  { name: 'action', label: 'What' },
  { name: 'destination', label: 'Destination' },
  { name: 'from', label: 'From', type: 'datetime-local' },
  { name: 'to', label: 'Before', type: 'datetime-local' },
];

export function AuditScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const asked = filters.flatMap(({ name }) => {
    const value = query.get(name);
    return value === null ? [] : [[name, name === 'action' ? asStored(value) : value] as const];
  });
  const { data, error, loading, refresh } = useLive<Actions>(
    withQuery('audit', { ...Object.fromEntries(asked), limit: 50, next }),
    {
      everyMs: 5000,
      paused: next !== null,
    },
  );
  return (
    <>
      <header class="screen-head">
        <h1>Audit</h1>
      </header>
      <Filters path="audit" filters={filters} />
      <SavedFilters />
      <Problem error={error} again={refresh} />
      <Table
        label="Actions"
        rows={data?.actions}
        loading={loading}
        rowKey={(action) => action.id}
        empty={asked.length > 0 ? 'No action matches.' : 'No operator has done anything yet.'}
        columns={[
          { head: 'When', width: 'time', cell: (action) => <Time at={action.at} /> },
          {
            head: 'Who',
            width: 'name',
            cell: ({ actor }) => <a href={linkTo('audit', { actor })}>{actor}</a>,
          },
          {
            head: 'What',
            width: 'name',
            inCard: 'title',
            cell: ({ action }) => (
              <a href={linkTo('audit', { action })}>
                <b>{asShown(action)}</b>
              </a>
            ),
          },
          {
            head: 'How many',
            numeric: true,
            width: 'number',
            cell: (action) => count(action.count),
          },
          { head: 'Subject', cell: (action) => <Subject subject={action.subject} /> },
        ]}
      />
      <Pager next={data?.next ?? null} />
    </>
  );
}

function asShown(action: string): string {
  return action.replaceAll('_', ' ');
}

/** A filter can be given as the table shows it. */
function asStored(action: string): string {
  return action.trim().replaceAll(' ', '_');
}
