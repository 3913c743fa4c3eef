// waybill route-unrouted: messages that no route wanted when they were enqueued, and one wants now.

import os from 'node:os';

import { Command } from 'commander';

import { routeUnrouted } from '../database/definitions.js';
import { confirm } from './confirm.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { print, printJson } from './output.js';

export function routeUnroutedCommand(): Command {
  return sharedOptions(new Command('route-unrouted'))
    .description('deliver messages that had no route when they were enqueued and have one now')
    .option('--yes', 'do not ask')
    .addHelpText('after', '\nExamples:\n  $ waybill route-unrouted --yes')
    .action(async (flags: SharedFlags & { yes?: boolean }) => {
      await confirm('Deliver unrouted messages, however old they are?', flags.yes ?? false);
      const routed = await withDatabase(flags, (database) =>
        routeUnrouted(database, `cli:${os.userInfo().username}`),
      );
      if (flags.json) printJson({ routed });
      else print(`routed: ${routed}`);
    });
}
