// waybill migrate: updates the schema, shows its version, previews the changes, or reverts them.

import { Command } from 'commander';

import type { DatabaseOptions } from '../database/connection.js';
import {
  migrateDown,
  migrateUp,
  migrationSql,
  migrationStatus,
  planMigration,
} from '../database/migrate.js';
import { plainDatabaseOptions, sharedOptions } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { overEachShard } from '../features/shards/each-shard.js';
import { CommandError, exitCode, note, print, printJson, printTable } from './output.js';

export function migrateCommand(): Command {
  const migrate = new Command('migrate').description('create or update the schema');

  sharedOptions(migrate.command('up'))
    .description('apply pending migrations, then verify the result')
    .option('--dry-run', 'print the SQL that would run, and run nothing')
    .addHelpText(
      'after',
      '\nExamples:\n  $ DATABASE_URL=postgresql://localhost/app waybill migrate up\n  $ waybill migrate up --dry-run',
    )
    .action(async (flags: SharedFlags & { dryRun?: boolean }) => {
      if (flags.dryRun) {
        const { json: _json, ...asText } = flags;
        return overEachShard(asText, planMigration, (steps) => {
          for (const step of steps) print(`-- ${step.title}\nBEGIN;\n${step.sql}\nCOMMIT;\n`);
        });
      }
      const up = (options: DatabaseOptions) =>
        migrateUp({ ...options, onStep: (title) => note(`applying ${title}`) });
      await overEachShard(flags, up, ({ checks }) => {
        for (const check of checks)
          print(`${check.ok ? 'ok ' : 'BAD'}  ${check.name}: ${check.detail}`);
      });
    });

  sharedOptions(migrate.command('status'))
    .description('show which files are applied, pending or changed')
    .action((flags: SharedFlags) =>
      overEachShard(flags, migrationStatus, (files) =>
        printTable(files, ['state', 'file', 'version', 'appliedAt']),
      ),
    );

  migrate
    .command('sql')
    .description('print the whole schema as SQL, for use with another tool')
    .option(
      '--schema <name>',
      'the schema that Waybill lives in',
      process.env['WAYBILL_SCHEMA'] ?? 'outbox',
    )
    .action(({ schema }: { schema: string }) => print(migrationSql(schema)));

  sharedOptions(migrate.command('down'))
    .description('revert the last migration; reverting the first one removes the whole schema')
    .option('--yes', 'do not ask')
    .option('--force', 'even if deliveries are pending')
    .action(async (flags: SharedFlags & { yes?: boolean; force?: boolean }) => {
      if (!flags.yes) {
        throw new CommandError(
          exitCode.refused,
          'this removes tables with their data: add --yes to confirm',
        );
      }
      const name = await migrateDown({
        ...(await plainDatabaseOptions(flags)),
        force: flags.force ?? false,
      });
      if (flags.json) printJson({ takenBack: name });
      else print(name === null ? 'nothing to take back' : `took back ${name}`);
    });

  return migrate;
}
