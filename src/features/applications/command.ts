// waybill apply: defines the destinations and routes of a configuration, and what features declare beside them, without
// a relay, as a step of a deployment.

import os from 'node:os';

import { Command } from 'commander';

import type { Config } from '../../config.js';
import type { DatabaseOptions } from '../../database/connection.js';
import { applyDefinitions } from './database.js';
import type { DefinitionChange } from './database.js';
import { refuseOutdatedSchema } from '../../database/versions.js';
import type { RelaySetup } from '../../relay/setup.js';
import { configuredRelay, inDatabase, sharedOptions } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { overEachShard } from '../shards/each-shard.js';
import { exitCode, note, print } from '../../cli/output.js';

type Flags = SharedFlags & { dryRun?: boolean; prune?: boolean };

type Applied = { application: string; dryRun: boolean; changes: DefinitionChange[] };

export function applyCommand(): Command {
  return sharedOptions(new Command('apply'))
    .description(
      'define what the configuration declares (destinations, routes, watches), without a relay',
    )
    .option('--dry-run', 'change nothing, and print what would change')
    .option(
      '--prune',
      'remove at once definitions that neither this configuration nor a running relay declares',
    )
    .addHelpText(
      'after',
      '\nExit codes: 0 done, or nothing would change; 9 with --dry-run: something would change; 2 the configuration cannot\nbe used, also because another application defines one of its destinations differently.\n\nExamples:\n  $ waybill apply\n  $ waybill apply --dry-run || echo not deployed yet\n  $ waybill apply --prune --json',
    )
    .action(async (flags: Flags) => {
      const config = await configuredRelay(flags);
      const setup = await checked(config);
      let wouldChange = false;
      await overEachShard(
        flags,
        async (options) => {
          const applied = await apply(options, setup, flags);
          wouldChange ||=
            applied.dryRun && applied.changes.some(({ change }) => change !== 'leave');
          return applied;
        },
        show,
      );
      if (wouldChange && !process.exitCode) process.exitCode = exitCode.wouldChange;
    });
}

/** Reads the definitions from the first shard; they are the same in every shard. */
async function checked(config: Config): Promise<RelaySetup> {
  const { resolveConfig, resolveShards } = await import('../../config.js');
  if (config.shards === undefined) return resolveConfig(config);
  const [first] = resolveShards(config);
  if (first === undefined) throw new Error('the configuration has no shard');
  return first.setup;
}

async function apply(
  options: DatabaseOptions,
  setup: RelaySetup,
  { dryRun = false, prune = false }: Flags,
): Promise<Applied> {
  const { definitionsOf } = await import('../../relay/setup.js');
  const { declaredBeside } = await import('../in-relay.js');
  const { application } = setup;
  const actor = `cli:${os.userInfo().username}`;
  const changes = await inDatabase(options, async (database) => {
    await refuseOutdatedSchema(database);
    const declaration = { application, definitions: definitionsOf(setup) };
    const beside = await declaredBeside(setup, database);
    return applyDefinitions(database, declaration, { prune, dryRun, actor, beside });
  });
  return { application: application.name, dryRun, changes };
}

const signs = { add: '+', change: '~', remove: '-', leave: ' ' };

function show({ application, dryRun, changes }: Applied): void {
  for (const each of changes) print(`${signs[each.change]} ${shown(each)}`);
  const count = changes.filter(({ change }) => change !== 'leave').length;
  print(
    count === 0
      ? `nothing ${dryRun ? 'would change' : 'changed'} for the application ${application}`
      : `${count} ${dryRun ? 'would change' : 'changed'} for the application ${application}`,
  );
  if (changes.some(({ change }) => change === 'leave'))
    note(
      'note: lines without a sign are definitions that are no longer declared here: they are removed ten minutes after the last relay that declares them has stopped, or at once with --prune',
    );
}

/** A change has one key, which says what was changed. */
function shown({ change: _change, route, ...other }: DefinitionChange): string {
  if (route === undefined)
    return Object.entries(other)
      .map(([what, name]) => `${what} ${String(name)}`)
      .join(', ');
  const { topic, to, tenantId: tenant, ...filters } = route;
  const shownFilters = Object.entries({ tenant, ...filters }).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name} ${value}`],
  );
  return `route ${topic} -> ${to}${shownFilters.length > 0 ? ` (${shownFilters.join(', ')})` : ''}`;
}
