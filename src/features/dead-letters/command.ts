// waybill dead-letters: lists, groups, retries, skips and discards dead letters, by id or by filter, and restores
// discarded ones. Every change is a job (job-command.ts).

import { Command } from 'commander';

import { codeFilter } from './code-filter.js';
import { groupDeadLetters, listDeadLetters } from './database.js';
import type { DeadLetterAction, DeadLetterFilter } from './database.js';
import { addJobCommands, changeWithJobs } from './job-command.js';
import { isUuid } from '../../core/uuid.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { confirm } from '../../cli/confirm.js';
import { time, wholeNumber } from '../../cli/arguments.js';
import { CommandError, exitCode, note, printJson, printTable } from '../../cli/output.js';

type FilterFlags = {
  destination?: string;
  errorCode?: string;
  cause?: string[];
  topic?: string;
  tenant?: string;
  before?: Date;
};
type ChangeFlags = SharedFlags & FilterFlags & { all?: boolean; yes?: boolean; dryRun?: boolean };

export function deadLettersCommand(): Command {
  const command = new Command('dead-letters').description(
    'list, retry, skip, discard or restore dead letters',
  );

  filterOptions(sharedOptions(command.command('list')))
    .description('show dead letters, oldest first')
    .option('--limit <n>', 'at most this many', wholeNumber, 50)
    .action(async (flags: SharedFlags & FilterFlags & { limit: number }) => {
      const letters = await withDatabase(flags, (database) =>
        listDeadLetters(database, filterOf(flags, []), flags.limit),
      );
      if (flags.json) return printJson(letters);
      printTable(letters, [
        'messageId',
        'destination',
        'topic',
        'key',
        'sequence',
        'tries',
        'reason',
        'errorCode',
        'remoteCode',
        'deadAt',
        'errorMessage',
      ]);
      if (letters.length === flags.limit) note(`(the first ${flags.limit}; more with --limit)`);
    });

  sharedOptions(command.command('groups'))
    .description('count dead letters by cause, over all destinations')
    .option('--destination <name>')
    .option('--error-code <code>', 'error code, or HTTP status')
    .option('--topic <topic>')
    .option('--tenant <id>')
    .addHelpText('after', '\nExamples:\n  $ waybill dead-letters groups --topic user.registered')
    .action(async (flags: SharedFlags & FilterFlags) => {
      // not filterOf: groups match an HTTP status themselves, and take no causes
      const { destination, errorCode, topic, tenant } = flags;
      const groups = await withDatabase(flags, (database) =>
        groupDeadLetters(database, {
          ...(destination !== undefined && { destination }),
          ...(errorCode !== undefined && { errorCode }),
          ...(topic !== undefined && { topic }),
          ...(tenant !== undefined && { tenantId: tenant }),
        }),
      );
      if (flags.json) return printJson(groups);
      printTable(
        groups.map(({ count, isExact, ...group }) => ({
          ...group,
          letters: isExact ? count : `about ${count}`,
        })),
        ['cause', 'letters', 'destinations', 'destination', 'oldestAt', 'newestAt', 'sampleError'],
      );
    });

  changeCommand(command, 'retry', 'retry dead letters');
  changeCommand(command, 'skip', 'unblock keys without their dead letters, which stay dead');
  changeCommand(command, 'discard', 'discard dead letters; "restore" undoes it');
  restoreCommand(command);
  addJobCommands(command);
  return command;
}

function changeCommand(parent: Command, action: DeadLetterAction, description: string): void {
  filterOptions(sharedOptions(parent.command(action)))
    .description(description)
    .argument('[ids...]', 'message ids')
    .option('--all', 'all of them')
    .option('--dry-run', 'show what matches, and change nothing')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      `\nThe work is a job, which the page and "dead-letters jobs" show. Ctrl-C stops it after its current batch; "dead-letters resume" does the rest.\n\nExit codes: 0 done, 1 an error, 3 nothing matches, 4 not confirmed, 5 stopped before the end.\n\nExamples:\n  $ waybill dead-letters ${action} 01a1de5f-b731-742f-8845-6c60ca5acb12\n  $ waybill dead-letters ${action} --destination crm --error-code http_status --dry-run`,
    )
    .action(async (ids: string[], flags: ChangeFlags) => {
      const filter = filterOf(flags, ids);
      if (Object.keys(filter).length === 0 && !flags.all) {
        throw new CommandError(exitCode.usage, `which ones? Give ids or a filter, or --all`);
      }
      await withDatabase(flags, async (database) => {
        const sample = await listDeadLetters(database, filter, 1000);
        if (flags.dryRun)
          return flags.json
            ? printJson(sample)
            : printTable(sample, ['messageId', 'destination', 'topic', 'errorCode', 'deadAt']);
        if (sample.length === 0)
          throw new CommandError(exitCode.notFound, 'no dead letter matches');
        const count = sample.length === 1000 ? 'at least 1000' : String(sample.length);
        await confirm(`${action} ${count} dead letters?`, flags.yes ?? false);
        const done = await changeWithJobs(database, action, [filter], flags);
        if (done === 0)
          note(
            'none was changed: a parked message returns with the dead letter that blocks its key, and only a dead letter that blocks a key can be skipped',
          );
      });
    });
}

function restoreCommand(parent: Command): void {
  sharedOptions(parent.command('restore'))
    .description('undo a discard: the letters are dead letters again, as they were')
    .argument('[ids...]', 'message ids')
    .option('--destination <name>')
    .option('--job <id>', 'all letters that this job discarded')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      '\nIt is possible until retention removes the messages. The key of a letter is blocked again only if nothing behind the letter was sent.\n\nExit codes: 0 done, 1 an error, 3 nothing to restore, 4 not confirmed, 5 stopped before the end.\n\nExamples:\n  $ waybill dead-letters restore 01a1de5f-b731-742f-8845-6c60ca5acb12\n  $ waybill dead-letters restore --job 0b5a5d1e-6f0c-4f57-9d0e-2f7a8f0f9a11',
    )
    .action(
      async (
        ids: string[],
        flags: SharedFlags & { destination?: string; job?: string; yes?: boolean },
      ) => {
        const { job, destination } = flags;
        if (job !== undefined && !isUuid(job))
          throw new CommandError(exitCode.usage, `--job is "${job}": give the id of a job, a UUID`);
        if ((ids.length === 0) === (job === undefined))
          throw new CommandError(exitCode.usage, 'which ones? Give either ids or --job');
        if (job !== undefined && destination !== undefined)
          throw new CommandError(
            exitCode.usage,
            '--destination is for ids: leave it out with --job',
          );
        const filter =
          job === undefined ? filterOf({ ...(destination && { destination }) }, ids) : { job };
        await withDatabase(flags, async (database) => {
          const what =
            job === undefined
              ? `${ids.length} ${ids.length === 1 ? 'message' : 'messages'}`
              : `the job ${job}`;
          await confirm(`restore the discarded dead letters of ${what}?`, flags.yes ?? false);
          const done = await changeWithJobs(database, 'restore', [filter], flags);
          if (done === 0)
            throw new CommandError(
              exitCode.notFound,
              'nothing was restored: only a discarded dead letter can be, once, until it is replayed or retention removes its message; waybill explain says what a message is',
            );
        });
      },
    );
}

function filterOptions(command: Command): Command {
  return command
    .option('--destination <name>')
    .option('--error-code <code>', 'error code, or HTTP status')
    .option(
      '--cause <cause>',
      'error code and code of the other side: "http_status 500"; can be repeated',
      (cause: string, before: string[] | undefined) => [...(before ?? []), cause],
    )
    .option('--topic <topic>')
    .option('--tenant <id>')
    .option('--before <time>', 'dead before this time (ISO 8601)', time);
}

function filterOf(flags: FilterFlags, ids: readonly string[]): DeadLetterFilter {
  const wrong = ids.find((id) => !isUuid(id));
  if (wrong !== undefined)
    throw new CommandError(exitCode.usage, `"${wrong}" is not a message id: give a UUID`);
  const { destination, errorCode, cause, topic, tenant, before } = flags;
  return {
    ...(ids.length > 0 && { ids }),
    ...(destination && { destination }),
    ...codeFilter({ ...(errorCode && { errorCode }), ...(cause && { causes: cause }) }),
    ...(topic && { topic }),
    ...(tenant && { tenantId: tenant }),
    ...(before && { before }),
  };
}
