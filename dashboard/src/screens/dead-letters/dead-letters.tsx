// Screen of dead letters: groups by destination and code, the selected letters, and actions on one, a selection, or all
// that match.

import { useEffect, useState } from 'preact/hooks';

import type { ListedMessage, MessagePage } from '../../answers.js';
import { post, withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Action, useMayOperate } from '../../parts/action.js';
import { useQuestion } from '../../parts/dialog.js';
import { Filters } from '../../parts/filters.js';
import { Pager } from '../../parts/pager.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { usePlace } from '../../route.js';
import { plural } from '../../shown.js';
import { GroupsTable } from './dead-letter-groups.js';
import { JobDialog, UnfinishedJobs } from './dead-letter-job.js';
import type { Change } from './dead-letter-job.js';
import { deleteQuestion, messageColumns } from '../message-rows.js';

const filters = [
  { name: 'topic', label: 'Topic' },
  { name: 'destination', label: 'Destination' },
  { name: 'errorCode', label: 'Error code' },
  { name: 'tenantId', label: 'Tenant' },
] as const;

export function DeadLettersScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const mayOperate = useMayOperate();
  const [chosen, setChosen] = useState<ReadonlyMap<string, ListedMessage>>(new Map());
  const [change, setChange] = useState<Change>();
  const { ask, asking, dialog } = useQuestion(() => done());
  const filter = Object.fromEntries(
    filters.flatMap(({ name }) =>
      query.get(name) === null ? [] : [[name, query.get(name) ?? '']],
    ),
  );
  const { data, error, loading, refresh } = useLive<MessagePage>(
    withQuery('messages', { ...filter, status: 'dead', limit: 50, next }),
    { paused: next !== null || chosen.size > 0 || change !== undefined || asking },
  );
  const chosenAll = query.toString();
  useEffect(() => setChosen(new Map()), [chosenAll]);
  const done = (): void => {
    setChange(undefined);
    setChosen(new Map());
    refresh();
  };
  const destinations = new Set([...chosen.values()].map(({ destination }) => destination));
  const ofChosen = (action: Change['action']): Change => ({
    action,
    what: `the selected ${plural(chosen.size, 'letter')}`,
    filter: {
      ids: [...new Set([...chosen.values()].map(({ messageId }) => messageId))],
      ...(destinations.size === 1 && { destination: [...destinations][0] ?? '' }),
    },
  });
  const ofAll = (action: Change['action']): Change => ({
    action,
    what: Object.keys(filter).length === 0 ? 'all dead letters' : 'all that match',
    filter,
  });
  const retry = async (message: ListedMessage): Promise<void> => {
    await post(`messages/${message.messageId}/retry`, { destination: message.destination });
    refresh();
  };
  const choose = (message: ListedMessage, on: boolean): void => {
    const changed = new Map(chosen);
    if (on) changed.set(keyOf(message), message);
    else changed.delete(keyOf(message));
    setChosen(changed);
  };
  const rows = data?.messages ?? [];
  return (
    <>
      <header class="screen-head">
        <h1>Dead letters</h1>
        <span class="head-actions">
          <Action label="Retry all that match" icon="retry" act={() => setChange(ofAll('retry'))} />
          <Action
            label="Clear dead letters"
            icon="delete"
            kind="danger"
            act={() => setChange(ofAll('discard'))}
          />
        </span>
      </header>
      <UnfinishedJobs />
      <GroupsTable change={setChange} />
      <Filters path="dead-letters" filters={filters} />
      <Problem error={error} again={refresh} />
      <div class="selection" aria-live="polite">
        {chosen.size === 0 ? (
          <span class="muted">
            {mayOperate && 'Select letters to retry or discard them together.'}
          </span>
        ) : (
          <>
            <b>{plural(chosen.size, 'letter')} selected</b>
            {destinations.size > 1 ? (
              <span class="muted">of several destinations: choose those of one</span>
            ) : (
              <>
                <Action
                  label="Retry selected"
                  icon="retry"
                  act={() => setChange(ofChosen('retry'))}
                />
                <Action
                  label="Discard selected"
                  icon="delete"
                  act={() => setChange(ofChosen('discard'))}
                />
              </>
            )}
            <button type="button" class="small" onClick={() => setChosen(new Map())}>
              Select none
            </button>
          </>
        )}
      </div>
      <Table
        label="Dead letters"
        rows={data?.messages}
        loading={loading}
        rowKey={keyOf}
        rowClass={(message) => (chosen.has(keyOf(message)) ? 'chosen' : '')}
        empty="No dead letter matches."
        columns={[
          ...(mayOperate
            ? [
                {
                  head: '',
                  width: 'check' as const,
                  cell: (message: ListedMessage) => (
                    <input
                      type="checkbox"
                      aria-label={`Select ${message.messageId}`}
                      checked={chosen.has(keyOf(message))}
                      onChange={(event) => choose(message, event.currentTarget.checked)}
                    />
                  ),
                },
              ]
            : []),
          ...messageColumns.filter(({ head }) => head !== 'Status'),
          {
            head: 'Actions',
            width: 'actions',
            cell: (message) => (
              <span class="row-actions">
                <Action label="Retry" icon="retry" bare act={() => retry(message)} />
                <Action
                  label="Discard"
                  icon="delete"
                  bare
                  act={() => ask(deleteQuestion(message))}
                />
              </span>
            ),
          },
        ]}
      />
      <Pager next={data?.next ?? null} nextLabel={rows.length < 50 ? 'Search on' : 'Next page'}>
        {data !== undefined && `${rows.length} shown`}
      </Pager>
      {change && <JobDialog change={change} close={done} />}
      {dialog}
    </>
  );
}

function keyOf(message: ListedMessage): string {
  return `${message.messageId} ${message.destination ?? ''}`;
}
