// Screen of operators' actions: who did what, to how many, and when.

import type { Actions } from './answers.js';
import { withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Pager } from '../../parts/pager.js';
import { Problem } from '../../parts/problem.js';
import { Subject } from '../../parts/subject.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { usePlace } from '../../route.js';
import { count } from '../../shown.js';

export function AuditScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const { data, error, loading, refresh } = useLive<Actions>(
    withQuery('audit', { limit: 50, next }),
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
      <Problem error={error} again={refresh} />
      <Table
        label="Actions"
        rows={data?.actions}
        loading={loading}
        rowKey={(action) => action.id}
        empty="No operator has done anything yet."
        columns={[
          { head: 'When', width: 'time', cell: (action) => <Time at={action.at} /> },
          { head: 'Who', width: 'name', cell: (action) => action.actor },
          {
            head: 'What',
            width: 'name',
            inCard: 'title',
            cell: (action) => <b>{action.action.replaceAll('_', ' ')}</b>,
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
