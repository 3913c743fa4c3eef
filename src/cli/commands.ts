// The commands of the command line by name. Each has its own file, which is loaded when its command is needed. Those of
// a feature are in its folder.

import type { Command } from 'commander';

import { features } from '../features/all.js';

/** Commands in the order of the help. */
export const commands: Record<string, () => Promise<Command>> = {
  dev: async () => (await import('./dev.js')).devCommand(),
  init: async () => (await import('./init.js')).initCommand(),
  migrate: async () => (await import('./migrate.js')).migrateCommand(),
  roles: async () => (await import('./roles.js')).rolesCommand(),
  start: async () => (await import('./start.js')).startCommand(),
  drain: async () => (await import('./drain.js')).drainCommand(),
  status: async () => (await import('./status.js')).statusCommand(),
  doctor: async () => (await import('../doctor/command.js')).doctorCommand(),
  enqueue: async () => (await import('./enqueue.js')).enqueueCommand(),
  messages: async () => (await import('./messages.js')).messagesCommand(),
  explain: async () => (await import('./explain.js')).explainCommand(),
  mcp: async () => (await import('./mcp.js')).mcpCommand(),
  tail: async () => (await import('./tail.js')).tailCommand(),
  destinations: async () => (await import('./destinations.js')).destinationsCommand(),
  events: async () => (await import('./events.js')).eventsCommand(),
  cursors: async () => (await import('./cursors.js')).cursorsCommand(),
  maintain: async () => (await import('./maintain.js')).maintainCommand(),
  ...Object.fromEntries(
    features.flatMap(({ commands: ofFeature = {} }) => Object.entries(ofFeature)),
  ),
};
