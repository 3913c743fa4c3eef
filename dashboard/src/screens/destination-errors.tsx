// Errors of a destination by code, from a sample of its newest tries: how many, and the first and last time. Errors
// that are as old as the sample may have begun before it, and older dead letters show that they did.

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
              , since <Time at={from} />; “≤”: the error began then, or earlier
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

/** So many usual gaps between two errors do not pass without one by chance. */
const longGaps = 10;

/**
 * The first time in the sample, or the time of an older dead letter with the same codes. Only errors that begin long
 * after the sample, compared with the usual gap between two of them, began there.
 */
function First({ of: { firstAt, lastAt, count: errors, firstDeadAt }, from }: FirstProps) {
  const first = Date.parse(firstAt);
  if (firstDeadAt !== null && Date.parse(firstDeadAt) < first)
    return <NotAfter at={firstDeadAt} why="The oldest dead letter with this error died then" />;
  const usualGapMs = errors > 1 ? (Date.parse(lastAt) - first) / (errors - 1) : 0;
  if (first - Date.parse(from ?? firstAt) > longGaps * usualGapMs) return <Time at={firstAt} />;
  return <NotAfter at={firstAt} why="The sample begins here" />;
}

function NotAfter({ at, why }: { at: string; why: string }) {
  return (
    <time dateTime={at} title={`${why}: these errors began then, or earlier`}>
      ≤ {shownTime(new Date(at))}
    </time>
  );
}
