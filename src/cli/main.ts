#!/usr/bin/env node
// Command line: assembles the commands of commands.ts. Only the called command is loaded, because loading all of them
// takes most of the time of a short command.

import { Command } from 'commander';

import { version } from '../core/version.js';
import { commands } from './commands.js';
import { loadEnvFile } from './env-file.js';
import { exitCode, note, reportFailure } from './output.js';

const called = process.argv[2] ?? '';
// Before the commands are loaded, because some read the environment then. Not for `dev`: its demo traffic must not
// reach the database of the project.
const problem = called === 'dev' ? undefined : loadEnvFile();
if (problem !== undefined) note(problem);

const program = new Command('waybill')
  .description('The transactional outbox for PostgreSQL.')
  .version(version)
  .showHelpAfterError('(add --help for the options and examples)')
  .configureHelp({ sortSubcommands: false })
  // flags belong to the command that they follow: replay has some, and so has replay resume
  .enablePositionalOptions();

// all commands are needed for the help, and to suggest the nearest name for a misspelt one
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

// The reader of stdout may close it early, as in `waybill messages list | head -1`. The command still completes, with
// its usual exit code.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error;
});

program.parseAsync().catch((error: unknown) => {
  process.exitCode = reportFailure(error);
});
