// waybill audit: lists what operators did, and verifies that sealed attempts and actions are unchanged.

import { readFileSync } from 'node:fs';

import { Command, InvalidArgumentError } from 'commander';

import { listActions } from './actions.js';
import type { ActionFilter } from './actions.js';
import { readHeads } from './database.js';
import { verifySeals } from './verify.js';
import type { Verification } from './verify.js';
import { errorText } from '../../core/errors.js';
import { headLine, parseHeads } from './chain.js';
import type { Head } from './chain.js';
import { time, wholeNumber } from '../../cli/arguments.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { CommandError, exitCode, note, print, printJson, printTable } from '../../cli/output.js';
import { readingOptions, withReadableDatabase } from '../replicas/flags.js';
import type { ReadingFlags } from '../replicas/flags.js';

type ListFlags = ReadingFlags & ActionFilter & { limit: number; next?: string };
type VerifyFlags = ReadingFlags & { heads?: string[]; attemptsDays?: number };

const headsAtOnce = 1000;

export function auditCommand(): Command {
  const command = new Command('audit').description(
    'show what operators did, and verify that the record is unchanged',
  );

  readingOptions(command.command('list'))
    .description('show what operators did, newest first')
    .option('--actor <name>', 'only actions of this actor')
    .option('--action <name>', 'only this action, for example retry_dead_letters')
    .option('--destination <name>', 'only at this destination or endpoint')
    .option('--since <time>', 'at or after (ISO 8601)', time)
    .option('--until <time>', 'before (ISO 8601)', time)
    .option('--limit <n>', 'this many', wholeNumber, 50)
    .option('--next <place>', 'continue after the previous page: its `next`', place)
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill audit list --action discard_dead_letters --since 2026-01-31T08:00:00Z\n  $ waybill audit list --actor cli:ann --json',
    )
    .action(async (flags: ListFlags) => {
      const { limit, next, actor, action, destination, since, until } = flags;
      const filter = Object.fromEntries(
        Object.entries({ actor, action, destination, since, until }).filter(
          ([, value]) => value !== undefined,
        ),
      );
      const page = await withReadableDatabase(flags, (database) =>
        listActions(database, { limit, ...(next !== undefined && { next }) }, filter),
      );
      if (flags.json) return printJson(page);
      printTable(page.actions, ['at', 'actor', 'databaseUser', 'action', 'count', 'subject']);
      if (page.next !== null) note(`(more: --next ${page.next})`);
    });

  readingOptions(command.command('verify'))
    .description('find rows that were edited, deleted or added after they were sealed')
    .option(
      '--heads <file...>',
      'compare the chain with the heads in this file or log (- for standard input)',
    )
    .option(
      '--attempts-days <n>',
      'a day of attempts that retention removed sooner is a finding',
      wholeNumber,
    )
    .addHelpText(
      'after',
      `\nExit codes: 0 intact, 1 an error, 3 nothing was ever sealed, ${exitCode.tampered} something was changed.\n\nExamples:\n  $ waybill audit verify --heads /mnt/worm/waybill-heads.jsonl\n  $ journalctl -u waybill -o cat | waybill audit verify --heads - --json`,
    )
    .action(async (flags: VerifyFlags) => {
      const heads = flags.heads?.flatMap(readHeadsFrom);
      const report = await withReadableDatabase(
        flags,
        (database) =>
          verifySeals(database, {
            ...(heads && { heads }),
            ...(flags.attemptsDays !== undefined && { attemptsDays: flags.attemptsDays }),
          }),
        // the heads from outside may be newer than the replica
        { isAnswer: ({ intact, lastHead }) => intact && lastHead !== null },
      );
      if (report.lastHead === null && report.intact)
        throw new CommandError(
          exitCode.notFound,
          'nothing was ever sealed here: set audit.seal in the configuration, and run a relay or waybill maintain',
        );
      if (flags.json) printJson(report);
      else show(report);
      if (!report.intact) process.exitCode = exitCode.tampered;
    });

  sharedOptions(command.command('heads'))
    .description('print the heads of the chain, to be kept outside the database')
    .option('--after <n>', 'only heads after this number', wholeNumber)
    .addHelpText('after', '\nExample:\n  $ waybill audit heads >> /mnt/worm/waybill-heads.jsonl')
    .action(async (flags: SharedFlags & { after?: number }) => {
      await withDatabase(flags, async (database) => {
        for (let after = flags.after ?? 0; ;) {
          const heads = await readHeads(database, after, headsAtOnce);
          for (const head of heads) print(headLine(head));
          after = heads.at(-1)?.number ?? after;
          if (heads.length < headsAtOnce) return;
        }
      });
    });
  return command;
}

function show(report: Verification): void {
  const { attempts, actions } = report.sealedUntil;
  const kept = report.keptDays === null ? '' : `, after ${report.keptDays} days at least`;
  print(
    `${report.seals} seals, ${report.rows} rows unchanged, ${report.expired} ranges expired by retention${kept}`,
  );
  print(`sealed until: attempts ${attempts ?? 'never'}, actions ${actions ?? 'never'}`);
  if (report.lastHead) print(`last head: ${report.lastHead.number} ${report.lastHead.head}`);
  if (report.provenTo === null)
    note(
      'The chain is consistent. But a writer of the database could have rebuilt it: compare it with heads that were kept elsewhere (--heads FILE).',
    );
  else print(`matches the exported heads up to seal ${report.provenTo}`);
  for (const { kind, seal, range, sentence, rows } of report.findings) {
    print(`${kind.toUpperCase()}: seal ${seal}: ${sentence}`);
    if (range !== null) print(`  ${range}`);
    for (const row of rows) print(`  ${row}`);
  }
  print(report.intact ? 'intact' : `NOT INTACT: ${report.findings.length} findings`);
}

function readHeadsFrom(file: string): Head[] {
  let text: string;
  try {
    text = readFileSync(file === '-' ? 0 : file, 'utf8');
  } catch (error) {
    throw new CommandError(
      exitCode.usage,
      `--heads is "${file}", which cannot be read: ${errorText(error)}`,
    );
  }
  const heads = parseHeads(text);
  if (heads.length === 0)
    throw new CommandError(
      exitCode.usage,
      `--heads is "${file}", which has no line with a head: give a file of audit.heads.file, or a log with audit_sealed`,
    );
  return heads;
}

function place(text: string): string {
  if (!/^\d{1,18}$/.test(text)) throw new InvalidArgumentError('pass next from the previous page.');
  return text;
}
