// Errors of a destination by code, from a sample of its newest tries: how many, and the first and last time. Errors
// that are as old as the sample may have begun before it.

import type { DestinationDetail } from '../answers.js';
import { Table } from '../parts/table.js';
import { Ago, Time, shownTime } from '../parts/time.js';
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
          { head: 'First', width: 'time', cell: (error) => <First of={error} from={from} /> },
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

type FirstProps = { of: DestinationDetail['sample']['errors'][number]; from: string | null };

/**
 * The first time in the sample. It says nothing about the beginning of the errors if it is no further from the beginning
 * of the sample than these errors usually are from each other.
 */
function First({ of: { firstAt, lastAt, count: errors }, from }: FirstProps) {
  const first = Date.parse(firstAt);
  const usualGapMs = errors > 1 ? (Date.parse(lastAt) - first) / (errors - 1) : 0;
  if (first - Date.parse(from ?? firstAt) > usualGapMs) return <Time at={firstAt} />;
  return (
    <time dateTime={firstAt} title="The sample begins here: these errors began then, or earlier">
      ≤ {shownTime(new Date(firstAt))}
    </time>
  );
}
