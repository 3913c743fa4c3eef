// Dead letters grouped by cause, over all destinations that match the filters. Usually one action solves all letters of
// a group. Groups can be selected, and a click on one shows its letters.

import type { Groups } from './answers.js';
import { withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Action, useMayOperate } from '../../parts/action.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { linkTo } from '../../route.js';
import { about, count, plural } from '../../shown.js';
import { causeWords } from './causes.js';
import type { Change } from './dead-letter-job.js';

type Group = Groups['groups'][number];
type GroupsProps = {
  /** The filters of the screen, without the cause. */
  filter: Record<string, string>;
  /** The cause whose letters are listed. */
  shown: string | null;
  chosen: ReadonlySet<string>;
  choose: (cause: string, on: boolean) => void;
  change: (change: Change) => void;
};

export function GroupsTable({ filter, shown, chosen, choose, change }: GroupsProps) {
  const mayOperate = useMayOperate();
  const { data, error, loading, refresh } = useLive<Groups>(
    withQuery('dead-letters/groups', filter),
  );
  const ofGroup = (action: Change['action'], group: Group): Change => ({
    action,
    what: `all with the cause ${causeWords(group)}`,
    filter: { ...filter, causes: [group.cause] },
  });
  return (
    <div class="groups">
      <Problem error={error} again={refresh} />
      <Table
        label="Groups"
        rows={data?.groups}
        loading={loading}
        rowKey={({ cause }) => cause}
        rowClass={({ cause }) => (chosen.has(cause) || cause === shown ? 'chosen' : '')}
        empty="There are no dead letters."
        columns={[
          ...(mayOperate
            ? [
                {
                  head: '',
                  width: 'check' as const,
                  cell: (group: Group) => (
                    <input
                      type="checkbox"
                      aria-label={`Select the group ${causeWords(group)}`}
                      checked={chosen.has(group.cause)}
                      onChange={(event) => choose(group.cause, event.currentTarget.checked)}
                    />
                  ),
                },
              ]
            : []),
          {
            head: 'Cause',
            width: 'name',
            inCard: 'title',
            cell: (group) => (
              <a
                href={linkTo('dead-letters', {
                  ...filter,
                  cause: group.cause === shown ? null : group.cause,
                })}
                title={group.cause}
              >
                {causeWords(group)}
              </a>
            ),
          },
          {
            head: 'Letters',
            numeric: true,
            width: 'number',
            cell: (group) => <b>{group.isExact ? count(group.count) : about(group.count, 0)}</b>,
          },
          { head: 'Destinations', width: 'name', cell: destinationsOf },
          { head: 'First died', width: 'time', cell: (group) => <Time at={group.oldestAt} /> },
          { head: 'Last died', width: 'time', cell: (group) => <Time at={group.newestAt} /> },
          {
            head: 'Last error',
            cell: ({ sampleId, sampleError }) => (
              <a href={linkTo(`messages/${sampleId}`)} title={sampleError ?? ''}>
                <span>{sampleError ?? 'Show message'}</span>
              </a>
            ),
          },
          {
            head: 'Actions',
            width: 'actions-2',
            cell: (group) => (
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

function destinationsOf({ destination, destinations }: Group): string {
  return destinations > 1 ? `${destination} and ${plural(destinations - 1, 'other')}` : destination;
}
