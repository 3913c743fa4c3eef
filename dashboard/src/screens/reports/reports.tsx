// Screen of reports: messages of a period by topic or tenant, deliveries by destination; sortable, with downloads.

import { fileNameOf } from '../../../../src/features/reports/file-name.js';
import type { Report } from './answers.js';
import { columnsOf } from './columns.js';
import { apiAddress, withQuery } from '../../api.js';
import { useLive } from '../../live.js';
import { Filters } from '../../parts/filters.js';
import { Problem } from '../../parts/problem.js';
import { Table } from '../../parts/table.js';
import { Time } from '../../parts/time.js';
import { linkTo, usePlace } from '../../route.js';
import { count, milliseconds, plural, rate, share } from '../../shown.js';

const kinds = [
  ['topics', 'Topics'],
  ['destinations', 'Destinations'],
  ['tenants', 'Tenants'],
] as const;

const periods = [
  ['1h', '1 h'],
  ['24h', '24 h'],
  ['7d', '7 d'],
  ['30d', '30 d'],
] as const;

/** All names, and the others together. */
const mostRows = 1001;

export function ReportsScreen() {
  const { path, query } = usePlace();
  const [by] = kinds.find(([kind]) => kind === path[1]) ?? kinds[0];
  const here = `reports/${by}`;
  const given = Object.fromEntries(query);
  const { from, to, name, sort, order } = given;
  // a period of the address counts only without a beginning
  const period = from === undefined ? (given['period'] ?? '24h') : undefined;
  const asked = { period, from, to, name, sort, order };
  const { data, error, loading, refresh } = useLive<Report>(withQuery(here, asked), {
    everyMs: 30_000,
  });
  const download = { ...asked, limit: mostRows };
  const columns = columnsOf(by, {
    total: data?.total,
    sort: sort ?? (by === 'destinations' ? 'tries' : 'messages'),
    order,
    linkFor: (column, next) => linkTo(here, { ...given, sort: column, order: next }),
  });
  return (
    <>
      <header class="screen-head">
        <h1>Reports</h1>
        <nav class="segments" aria-label="Report">
          {kinds.map(([kind, word]) => (
            <a
              key={kind}
              // another report has other columns and names
              href={linkTo(`reports/${kind}`, { period: given['period'], from, to })}
              aria-current={kind === by ? 'true' : undefined}
            >
              {word}
            </a>
          ))}
        </nav>
        <nav class="segments" aria-label="Period">
          {periods.map(([value, word]) => (
            <a
              key={value}
              href={linkTo(here, { name, sort, order, period: value })}
              aria-current={value === period ? 'true' : undefined}
            >
              {word}
            </a>
          ))}
        </nav>
      </header>
      <Filters
        path={here}
        filters={[
          { name: 'name', label: 'Name' },
          {
            name: 'sort',
            label: 'Sort by',
            none: 'the largest',
            choices: columns.flatMap(({ head, sorted }) =>
              sorted === undefined ? [] : [[sorted.column, head] as const],
            ),
          },
          { name: 'from', label: 'From', type: 'datetime-local' },
          { name: 'to', label: 'To', type: 'datetime-local' },
        ]}
      />
      <Problem error={error} again={refresh} />
      {data?.by === by && <Total total={data.total} />}
      <Table
        label="Report"
        rows={data?.by === by ? data.rows : undefined}
        loading={loading}
        rowKey={(row) => row.name ?? '\0'}
        empty="Nothing was counted in this period."
        columns={columns}
      />
      <footer class="report-foot">
        <p class="footnote">
          {data !== undefined && <Coverage report={data} />}
          {by === 'destinations' &&
            ' The time to delivery is that from the enqueue to the delivery, off by at most a fifth plus 1.2 ms.'}
        </p>
        <span class="head-actions">
          <a
            class="button small"
            href={apiAddress(withQuery(here, { ...download, format: 'csv' }))}
            download={data && fileNameOf(data, 'csv')}
          >
            CSV
          </a>
          <a
            class="button small"
            href={apiAddress(withQuery(here, download))}
            download={data && fileNameOf(data, 'json')}
          >
            JSON
          </a>
        </span>
      </footer>
    </>
  );
}

function Total({ total }: { total: Report['total'] }) {
  if ('messages' in total)
    return (
      <p class="report-total">
        <b>{plural(total.messages, 'message')}</b> in all, {rate(total.perSecond)} per second.
      </p>
    );
  const { tries, delivered, failed, dead, deliveryRate, successRate } = total;
  return (
    <p class="report-total">
      <b>{plural(tries, 'try', 'tries')}</b> in all: {count(delivered)} delivered, {count(failed)}{' '}
      failed, {count(dead)} of them for good. Delivery rate {share(deliveryRate)}, success rate{' '}
      {share(successRate)}. Time to delivery: p50 {milliseconds(total.p50Ms)}, p95{' '}
      {milliseconds(total.p95Ms)}, p99 {milliseconds(total.p99Ms)}.
    </p>
  );
}

function Coverage({ report }: { report: Report }) {
  const { from, to, completeTo, hidden } = report;
  if (completeTo === null)
    return <>Nothing is counted yet: a running relay counts every 30 seconds.</>;
  if (completeTo <= from)
    return (
      <>
        This period is not counted yet: everything before <Time at={completeTo} /> is.
      </>
    );
  return (
    <>
      From <Time at={from} /> to <Time at={completeTo < to ? completeTo : to} />; everything before{' '}
      <Time at={completeTo} /> is counted.
      {hidden > 0 && ` ${plural(hidden, 'row')} more: in the downloads.`}
    </>
  );
}
