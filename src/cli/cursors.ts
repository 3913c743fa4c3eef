// waybill cursors: who reads the log and how far; start one anew, forget one, and make them this server's own.

import os from 'node:os';

import { Command, Option } from 'commander';

import { deleteCursor, listCursors, repairCursors, resetCursor } from '../database/cursors.js';
import type { CursorReport, CursorStart } from '../database/cursors.js';
import type { Database } from '../database/connection.js';
import { confirm } from './confirm.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { wholeNumber } from './arguments.js';
import { CommandError, exitCode, note, print, printJson, printTable } from './output.js';

type ChangeFlags = SharedFlags & { yes?: boolean };

const actor = () => `cli:${os.userInfo().username}`;

/** A repair may rewrite the whole log, and is one transaction. */
const repairTimeoutMs = 3_600_000;

export function cursorsCommand(): Command {
  const command = new Command('cursors').description(
    'list, reset, delete or repair the cursors of those who read the log',
  );

  sharedOptions(command.command('list', { isDefault: true }))
    .description('show who reads, how far behind, and what is wrong')
    .action(async (flags: SharedFlags) => {
      const cursors = await withDatabase(flags, listCursors);
      if (flags.json) return printJson(cursors);
      printTable(cursors, [
        'name',
        'topics',
        'behind',
        'oldestUnreadAt',
        'reader',
        'movedAt',
        'tries',
        'errorCode',
      ]);
      for (const { name, problem } of cursors)
        if (problem !== null) note(`warning: ${name}: ${problem}; run: waybill cursors repair`);
    });

  sharedOptions(command.command('reset'))
    .description('start a cursor anew; a reader that is at work goes on from there')
    .argument('<name>', 'the name of the cursor')
    .addOption(
      new Option('--to <start>', 'where it goes on')
        .choices(['beginning', 'now'])
        .makeOptionMandatory(),
    )
    .option('--yes', 'do not ask')
    .addHelpText('after', '\nExamples:\n  $ waybill cursors reset search-index --to beginning')
    .action(async (name: string, flags: ChangeFlags & { to: CursorStart }) => {
      await withDatabase(flags, async (database) => {
        const { behind } = await findCursor(database, name);
        const effect =
          flags.to === 'now'
            ? `${behind} messages are skipped`
            : 'everything that is kept is read again';
        await confirm(`Reset ${name} to ${flags.to}? ${effect}.`, flags.yes ?? false);
        await resetCursor(database, name, flags.to, actor());
      });
      if (flags.json) printJson({ reset: name, to: flags.to });
      else print(`reset: ${name} to ${flags.to}`);
    });

  sharedOptions(command.command('delete'))
    .description('forget a cursor that nobody reads any more')
    .argument('<name>', 'the name of the cursor')
    .option('--yes', 'do not ask')
    .addHelpText('after', '\nExamples:\n  $ waybill cursors delete search-index')
    .action(async (name: string, flags: ChangeFlags) => {
      await withDatabase(flags, async (database) => {
        const { behind, reader } = await findCursor(database, name);
        const still = reader === null ? '' : ` ${reader} is reading it.`;
        await confirm(
          `Delete ${name}? ${behind} messages that it has not read are kept for it no longer.${still}`,
          flags.yes ?? false,
        );
        await deleteCursor(database, name, actor());
      });
      if (flags.json) printJson({ deleted: name });
      else print(`deleted: ${name}`);
    });

  sharedOptions(command.command('repair'))
    .description('after a restored dump or a promoted copy: make the cursors this server’s own')
    .option(
      '--overlap-minutes <n>',
      'read again what came within so many minutes before each cursor last looked',
      wholeNumber,
      10,
    )
    .option('--yes', 'do not ask')
    .addHelpText('after', '\nExamples:\n  $ waybill cursors repair --yes')
    .action(async (flags: ChangeFlags & { overlapMinutes: number }) => {
      await confirm(
        'Repair the cursors? Some messages are read twice, none is skipped.',
        flags.yes ?? false,
      );
      const repaired = await withDatabase(
        flags,
        (database) => repairCursors(database, flags.overlapMinutes, actor()),
        { statementTimeoutMs: repairTimeoutMs },
      );
      if (flags.json) printJson(repaired);
      else
        print(
          `repaired: ${repaired.cursorsRepaired} cursors, ${repaired.messagesRewritten} messages`,
        );
    });
  return command;
}

async function findCursor(database: Database, name: string): Promise<CursorReport> {
  const cursors = await listCursors(database);
  const found = cursors.find((cursor) => cursor.name === name);
  if (found !== undefined) return found;
  const known = cursors.map((cursor) => cursor.name).join(', ') || 'none';
  throw new CommandError(exitCode.notFound, `no cursor is named "${name}": there are ${known}`);
}
