// Dead letters grouped by destination and code: usually a group has one cause, and one action solves it.

import type { Groups } from './answers.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { linkTo } from '../../route.js';
import { about } from '../../shown.js';
import type { Change } from './dead-letter-job.js';

const countedAtMost = 1000;

export function GroupsTable({ change }: { change: (change: Change) => void }) {
  const { data, error, loading, refresh } = useLive<Groups>('dead-letters/groups');
  const ofGroup = (
    action: Change['action'],
    { destination, errorCode }: Groups['groups'][number],
  ): Change => ({
    action,
    what: `all of ${destination} with the code ${errorCode ?? ''}`,
    filter: { destination, ...(errorCode !== null && { errorCode }) },
  });
  return (
    <div class="groups">
      <Problem error={error} again={refresh} />
      <Table
        label="Groups"
        rows={data?.groups}
        loading={loading}
        rowKey={(group) => `${group.destination} ${group.errorCode ?? ''}`}
        empty="There are no dead letters."
        columns={[
          {
            head: 'Error code',
            inCard: 'title',
            cell: ({ destination, errorCode }) => (
              <a href={linkTo('dead-letters', { destination, errorCode })}>
                {errorCode === null ? <span class="muted">no code</span> : <code>{errorCode}</code>}
              </a>
            ),
          },
          { head: 'Destination', width: 'large', cell: (group) => group.destination },
          {
            head: 'Letters',
            numeric: true,
            width: 'number',
            cell: (group) => <b>{about(group.count, countedAtMost)}</b>,
          },
          { head: 'First died', width: 'time', cell: (group) => <Time at={group.oldestAt} /> },
          { head: 'Last died', width: 'time', cell: (group) => <Time at={group.newestAt} /> },
          {
            head: 'Actions',
            width: 'actions',
            // a group without a code cannot be selected by code; its letters are selected in the list
            cell: (group) =>
              group.errorCode !== null && (
                <span class="row-actions">
                  <Action
                    label="Retry group"
                    icon="retry"
                    bare
                    act={() => change(ofGroup('retry', group))}
                  />
                  <Action
                    label="Discard group"
                    icon="delete"
                    bare
                    act={() => change(ofGroup('discard', group))}
                  />
                </span>
              ),
          },
        ]}
      />
    </div>
  );
}
