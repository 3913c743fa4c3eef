// waybill report: messages of a period by topic or tenant, or deliveries by destination.

import { Argument, Command, Option } from 'commander';

import { time, wholeNumber } from '../../cli/arguments.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { note, print, printJson, printTable } from '../../cli/output.js';
import { csvOf, nameOf } from './csv.js';
import type { ReportBy } from './database.js';
import {
  columnsOf,
  defaultRows,
  periodNames,
  periodOf,
  readReport,
  reportedBy,
  sortColumns,
} from './report.js';
import type { PeriodName } from './report.js';

type Flags = SharedFlags & {
  last?: PeriodName;
  from?: Date;
  to?: Date;
  name?: string;
  sort?: string;
  order?: 'asc' | 'desc';
  limit?: number;
  csv?: boolean;
};

export function reportCommand(): Command {
  return sharedOptions(new Command('report'))
    .description('count the messages of a period by topic or tenant, or deliveries by destination')
    .addArgument(
      new Argument('[by]', 'what the rows are').choices(reportedBy).default(reportedBy[0]),
    )
    .addOption(
      new Option('--last <period>', 'the period up to now; 24h if --from is not given').choices(
        periodNames,
      ),
    )
    .option('--from <time>', 'at or after (ISO 8601); at most 31 days before --to', time)
    .option('--to <time>', 'before (ISO 8601); now if not given', time)
    .option('--name <name>', 'only this topic, tenant or destination')
    .addOption(new Option('--sort <column>', 'sort by this column').choices(sortColumns))
    .addOption(new Option('--order <order>', 'smallest or largest first').choices(['asc', 'desc']))
    .option('--limit <n>', 'at most so many rows; 100 if not given, all with --csv', wholeNumber)
    .option('--csv', 'answer in CSV')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill report topics --last 7d\n  $ waybill report destinations --last 24h --sort p95Ms\n  $ waybill report tenants --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --csv',
    )
    .action(async (by: ReportBy, flags: Flags) => {
      const { last: period, from, to, sort, order, name } = flags;
      const { limit = defaultRows(flags.csv ?? false) } = flags;
      const chosen = periodOf({ period, from, to }, new Date());
      const report = await withDatabase(flags, (database) =>
        readReport(database, by, { ...chosen, sort, order, limit, name: name ?? null }),
      );
      if (flags.json) return printJson(report);
      const { hidden, completeTo } = report;
      const hiddenNote = `(${hidden} more: --limit ${hidden + limit})`;
      if (flags.csv) {
        // as it is: print() would change control characters in names
        process.stdout.write(csvOf(report));
        if (hidden > 0) note(hiddenNote);
        return;
      }
      const shown = report.rows.map((row) => ({ ...row, name: nameOf(row.name) }));
      printTable([...shown, { ...report.total, name: '(total)' }], columnsOf[by]);
      if (hidden > 0) note(hiddenNote);
      print(`from ${report.from.toISOString()} to ${report.to.toISOString()}`);
      note(
        completeTo === null
          ? 'Nothing is counted yet: a relay counts every 30 seconds.'
          : `Complete up to ${completeTo.toISOString()}.`,
      );
    });
}
