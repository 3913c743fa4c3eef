// waybill watch, unwatch, watches: make messages of what happens to a table.

import os from 'node:os';

import { Command, Option } from 'commander';

import { defineWatch, endWatches, readWatches } from '../database/watches.js';
import { checkWatch } from '../model/watch.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { note, print, printJson, printTable } from './output.js';

type Flags = SharedFlags & {
  topic: string;
  key?: string;
  tenant?: string;
  columns?: string[];
  when?: string[];
  old?: boolean;
  created: string | false;
  changed: string | false;
  deleted: string | false;
  truncate: 'refuse' | 'report';
  namespace?: string;
  aggregateType?: string;
  aggregateId?: string;
  dryRun?: boolean;
};

const actor = () => `cli:${os.userInfo().username}`;

export function watchCommand(): Command {
  return sharedOptions(new Command('watch'))
    .description('make messages of what happens to a table')
    .argument('<table>', 'the table, as schema.table')
    .requiredOption('--topic <topic>', 'the messages are topic.created, .changed and .deleted')
    .option('--key <column>', 'the column with the ordering key')
    .option('--tenant <column>', 'the column with the tenant id')
    .option('--columns <names>', 'the columns in the payload (default: the primary key)', names)
    .option('--when <names>', 'updates that leave these columns alone make nothing', names)
    .option('--old', 'the payload has the old values of what changed, too')
    .option('--created <name>', 'what an insert is called', 'created')
    .option('--no-created', 'nothing for inserts')
    .option('--changed <name>', 'what an update is called', 'changed')
    .option('--no-changed', 'nothing for updates')
    .option('--deleted <name>', 'what a delete is called', 'deleted')
    .option('--no-deleted', 'nothing for deletes')
    .addOption(
      new Option('--truncate <how>', 'what a TRUNCATE does')
        .choices(['refuse', 'report'])
        .default('refuse'),
    )
    .option('--namespace <name>', 'the namespace of the messages')
    .option('--aggregate-type <type>', "the aggregate type (default: the table's name)")
    .option('--aggregate-id <column>', 'the column with the aggregate id (default: primary key)')
    .option('--dry-run', 'print the SQL that would run, and run nothing')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill watch public.cataloguing_jobs --topic job --key job_id --tenant organization_id --columns status,job_id --when status --changed status_changed\n  $ waybill watch public.orders --topic order --dry-run',
    )
    .action(async (table: string, flags: Flags) => {
      const { json, dryRun = false, old, ...given } = flags;
      const { config: _config, schema: _schema, shard: _shard, ...options } = given;
      const watch = checkWatch('watch', {
        ...options,
        table,
        oldValues: old,
        created: options.created || null,
        changed: options.changed || null,
        deleted: options.deleted || null,
      });
      const statements = await withDatabase(flags, (database) =>
        defineWatch(database, watch, { dryRun, actor: actor() }),
      );
      if (json) return printJson({ table, topic: watch.topic, dryRun, statements });
      if (dryRun) for (const statement of statements) print(`${statement};`);
      else if (statements.length === 0) note(`${table} is watched like that already`);
      else note(`${table} is watched: ${statements.length} statements were run`);
    });
}

export function unwatchCommand(): Command {
  return sharedOptions(new Command('unwatch'))
    .description('end the watches of a table; its messages stay')
    .argument('<table>', 'the table, as schema.table')
    .option('--topic <topic>', 'only the watch with this topic')
    .addHelpText('after', '\nExample:\n  $ waybill unwatch public.cataloguing_jobs')
    .action(async (table: string, flags: SharedFlags & { topic?: string }) => {
      const ended = await withDatabase(flags, (database) =>
        endWatches(database, table, flags.topic ?? null, actor()),
      );
      if (flags.json) printJson({ table, ended });
      else note(`ended ${ended} watches of ${table}`);
    });
}

export function watchesCommand(): Command {
  const command = new Command('watches').description(
    'list what is watched, and whether every change is seen',
  );
  sharedOptions(command.command('list', { isDefault: true }))
    .description('what is watched, and whether every change is seen')
    .addHelpText('after', '\nExamples:\n  $ waybill watches list\n  $ waybill watches --json')
    .action(async (flags: SharedFlags) => {
      const watches = await withDatabase(flags, readWatches);
      if (flags.json) return printJson(watches);
      printTable(watches, [
        'table',
        'topic',
        'events',
        'columns',
        'when',
        'key',
        'tenant',
        'configured',
        'problem',
      ]);
    });
  return command;
}

/** Column names between commas; one that has a comma itself can be given in the configuration or in SQL. */
function names(text: string): string[] {
  return text.split(',');
}
