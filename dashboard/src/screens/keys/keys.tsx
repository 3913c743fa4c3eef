// Screen of blocked keys: the dead letter that blocks a key, the number of messages behind it, and the three ways to
// unblock it.

import type { BlockedKey, BlockedKeys } from './answers.js';
import { post, withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Action } from '../../parts/action.js';
import { useQuestion } from '../../parts/dialog.js';
import type { Question } from '../../parts/dialog.js';
import { Filters } from '../../parts/filters.js';
import { Outcomes } from '../../parts/outcomes.js';
import { Pager } from '../../parts/pager.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { linkTo, usePlace } from '../../route.js';
import { countUpTo } from '../../shown.js';
import { useDiscards } from '../discards.js';

export function KeysScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const { ask, asking, dialog } = useQuestion(() => refresh());
  const { data, error, loading, refresh } = useLive<BlockedKeys>(
    withQuery('keys', { destination: query.get('destination'), limit: 50, next }),
    { paused: next !== null || asking },
  );
  const unblock = (blocked: BlockedKey, action: 'retry' | 'skip' | 'discard'): Promise<unknown> =>
    post(`keys/${blocked.messageId}/${action}`, { destination: blocked.destination });
  const retry = async (blocked: BlockedKey): Promise<void> => {
    await unblock(blocked, 'retry');
    refresh();
  };
  const { discard, discarded } = useDiscards(ask, refresh);
  const questionOf = (blocked: BlockedKey, action: 'skip' | 'discard'): Question => ({
    title: action === 'skip' ? 'Skip this dead letter?' : 'Discard this dead letter?',
    text: (
      <p>
        {action === 'skip'
          ? 'It stays a dead letter, and the messages behind it are delivered without it.'
          : 'It will not be delivered, but the messages behind it will. You can undo it until retention removes the message.'}{' '}
        Key <b>{blocked.key}</b> at <b>{blocked.destination}</b>.
      </p>
    ),
    button: action === 'skip' ? 'Skip' : 'Discard',
    danger: true,
    act: () => unblock(blocked, action),
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
        rows={data?.keys}
        loading={loading}
        rowKey={(blocked) => `${blocked.messageId} ${blocked.destination}`}
        empty="No key is blocked."
        columns={[
          {
            head: 'Key',
            inCard: 'title',
            cell: (blocked) => (
              <a href={linkTo('messages', { key: blocked.key })}>
                {blocked.key}
                {blocked.tenantId !== null && <small class="muted"> {blocked.tenantId}</small>}
              </a>
            ),
          },
          { head: 'Destination', width: 'name', cell: (blocked) => blocked.destination },
          {
            head: 'Behind it',
            numeric: true,
            width: 'number',
            cell: (blocked) => countUpTo(blocked.waiting, 1000),
          },
          {
            head: 'Dead letter',
            width: 'large',
            cell: (blocked) => (
              <a href={linkTo(`messages/${blocked.messageId}`)} title={blocked.messageId}>
                {blocked.topic ?? blocked.messageId}
              </a>
            ),
          },
          { head: 'Dead since', width: 'time', cell: (blocked) => <Time at={blocked.deadAt} /> },
          {
            head: 'Error',
            cell: (blocked) => (
              <span class="error-cell" title={blocked.errorMessage ?? ''}>
                {blocked.errorCode !== null && <code>{blocked.errorCode}</code>}{' '}
                {blocked.errorMessage}
              </span>
            ),
          },
          {
            head: 'Actions',
            width: 'actions',
            cell: (blocked) => (
              <span class="row-actions">
                <Action label="Retry" icon="retry" bare act={() => retry(blocked)} />
                <Action
                  label="Skip"
                  icon="skip"
                  bare
                  act={() => ask(questionOf(blocked, 'skip'))}
                />
                <Action
                  label="Discard"
                  icon="delete"
                  bare
                  act={() => discard(blocked, questionOf(blocked, 'discard'))}
                />
              </span>
            ),
          },
        ]}
      />
      <Pager next={data?.next ?? null} />
      <p class="footnote">
        A key is blocked while it waits at a destination behind a dead letter; to find the messages
        of any key, search for <code>key:…</code> in <a href={linkTo('messages')}>Messages</a>.
      </p>
      <Outcomes>{discarded}</Outcomes>
      {dialog}
    </>
  );
}
