// waybill doctor: finds problems, present or coming, and says how to fix them. It lists every check, also those
// without a finding, so the reader sees what was checked. It changes nothing.

import { Argument, Command, InvalidArgumentError } from 'commander';

import { checks, examine } from './doctor.js';
import type { CheckState, Examination } from './doctor.js';
import { visibleLine } from '../core/visible-text.js';
import { inDatabase, sharedOptions } from '../cli/connection-options.js';
import type { SharedFlags } from '../cli/connection-options.js';
import { overEachShard } from '../features/shards/each-shard.js';
import { exitCode, note, print } from '../cli/output.js';

/** The limit for each check, so a busy database does not hold up the doctor for long. */
const statementTimeoutMs = 10_000;

export function doctorCommand(): Command {
  return sharedOptions(new Command('doctor'))
    .description('find problems and say how to fix them; changes nothing')
    .addArgument(
      new Argument('[codes...]', 'only these checks (default: all)').argParser(knownCode),
    )
    .addHelpText(
      'after',
      `
Every check is listed with ok, warning, error or skipped, what was found, and what to do about it.
Run it where the relays run, with their environment.

Exit codes: 0 when no check warns, 10 when one does, 1 when the database cannot be reached.

Examples:
  $ waybill doctor
  $ waybill doctor partitions_missing destinations_unserved
  $ waybill doctor --json | jq '.[] | select(.state != "ok")'
  $ DATABASE_URL=postgresql://localhost/app waybill doctor || echo "look at it"`,
    )
    .action(async (codes: string[], flags: SharedFlags) => {
      const only = codes.length > 0 ? { only: codes } : {};
      await overEachShard(
        flags,
        async (options) => {
          const report = await inDatabase({ ...options, statementTimeoutMs }, (database) =>
            examine(database, only),
          );
          if (flags.json) count(report);
          return report;
        },
        (report) => {
          for (const examination of report) printExamination(examination);
          count(report);
        },
      );
    });
}

function count(report: readonly Examination[]): void {
  const of = (state: CheckState) => report.filter((each) => each.state === state).length;
  const states = ['ok', 'warning', 'error', 'skipped'] as const;
  note(
    `${report.length} ${report.length === 1 ? 'check' : 'checks'}: ${states.map((state) => `${of(state)} ${state}`).join(', ')}`,
  );
  if (of('warning') + of('error') > 0) process.exitCode ??= exitCode.findings;
}

function knownCode(code: string, earlier: string[] = []): string[] {
  if (!checks.some((check) => check.code === code))
    throw new InvalidArgumentError(
      `There is no check ${code}; there are ${checks.map((check) => check.code).join(', ')}.`,
    );
  return [...earlier, code];
}

function printExamination({ code, title, state, found, remedy, paste }: Examination): void {
  // a result without a problem needs the title to be understood
  const said = state === 'ok' || state === 'skipped' ? `${title}: ${found}` : found;
  print(visibleLine(`${state.padEnd(7)}  ${code.padEnd(22)}  ${said}`));
  if (remedy !== null) print(visibleLine(`           ${remedy}`));
  for (const line of paste) print(visibleLine(`             ${line}`));
}
