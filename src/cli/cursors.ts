// waybill cursors: lists the readers of the log with their positions, resets or deletes a cursor, and repairs cursors
// after a restore on another server.

import os from 'node:os';

import { Command, Option } from 'commander';

import {
  deleteCursor,
  listCursors,
  listPartitions,
  repairCursors,
  resetCursor,
} from '../database/cursors.js';
import type { CursorReport, CursorStart } from '../database/cursors.js';
import type { Database } from '../database/connection.js';
import { confirm } from './confirm.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { wholeNumber } from './arguments.js';
import { CommandError, exitCode, note, print, printJson, printTable } from './output.js';

type ChangeFlags = SharedFlags & { yes?: boolean };

const actor = () => `cli:${os.userInfo().username}`;

/** A repair is one transaction and may rewrite the whole log. */
const repairTimeoutMs = 3_600_000;

export function cursorsCommand(): Command {
  const command = new Command('cursors').description('list, reset, delete or repair cursors');

  sharedOptions(command.command('list', { isDefault: true }))
    .description('show cursors with their readers, how far behind they are, and problems')
    .option('--partitions', 'one line for each partition')
    .addHelpText('after', '\nExamples:\n  $ waybill cursors list --partitions')
    .action(async (flags: SharedFlags & { partitions?: boolean }) => {
      if (flags.partitions) return showPartitions(flags);
      const cursors = await withDatabase(flags, listCursors);
      if (flags.json) return printJson(cursors);
      printTable(cursors, [
        'name',
        'topics',
        'partitions',
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
    .description('move a cursor; a running reader continues from there')
    .argument('<name>', 'the name of the cursor')
    .addOption(
      new Option('--to <start>', 'the new position')
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
    .description('delete a cursor that is no longer used')
    .argument('<name>', 'the name of the cursor')
    .option(
      '--force',
      'delete it although it has unread messages: those that nothing else wants become unrouted',
    )
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill cursors delete search-index\n  $ waybill cursors delete search-index --force --yes',
    )
    .action(
      async (name: string, { force = false, ...flags }: ChangeFlags & { force?: boolean }) => {
        await withDatabase(flags, async (database) => {
          const { behind, reader } = await findCursor(database, name);
          if (behind > 0 && !force)
            throw new CommandError(
              exitCode.usage,
              `the cursor ${name} has ${behind} unread messages: read them, or add --force, and those that nothing else wants become unrouted`,
            );
          const still = reader === null ? '' : ` ${reader} is reading it.`;
          await confirm(
            `Delete ${name}? Of ${behind} messages that it has not read, those that nothing else wants become unrouted.${still}`,
            flags.yes ?? false,
          );
          await deleteCursor(database, name, { actor: actor(), force });
        });
        if (flags.json) printJson({ deleted: name });
        else print(`deleted: ${name}`);
      },
    );

  sharedOptions(command.command('repair'))
    .description('repair cursors after a dump was restored or a copy was promoted')
    .option(
      '--overlap-minutes <n>',
      'read messages again that came within this many minutes before each cursor last read',
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

async function showPartitions(flags: SharedFlags): Promise<void> {
  const partitions = await withDatabase(flags, listPartitions);
  if (flags.json) return printJson(partitions);
  printTable(partitions, [
    'name',
    'partition',
    'behind',
    'oldestUnreadAt',
    'reader',
    'movedAt',
    'tries',
    'errorCode',
  ]);
  if (partitions.some(({ isOld }) => isOld))
    note(
      'the number of partitions has changed: of two lines for a partition, the first is read first',
    );
}

async function findCursor(database: Database, name: string): Promise<CursorReport> {
  const cursors = await listCursors(database);
  const found = cursors.find((cursor) => cursor.name === name);
  if (found !== undefined) return found;
  const known = cursors.map((cursor) => cursor.name).join(', ') || 'none';
  throw new CommandError(exitCode.notFound, `no cursor is named "${name}": there are ${known}`);
}
