// Keys that a dead letter blocks: what stands at the head, how many wait behind it, and the three ways out.

import type { Lane, Lanes } from '../answers.js';
import { post, withQuery } from '../api.js';
import { useLive } from '../live.js';
import { Action } from '../parts/action.js';
import { useQuestion } from '../parts/dialog.js';
import { Filters } from '../parts/filters.js';
import { Pager } from '../parts/pager.js';
import { Problem } from '../parts/problem.js';
import { Table } from '../parts/table.js';
import { Time } from '../parts/time.js';
import { linkTo, usePlace } from '../route.js';
import { countUpTo } from '../shown.js';

export function KeysScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const { ask, asking, dialog } = useQuestion(() => refresh());
  const { data, error, refresh } = useLive<Lanes>(
    withQuery('keys', { destination: query.get('destination'), limit: 50, next }),
    { paused: next !== null || asking },
  );
  const unblock = (lane: Lane, action: 'retry' | 'skip' | 'discard'): Promise<unknown> =>
    post(`keys/${lane.messageId}/${action}`, { destination: lane.destination });
  const retry = async (lane: Lane): Promise<void> => {
    await unblock(lane, 'retry');
    refresh();
  };
  const askFor = (lane: Lane, action: 'skip' | 'discard'): void =>
    ask({
      title: action === 'skip' ? 'Skip this dead letter?' : 'Discard this dead letter?',
      text: (
        <p>
          {action === 'skip'
            ? 'It stays a dead letter, and what waits behind it goes on without it.'
            : 'It will not be delivered, and what waits behind it goes on. The record of it stays.'}{' '}
          Key <b>{lane.key}</b> at <b>{lane.destination}</b>.
        </p>
      ),
      button: action === 'skip' ? 'Skip' : 'Discard',
      danger: true,
      act: () => unblock(lane, action),
    });
  return (
    <>
      <header class="screen-head">
        <h1>Blocked keys</h1>
      </header>
      <Filters path="keys" filters={[{ name: 'destination', label: 'Destination' }]} />
      <Problem error={error} again={refresh} />
      <Table
        label="Blocked keys"
        rows={data?.lanes}
        rowKey={(lane) => `${lane.messageId} ${lane.destination}`}
        empty="No key is blocked."
        columns={[
          {
            head: 'Key',
            onPhone: 'title',
            cell: (lane) => (
              <a href={linkTo('messages', { key: lane.key })}>
                {lane.key}
                {lane.tenantId !== null && <small class="muted"> {lane.tenantId}</small>}
              </a>
            ),
          },
          { head: 'Destination', width: 'w-name', cell: (lane) => lane.destination },
          {
            head: 'Behind it',
            numeric: true,
            width: 'w-number',
            cell: (lane) => countUpTo(lane.waiting, 1000),
          },
          {
            head: 'Head',
            width: 'w-large',
            cell: (lane) => (
              <a href={linkTo(`messages/${lane.messageId}`)} title={lane.messageId}>
                {lane.topic ?? lane.messageId}
              </a>
            ),
          },
          { head: 'Dead since', width: 'w-time', cell: (lane) => <Time at={lane.deadAt} /> },
          {
            head: 'Error',
            cell: (lane) => (
              <span class="error-cell" title={lane.errorMessage ?? ''}>
                {lane.errorCode !== null && <code>{lane.errorCode}</code>} {lane.errorMessage}
              </span>
            ),
          },
          {
            head: 'Actions',
            width: 'w-actions',
            cell: (lane) => (
              <span class="row-actions">
                <Action label="Retry" icon="retry" bare act={() => retry(lane)} />
                <Action label="Skip" icon="skip" bare act={() => askFor(lane, 'skip')} />
                <Action label="Discard" icon="delete" bare act={() => askFor(lane, 'discard')} />
              </span>
            ),
          },
        ]}
      />
      <Pager next={data?.next ?? null} />
      {dialog}
    </>
  );
}
