// Screen of the database: sizes, dead rows, the oldest transaction, partitions made ahead.

import type { Storage } from '../answers.js';
import { useLive } from '../live.js';
import { Problem } from '../parts/problem.js';
import { Table } from '../parts/table.js';
import { Ago } from '../parts/time.js';
import { bytes, count, plural, seconds } from '../shown.js';

export function DatabaseScreen() {
  const { data, error, loading, refresh } = useLive<Storage>('database', { everyMs: 15_000 });
  const facts: [string, string, boolean][] = [
    ['PostgreSQL', data?.version.split(' ')[0] ?? '–', false],
    ['Schema', data?.schema ?? '–', false],
    ['Size', data === undefined ? '–' : bytes(data.databaseBytes), false],
    [
      'Partitions ahead',
      data === undefined ? '–' : `${data.partitionDaysAhead} d`,
      data !== undefined && data.partitionDaysAhead < 3,
    ],
    [
      'Oldest transaction',
      data?.oldestTransactionSeconds === null ? 'none' : seconds(data?.oldestTransactionSeconds),
      (data?.oldestTransactionSeconds ?? 0) > 300,
    ],
    [
      'Oldest snapshot',
      data === undefined ? '–' : plural(data.oldestSnapshotAge ?? 0, 'transaction'),
      (data?.oldestSnapshotAge ?? 0) > 1_000_000,
    ],
  ];
  return (
    <>
      <header class="screen-head">
        <h1>Database</h1>
      </header>
      <Problem error={error} again={refresh} />
      <ul class="tiles facts-tiles">
        {facts.map(([name, value, bad]) => (
          <li key={name} class={`tile ${bad ? 'bad' : ''}`}>
            <div>
              <span class="tile-name">{name}</span>
              <span class="tile-value">{value}</span>
            </div>
          </li>
        ))}
      </ul>
      <Table
        label="Tables"
        rows={data?.tables}
        loading={loading}
        rowKey={(table) => table.table}
        empty="There are none."
        columns={[
          { head: 'Table', inCard: 'title', cell: (table) => <code>{table.table}</code> },
          { head: 'Size', numeric: true, width: 'small', cell: (table) => bytes(table.bytes) },
          {
            head: 'Rows, about',
            numeric: true,
            width: 'medium',
            cell: (table) => count(table.rows),
          },
          {
            head: 'Dead rows',
            numeric: true,
            width: 'medium',
            cell: (table) => count(table.deadRows),
          },
          {
            head: 'Partitions',
            numeric: true,
            width: 'small',
            cell: (table) => (table.partitions > 0 ? count(table.partitions) : ''),
          },
          {
            head: 'Last vacuum',
            width: 'medium',
            cell: (table) => <Ago at={table.lastVacuumAt} />,
          },
        ]}
      />
      <h2 class="section">Partitions</h2>
      <Table
        label="Partitions"
        rows={data?.days}
        loading={loading}
        rowKey={(day) => day.day}
        empty="There are none."
        columns={[
          { head: 'Day, UTC', inCard: 'title', cell: (day) => day.day },
          {
            head: 'Messages, about',
            numeric: true,
            width: 'medium',
            cell: (day) => count(day.messages),
          },
          { head: 'Size', numeric: true, width: 'small', cell: (day) => bytes(day.messageBytes) },
          {
            head: 'Attempts, about',
            numeric: true,
            width: 'medium',
            cell: (day) => count(day.attempts),
          },
          {
            head: 'Size',
            numeric: true,
            width: 'small',
            cell: (day) => bytes(day.attemptBytes),
          },
        ]}
      />
      <p class="footnote">
        While a transaction is open, no row that died after it began can be cleaned up. Sizes
        include indexes.
      </p>
    </>
  );
}
