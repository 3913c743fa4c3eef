// Screen of dead letters: groups by cause, the letters that match the filters, and actions on one letter, a selection,
// or all that match. A discard can be undone.

import { useEffect, useState } from 'preact/hooks';

import type { ListedMessage } from '../../answers.js';
import { post, withQuery } from '../../api.js';
import { Action, useMayOperate } from '../../parts/action.js';
import { useQuestion } from '../../parts/dialog.js';
import { Filters } from '../../parts/filters.js';
import { Outcomes } from '../../parts/outcomes.js';
import { Problem } from '../../parts/problem.js';
import { SavedFilters } from '../../parts/saved-filters.js';
import { Table } from '../../parts/table.js';
import { usePlace } from '../../route.js';
import { GroupsTable } from './dead-letter-groups.js';
import { JobDialog, JobsPanel } from './dead-letter-job.js';
import type { Change } from './dead-letter-job.js';
import {
  changeOf,
  isChosen,
  isEmpty,
  keyOf,
  nothing,
  selectedWords,
  withGroup,
  withLetter,
} from './selection.js';
import type { Selection } from './selection.js';
import { useDiscards } from '../discards.js';
import { deleteQuestion, useMessageColumns } from '../message-rows.js';
import { SearchPager, emptyWords, pageSize, useSearch } from '../message-search.js';
import { useRetryResults } from '../retry-results.js';

const filters = [
  { name: 'topic', label: 'Topic', completes: 'topics' },
  { name: 'destination', label: 'Destination', completes: 'destinations' },
  { name: 'errorCode', label: 'Error code' },
  { name: 'tenantId', label: 'Tenant', completes: 'tenants' },
  { name: 'cause', label: 'Cause' },
] as const;

export function DeadLettersScreen() {
  const { query } = usePlace();
  const next = query.get('next');
  const mayOperate = useMayOperate();
  const [selection, setSelection] = useState<Selection>(nothing);
  const [change, setChange] = useState<Change>();
  const { follow, results } = useRetryResults();
  const { ask, asking, dialog } = useQuestion(() => done());
  const filter: Record<string, string> = Object.fromEntries(
    filters.flatMap(({ name }) =>
      query.get(name) === null ? [] : [[name, query.get(name) ?? '']],
    ),
  );
  const { cause, ...others } = filter;
  const search = useSearch(
    withQuery('messages', { ...filter, status: 'dead', limit: pageSize, next }),
    { paused: next !== null || !isEmpty(selection) || change !== undefined || asking },
  );
  const { loading, refresh } = search;
  const { discard, discarded } = useDiscards(ask, refresh);
  // a selection can have letters of several pages
  useEffect(() => setSelection(nothing), [new URLSearchParams(filter).toString()]);
  useEffect(() => setChange(undefined), [query]);
  const done = (): void => {
    setChange(undefined);
    setSelection(nothing);
    refresh();
  };
  const retry = async (message: ListedMessage): Promise<void> => {
    await post(`messages/${message.messageId}/retry`, { destination: message.destination });
    follow(message);
    refresh();
  };
  const rows = search.messages ?? [];
  const columns = useMessageColumns(search.messages);
  return (
    <>
      <header class="screen-head">
        <h1>Dead letters</h1>
        <span class="head-actions">
          <Action
            label="Retry all that match"
            icon="retry"
            act={() => setChange(changeOf('retry', { kind: 'all' }, filter))}
          />
          <Action
            label="Discard all that match"
            icon="delete"
            kind="danger"
            act={() => setChange(changeOf('discard', { kind: 'all' }, filter))}
          />
        </span>
      </header>
      <JobsPanel />
      <GroupsTable
        filter={others}
        shown={cause ?? null}
        chosen={selection.kind === 'groups' ? selection.causes : new Set()}
        choose={(group, on) => setSelection(withGroup(selection, group, on))}
        change={setChange}
      />
      <Filters path="dead-letters" filters={filters} />
      <SavedFilters />
      <Problem error={search.error} again={search.again} />
      <div class="selection" aria-live="polite">
        {isEmpty(selection) ? (
          <span class="muted">
            {mayOperate && 'Select letters or groups to retry or discard them together.'}
          </span>
        ) : (
          <>
            <b>{selectedWords(selection)} selected</b>
            <Action
              label="Retry selected"
              icon="retry"
              act={() => setChange(changeOf('retry', selection, filter))}
            />
            <Action
              label="Discard selected"
              icon="delete"
              act={() => setChange(changeOf('discard', selection, filter))}
            />
            <button type="button" class="small" onClick={() => setSelection(nothing)}>
              Select none
            </button>
          </>
        )}
        {mayOperate && rows.length > 0 && selection.kind !== 'all' && (
          <button type="button" class="small" onClick={() => setSelection({ kind: 'all' })}>
            Select all that match
          </button>
        )}
      </div>
      <Table
        label="Dead letters"
        isMain
        rows={search.messages}
        loading={loading}
        rowKey={keyOf}
        rowClass={(message) => (isChosen(selection, message) ? 'chosen' : '')}
        empty={emptyWords(search, 'No dead letter matches.')}
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
                      checked={isChosen(selection, message)}
                      onChange={(event) =>
                        setSelection(withLetter(selection, message, event.currentTarget.checked))
                      }
                    />
                  ),
                },
              ]
            : []),
          ...columns.filter(({ head }) => head !== 'Status'),
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
                  act={() => discard(message, deleteQuestion(message))}
                />
              </span>
            ),
          },
        ]}
      />
      <SearchPager search={search} />
      <Outcomes>
        {results}
        {discarded}
      </Outcomes>
      {change && <JobDialog change={change} close={done} />}
      {dialog}
    </>
  );
}
