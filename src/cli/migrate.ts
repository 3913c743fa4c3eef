// waybill migrate: updates the schema, shows its version, previews the changes, or reverts them.

import { Command, Option } from 'commander';

import {
  NoRightsError,
  RelayTooOldError,
  SchemaMissingError,
  SchemaOutdatedError,
} from '../core/errors.js';
import { version } from '../core/version.js';
import type { DatabaseOptions } from '../database/connection.js';
import { migrateDown, migrateUp, migrationStatus, planMigration } from '../database/migrate.js';
import { migrationSteps } from '../database/migration-steps.js';
import { refuseOutdatedSchema } from '../database/versions.js';
import { migrationFormats, planMigrationFiles } from '../init/migration-files.js';
import type { MigrationFormat } from '../init/migration-files.js';
import { writeFiles } from '../init/project-files.js';
import { packageVersion } from './arguments.js';
import { inDatabase, plainDatabaseOptions, sharedOptions } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { overEachShard } from '../features/shards/each-shard.js';
import {
  CommandError,
  exitCode,
  note,
  print,
  printJson,
  printTable,
  reportFailure,
} from './output.js';

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

  sharedOptions(migrate.command('check'))
    .description('check that the schema works with this version, for CI and startup probes')
    .addHelpText(
      'after',
      '\nExit codes: 0 it works, 1 there is no schema or no connection, 4 the schema is older, 8 it is newer and does not work with this version.\n\nExample:\n  $ waybill migrate check --json',
    )
    .action((flags: SharedFlags) =>
      overEachShard(flags, checkSchema, ({ ok, schema }) => {
        if (ok) print(`ok  the schema ${schema} works with Waybill ${version}`);
      }),
    );

  migrate
    .command('sql')
    .description(
      'print the schema, or an upgrade of it, as SQL; or write it as files of another migration tool',
    )
    .option(
      '--schema <name>',
      'the schema that Waybill lives in',
      process.env['WAYBILL_SCHEMA'] ?? 'outbox',
    )
    .option(
      '--from <version>',
      'the version of Waybill that the schema has now (default: none, for a new schema)',
      packageVersion,
    )
    .option(
      '--to <version>',
      'the version that the schema gets: only that of this package, whose functions it has',
      packageVersion,
      version,
    )
    .addOption(
      new Option('--format <tool>', 'the tool that applies the SQL')
        .choices(migrationFormats)
        .default('plain'),
    )
    .option('--out <directory>', 'write files into this directory, instead of printing the SQL')
    .option('--json', 'answer in JSON, with --out')
    .addHelpText(
      'after',
      `
Examples:
  $ waybill migrate sql > waybill.sql
  $ waybill migrate sql --format drizzle --out drizzle
  $ waybill migrate sql --from ${version} --format prisma --out prisma/migrations`,
    )
    .action(writeSql);

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

type SqlFlags = {
  schema: string;
  from?: string;
  to: string;
  format: MigrationFormat;
  out?: string;
  json?: boolean;
};

function writeSql({ schema, from, to, format, out, json = false }: SqlFlags): void {
  if (to !== version)
    throw new CommandError(
      exitCode.usage,
      `this is Waybill ${version}, and it has the functions of that version only: run npx waybill@${to} migrate sql`,
    );
  if (out === undefined && (format !== 'plain' || json))
    throw new CommandError(
      exitCode.usage,
      `${json ? '--json' : `--format ${format}`} writes files: name their directory with --out`,
    );
  const steps = migrationSteps(schema, { ...(from !== undefined && from !== 'none' && { from }) });
  if (steps.length === 0) note(`a schema of Waybill ${from} needs no migration`);
  if (out === undefined) {
    for (const { title, up } of steps) print(`-- ${title}\n${up}`);
    return;
  }
  const files = planMigrationFiles({ format, directory: out, schema, steps });
  writeFiles(files);
  const written = files.filter(({ exists }) => !exists).map(({ path }) => path);
  const kept = files.filter(({ exists }) => exists).map(({ path }) => path);
  if (json) return printJson({ written, kept });
  for (const file of written) print(`wrote  ${file}`);
  for (const file of kept) print(`kept   ${file}, which is there already`);
}

type SchemaCheck = { ok: boolean; schema: string; version: string; code?: string; detail?: string };

/** The check that every relay makes before it starts. It reports the problem and sets the exit code. */
async function checkSchema(options: DatabaseOptions): Promise<SchemaCheck> {
  return inDatabase(options, async (database) => {
    const checked = { schema: database.options.schema, version };
    try {
      await refuseOutdatedSchema(database);
      return { ok: true, ...checked };
    } catch (error) {
      const isProblem =
        error instanceof SchemaMissingError ||
        error instanceof SchemaOutdatedError ||
        error instanceof RelayTooOldError ||
        error instanceof NoRightsError;
      if (!isProblem) throw error;
      process.exitCode = reportFailure(error);
      return { ok: false, ...checked, code: error.code, detail: error.message };
    }
  });
}
