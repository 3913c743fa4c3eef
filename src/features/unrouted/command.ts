// waybill unrouted: lists messages that had no route when they were enqueued, and routes or discards them.

import os from 'node:os';

import { Command } from 'commander';

import { discardUnrouted, listUnrouted, routeUnrouted } from './database.js';
import type { UnroutedFilter, UnroutedList } from './database.js';
import { time } from '../../cli/arguments.js';
import { confirm } from '../../cli/confirm.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { CommandError, exitCode, note, print, printJson, printTable } from '../../cli/output.js';

type FilterFlags = { topic?: string; namespace?: string; tenant?: string; before?: Date };
type RouteFlags = SharedFlags & { yes?: boolean; dryRun?: boolean };
type DiscardFlags = SharedFlags & FilterFlags & { all?: boolean; yes?: boolean; dryRun?: boolean };

const actor = () => `cli:${os.userInfo().username}`;

/** A list counts at most 100,000 messages, but a filter may have to read all of them. */
const listTimeoutMs = 120_000;

export function unroutedCommand(): Command {
  const command = new Command('unrouted').description(
    'list, route or discard messages without a route',
  );

  filterOptions(sharedOptions(command.command('list')))
    .description('show how many unrouted messages there are, by topic, namespace and tenant')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill unrouted list\n  $ waybill unrouted list --topic user.registered --json',
    )
    .action(async (flags: SharedFlags & FilterFlags) => {
      const found = await read(flags);
      if (flags.json) printJson(found);
      else show(found);
    });

  sharedOptions(command.command('route'))
    .description('deliver unrouted messages that have a route now, however old they are')
    .option('--dry-run', 'show what would be routed and out of order, and change nothing')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill unrouted route --dry-run\n  $ waybill unrouted route --yes',
    )
    .action(route);

  filterOptions(sharedOptions(command.command('discard')))
    .description(
      'discard unrouted messages for good: they are never sent, and retention may remove them',
    )
    .option('--all', 'all of them')
    .option('--dry-run', 'show what matches, and change nothing')
    .option('--yes', 'do not ask')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill unrouted discard --topic cart.viewed --dry-run\n  $ waybill unrouted discard --topic cart.viewed --before 2026-01-31T00:00:00Z --yes',
    )
    .action(discard);
  return command;
}

async function route(flags: RouteFlags): Promise<void> {
  const found = await read(flags);
  if (flags.dryRun) return flags.json ? printJson(found) : show(found);
  const late = lateOf(found);
  if (late > 0) note(lateness(found));
  await confirm('Deliver unrouted messages that a route matches now?', flags.yes ?? false);
  const routed = await withDatabase(flags, (database) =>
    routeUnrouted(database, actor(), progress('routed')),
  );
  if (flags.json) printJson({ routed, late });
  else print(`routed: ${routed}`);
}

const lateOf = ({ groups }: UnroutedList) => groups.reduce((sum, { late }) => sum + late, 0);

function lateness(found: UnroutedList): string {
  const late = lateOf(found);
  return `warning: ${found.isExact ? '' : 'at least '}${late} ${late === 1 ? 'message arrives' : 'messages arrive'} after later messages of the same key, because those are delivered or in flight already`;
}

async function discard(flags: DiscardFlags): Promise<void> {
  const filter = filterOf(flags);
  if (Object.keys(filter).length === 0 && !flags.all)
    throw new CommandError(exitCode.usage, 'which ones? Give a filter, or --all');
  const found = await read(flags);
  if (flags.dryRun) return flags.json ? printJson(found) : show(found);
  // a row whose message is gone is in no group; --all discards it too
  if (found.count === 0 && !flags.all)
    throw new CommandError(exitCode.notFound, 'no unrouted message matches');
  if (!flags.json) for (const line of lines(found)) note(line);
  await confirm(`Discard ${counted(found)} for good?`, flags.yes ?? false);
  const discarded = await withDatabase(flags, (database) =>
    discardUnrouted(database, filter, actor(), progress('discarded')),
  );
  if (flags.json) printJson({ discarded });
  else print(`discarded: ${discarded}`);
}

async function read(flags: SharedFlags & FilterFlags): Promise<UnroutedList> {
  return withDatabase(flags, (database) => listUnrouted(database, filterOf(flags)), {
    statementTimeoutMs: listTimeoutMs,
  });
}

function show(found: UnroutedList): void {
  printTable(found.groups, [
    'topic',
    'namespace',
    'tenantId',
    'count',
    'oldestAt',
    'newestAt',
    'hasRoute',
    'onlySplit',
    'late',
    'example',
  ]);
  note(`in all ${counted(found)}`);
  if (found.groups.some(({ hasRoute }) => hasRoute))
    note('to deliver those that have a route now: waybill unrouted route');
  if (lateOf(found) > 0) note(lateness(found));
  if (found.groups.some(({ onlySplit }) => onlySplit))
    note(
      'messages that match only split routes are not routed, because the other system may have sent them: replay or discard them',
    );
}

/** Describes the largest groups in short. */
function lines({ groups }: UnroutedList): string[] {
  return groups.slice(0, 10).map(({ topic, count }) => `  ${topic}: ${count}`);
}

function counted({ count, isExact }: UnroutedList): string {
  return `${isExact ? '' : 'at least '}${count} ${count === 1 ? 'message' : 'messages'}`;
}

function progress(what: string): (total: number) => void {
  return (total) => {
    if (process.stderr.isTTY) process.stderr.write(`\r${what}: ${total}`);
  };
}

function filterOptions(command: Command): Command {
  return command
    .option('--topic <topic>', 'of exactly this topic')
    .option('--namespace <name>', 'of this namespace')
    .option('--tenant <id>', 'of this tenant')
    .option('--before <time>', 'created before this time (ISO 8601)', time);
}

function filterOf({ topic, namespace, tenant, before }: FilterFlags): UnroutedFilter {
  return {
    ...(topic !== undefined && { topic }),
    ...(namespace !== undefined && { namespace }),
    ...(tenant !== undefined && { tenantId: tenant }),
    ...(before && { before }),
  };
}
