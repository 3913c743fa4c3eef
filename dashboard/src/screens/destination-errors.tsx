// Errors of a destination by code, from a sample of its newest tries: how many, and the first and last time.

import type { DestinationDetail } from '../answers.js';
import { Table } from '../parts/table.js';
import { Ago, Time } from '../parts/time.js';
import { linkTo } from '../route.js';
import { count, plural } from '../shown.js';

export function DestinationErrors({ destination }: { destination: DestinationDetail }) {
  const { name, sample } = destination;
  const { hours, tries, from, errors } = sample;
  return (
    <section aria-label="Errors">
      <header class="section-head">
        <h2>Errors</h2>
        <span class="muted">
          of the newest {plural(tries, 'try', 'tries')} in {hours} hours
          {from !== null && (
            <>
              , since <Time at={from} />; “First” and “Last” are times within this sample
            </>
          )}
        </span>
      </header>
      <Table
        label="Errors"
        rows={errors}
        loading={false}
        rowKey={({ errorCode, remoteCode }) => `${errorCode} ${remoteCode ?? ''}`}
        empty={tries === 0 ? 'There were no tries.' : 'None of these tries failed.'}
        columns={[
          {
            head: 'Code',
            inCard: 'title',
            cell: ({ errorCode }) => (
              <a href={linkTo('messages', { destination: name, errorCode })} title={errorCode}>
                {errorCode}
              </a>
            ),
          },
          {
            head: 'Answer',
            width: 'small',
            cell: ({ remoteCode }) => remoteCode ?? <span class="muted">none</span>,
          },
          {
            head: 'Tries',
            width: 'count',
            numeric: true,
            cell: (error) => count(error.count),
          },
          { head: 'First', width: 'time', cell: ({ firstAt }) => <Time at={firstAt} /> },
          {
            head: 'Last',
            width: 'time',
            cell: ({ lastAt, lastMessageId }) => (
              <a href={linkTo(`messages/${lastMessageId}`)}>
                <Ago at={lastAt} />
              </a>
            ),
          },
          { head: 'Error', cell: ({ lastError }) => lastError ?? '' },
        ]}
      />
    </section>
  );
}
