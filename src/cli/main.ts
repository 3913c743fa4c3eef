#!/usr/bin/env node
// The command line. Each command is a file of its own; this one puts them together. Only the command that is
// called is loaded, with what it needs: loading all of them takes most of the time of a short command.

import { Command } from 'commander';

import { version } from '../version.js';
import { exitCode, reportFailure } from './output.js';

/** In the order of the help. */
const commands: Record<string, () => Promise<Command>> = {
  dev: async () => (await import('./dev.js')).devCommand(),
  migrate: async () => (await import('./migrate.js')).migrateCommand(),
  roles: async () => (await import('./roles.js')).rolesCommand(),
  start: async () => (await import('./start.js')).startCommand(),
  drain: async () => (await import('./drain.js')).drainCommand(),
  status: async () => (await import('./status.js')).statusCommand(),
  doctor: async () => (await import('./doctor.js')).doctorCommand(),
  enqueue: async () => (await import('./enqueue.js')).enqueueCommand(),
  messages: async () => (await import('./messages.js')).messagesCommand(),
  explain: async () => (await import('./explain.js')).explainCommand(),
  tail: async () => (await import('./tail.js')).tailCommand(),
  destinations: async () => (await import('./destinations.js')).destinationsCommand(),
  'dead-letters': async () => (await import('./dead-letters.js')).deadLettersCommand(),
  lanes: async () => (await import('./lanes.js')).lanesCommand(),
  replay: async () => (await import('./replay.js')).replayCommand(),
  endpoints: async () => (await import('./endpoints.js')).endpointsCommand(),
  'route-unrouted': async () => (await import('./route-unrouted.js')).routeUnroutedCommand(),
  rollout: async () => (await import('./rollout.js')).rolloutCommand(),
  events: async () => (await import('./events.js')).eventsCommand(),
  cursors: async () => (await import('./cursors.js')).cursorsCommand(),
  maintain: async () => (await import('./maintain.js')).maintainCommand(),
  audit: async () => (await import('./audit.js')).auditCommand(),
  tokens: async () => (await import('./tokens.js')).tokensCommand(),
  watch: async () => (await import('./watch.js')).watchCommand(),
  unwatch: async () => (await import('./watch.js')).unwatchCommand(),
  watches: async () => (await import('./watch.js')).watchesCommand(),
};

const program = new Command('waybill')
  .description('The transactional outbox for PostgreSQL.')
  .version(version)
  .showHelpAfterError('(add --help for the options and examples)')
  .configureHelp({ sortSubcommands: false })
  // flags belong to the command that they stand behind: replay has some, and so has replay resume
  .enablePositionalOptions();

const called = process.argv[2] ?? '';
// whatever is no command may be a question for help, or a slip that the nearest name is shown for
const needed = Object.hasOwn(commands, called) ? [called] : Object.keys(commands);
for (const name of needed) {
  const command = await commands[name]?.();
  if (command !== undefined) program.addCommand(command);
}

for (const command of [
  program,
  ...program.commands,
  ...program.commands.flatMap((child) => child.commands),
]) {
  command.exitOverride((error) =>
    process.exit(error.exitCode === 0 ? exitCode.ok : exitCode.usage),
  );
}

// Whoever reads may have seen enough, as in `waybill messages list | head -1`: what was begun is finished all the same,
// and the exit code is what it would have been.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

program.parseAsync().catch((error: unknown) => {
  process.exitCode = reportFailure(error);
});
