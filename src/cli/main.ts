#!/usr/bin/env node
// The command line. Each command is a file of its own; this one puts them together.

import { Command } from 'commander';

import { version } from '../version.js';
import { auditCommand } from './audit.js';
import { cursorsCommand } from './cursors.js';
import { deadLettersCommand } from './dead-letters.js';
import { destinationsCommand } from './destinations.js';
import { devCommand } from './dev.js';
import { doctorCommand } from './doctor.js';
import { drainCommand } from './drain.js';
import { endpointsCommand } from './endpoints.js';
import { enqueueCommand } from './enqueue.js';
import { eventsCommand } from './events.js';
import { explainCommand } from './explain.js';
import { messagesCommand } from './messages.js';
import { maintainCommand } from './maintain.js';
import { migrateCommand } from './migrate.js';
import { exitCode, reportFailure } from './output.js';
import { lanesCommand } from './lanes.js';
import { replayCommand } from './replay.js';
import { rolloutCommand } from './rollout.js';
import { rolesCommand } from './roles.js';
import { routeUnroutedCommand } from './route-unrouted.js';
import { startCommand } from './start.js';
import { statusCommand } from './status.js';
import { tailCommand } from './tail.js';
import { tokensCommand } from './tokens.js';
import { unwatchCommand, watchCommand, watchesCommand } from './watch.js';

const program = new Command('waybill')
  .description('The transactional outbox for PostgreSQL.')
  .version(version)
  .showHelpAfterError('(add --help for the options and examples)')
  .configureHelp({ sortSubcommands: false })
  // flags belong to the command that they stand behind: replay has some, and so has replay resume
  .enablePositionalOptions()
  .exitOverride((error) => process.exit(error.exitCode === 0 ? exitCode.ok : exitCode.usage));

program.addCommand(devCommand());
program.addCommand(migrateCommand());
program.addCommand(rolesCommand());
program.addCommand(startCommand());
program.addCommand(drainCommand());
program.addCommand(statusCommand());
program.addCommand(doctorCommand());
program.addCommand(enqueueCommand());
program.addCommand(messagesCommand());
program.addCommand(explainCommand());
program.addCommand(tailCommand());
program.addCommand(destinationsCommand());
program.addCommand(deadLettersCommand());
program.addCommand(lanesCommand());
program.addCommand(replayCommand());
program.addCommand(endpointsCommand());
program.addCommand(routeUnroutedCommand());
program.addCommand(rolloutCommand());
program.addCommand(eventsCommand());
program.addCommand(cursorsCommand());
program.addCommand(maintainCommand());
program.addCommand(auditCommand());
program.addCommand(tokensCommand());
program.addCommand(watchCommand());
program.addCommand(unwatchCommand());
program.addCommand(watchesCommand());

for (const command of [
  program,
  ...program.commands,
  ...program.commands.flatMap((child) => child.commands),
]) {
  command.exitOverride((error) =>
    process.exit(error.exitCode === 0 ? exitCode.ok : exitCode.usage),
  );
}

program.parseAsync().catch((error: unknown) => {
  process.exitCode = reportFailure(error);
});
