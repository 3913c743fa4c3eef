// waybill keys: lists keys that a dead letter blocks at a destination, and unblocks them by retrying, skipping or
// discarding these dead letters, with one job for each destination.

import { Command } from 'commander';

import type { Database } from '../../database/connection.js';
import type { DeadLetterAction } from '../dead-letters/database.js';
import { changeWithJobs } from '../dead-letters/job-command.js';
import { blockingLetters, listBlockedKeys } from './database.js';
import type { BlockedKeyFilter } from './database.js';
import { wholeNumber } from '../../cli/arguments.js';
import { confirm } from '../../cli/confirm.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { requireDestination } from '../../cli/destinations.js';
import { CommandError, exitCode, note, printJson, printTable } from '../../cli/output.js';

type FilterFlags = { destination?: string; namespace?: string; tenant?: string; key?: string };
type ListFlags = SharedFlags & FilterFlags & { limit: number; next?: string };
type ChangeFlags = SharedFlags & FilterFlags & { all?: boolean; yes?: boolean; dryRun?: boolean };

const columns = [
  'destination',
  'namespace',
  'tenantId',
  'key',
  'waiting',
  'messageId',
  'topic',
  'tries',
  'errorCode',
  'deadAt',
  'errorMessage',
];

const sampled = 1000;

export function keysCommand(): Command {
  const command = new Command('keys').description(
    'list blocked keys; retry, skip or discard the dead letters that block them',
  );

  filterOptions(sharedOptions(command.command('list', { isDefault: true })))
    .description(
      'show blocked keys, the dead letter that blocks each, and how many messages wait behind it',
    )
    .option('--limit <n>', 'at most this many', wholeNumber, 50)
    .option('--next <place>', 'continue after the previous page: its `next`')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill keys list\n  $ waybill keys list --destination ledger --tenant acme --json',
    )
    .action(async (flags: ListFlags) => {
      const { keys, next } = await withDatabase(flags, async (database) => {
        await refuseUnknown(database, flags);
        return listBlockedKeys(database, filterOf(flags), {
          limit: flags.limit,
          ...(flags.next !== undefined && { next: flags.next }),
        });
      });
      if (flags.json) return printJson({ keys, next });
      printTable(keys, columns);
      if (next !== null) note(`more: --next ${next}`);
    });

  changeCommand(
    command,
    'retry',
    'retry the dead letter that blocks a key; the key continues after it',
  );
  changeCommand(command, 'skip', 'unblock a key without its dead letter, which stays dead');
  changeCommand(
    command,
    'discard',
    'discard the dead letter that blocks a key, and unblock the key',
  );
  return command;
}

function changeCommand(parent: Command, action: DeadLetterAction, description: string): void {
  filterOptions(sharedOptions(parent.command(action)))
    .description(description)
    .option('--all', 'all blocked keys')
    .option('--dry-run', 'show what matches, and change nothing')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      `\nExamples:\n  $ waybill keys ${action} --destination ledger --key account-17\n  $ waybill keys ${action} --destination ledger --dry-run`,
    )
    .action(async (flags: ChangeFlags) => {
      const filter = filterOf(flags);
      if (Object.keys(filter).length === 0 && !flags.all)
        throw new CommandError(exitCode.usage, 'which ones? Give a filter, or --all');
      await withDatabase(flags, async (database) => {
        await refuseUnknown(database, flags);
        const { keys, next } = await listBlockedKeys(database, filter, { limit: sampled });
        if (flags.dryRun) return flags.json ? printJson(keys) : printTable(keys, columns);
        if (keys.length === 0) throw new CommandError(exitCode.notFound, 'no blocked key matches');
        const count = next === null ? String(keys.length) : `at least ${sampled}`;
        await confirm(`${action} the dead letters that block ${count} keys?`, flags.yes ?? false);
        const letters = await blockingLetters(database, filter);
        const filters = [...letters].map(([destination, ids]) => ({ destination, ids }));
        await changeWithJobs(database, action, filters, flags);
      });
    });
}

async function refuseUnknown(database: Database, { destination }: FilterFlags): Promise<void> {
  if (destination !== undefined) await requireDestination(database, destination);
}

function filterOptions(command: Command): Command {
  return command
    .option('--destination <name>', 'at this destination')
    .option('--namespace <name>', 'of this namespace')
    .option('--tenant <id>', 'of this tenant')
    .option('--key <key>', 'this key');
}

function filterOf({ destination, namespace, tenant, key }: FilterFlags): BlockedKeyFilter {
  return {
    ...(destination !== undefined && { destination }),
    ...(namespace !== undefined && { namespace }),
    ...(tenant !== undefined && { tenantId: tenant }),
    ...(key !== undefined && { key }),
  };
}
