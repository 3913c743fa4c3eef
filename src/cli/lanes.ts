// waybill lanes: the keys that a dead letter blocks, each at one destination; open them by retrying, skipping or
// discarding what blocks them.

import os from 'node:os';

import { Command } from 'commander';

import type { Database } from '../database/connection.js';
import type { DeadLetterAction } from '../database/dead-letters.js';
import { listBlockedLanes, openLanes } from '../database/lanes.js';
import type { BlockedLaneFilter } from '../database/lanes.js';
import { wholeNumber } from './arguments.js';
import { confirm } from './confirm.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { requireDestination } from './destinations.js';
import { CommandError, exitCode, note, print, printJson, printTable } from './output.js';

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

export function lanesCommand(): Command {
  const command = new Command('lanes').description(
    'list, retry, skip or discard what blocks a key at a destination',
  );

  filterOptions(sharedOptions(command.command('list', { isDefault: true })))
    .description(
      'show blocked keys, the dead letter at the head of each, and how much waits behind',
    )
    .option('--limit <n>', 'at most this many', wholeNumber, 50)
    .option('--next <place>', 'go on where the page before ended')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill lanes list\n  $ waybill lanes list --destination ledger --tenant acme --json',
    )
    .action(async (flags: ListFlags) => {
      const { lanes, next } = await withDatabase(flags, async (database) => {
        await refuseUnknown(database, flags);
        return listBlockedLanes(database, filterOf(flags), {
          limit: flags.limit,
          ...(flags.next !== undefined && { next: flags.next }),
        });
      });
      if (flags.json) return printJson({ lanes, next });
      printTable(lanes, columns);
      if (next !== null) note(`more: --next ${next}`);
    });

  changeCommand(
    command,
    'retry',
    'send the dead letter at the head again; its key goes on behind it',
  );
  changeCommand(command, 'skip', 'let the key go on without its dead head, which stays dead');
  changeCommand(command, 'discard', 'give the dead head up for good, and let the key go on');
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
      `\nExamples:\n  $ waybill lanes ${action} --destination ledger --key account-17\n  $ waybill lanes ${action} --destination ledger --dry-run`,
    )
    .action(async (flags: ChangeFlags) => {
      const filter = filterOf(flags);
      if (Object.keys(filter).length === 0 && !flags.all)
        throw new CommandError(exitCode.usage, 'which ones? Give a filter, or --all');
      await withDatabase(flags, async (database) => {
        await refuseUnknown(database, flags);
        const { lanes, next } = await listBlockedLanes(database, filter, { limit: sampled });
        if (flags.dryRun) return flags.json ? printJson(lanes) : printTable(lanes, columns);
        if (lanes.length === 0) throw new CommandError(exitCode.notFound, 'no blocked key matches');
        const count = next === null ? String(lanes.length) : `at least ${sampled}`;
        await confirm(`${action} what blocks ${count} keys?`, flags.yes ?? false);
        const done = await openLanes(database, action, filter, `cli:${os.userInfo().username}`);
        if (flags.json) printJson({ [action]: done });
        else print(`${action}: ${done}`);
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

function filterOf({ destination, namespace, tenant, key }: FilterFlags): BlockedLaneFilter {
  return {
    ...(destination !== undefined && { destination }),
    ...(namespace !== undefined && { namespace }),
    ...(tenant !== undefined && { tenantId: tenant }),
    ...(key !== undefined && { key }),
  };
}
