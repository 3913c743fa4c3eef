// waybill watch, unwatch, watches: turn changes of a table into messages.

import os from 'node:os';

import { Command, Option } from 'commander';

import { defineWatch, endWatches, readWatches } from './database.js';
import { checkWatch } from './watch.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { note, print, printJson, printTable } from '../../cli/output.js';

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
    .description('watch a table: turn its changes into messages')
    .argument('<table>', 'the table, as schema.table')
    .requiredOption('--topic <topic>', 'the messages are topic.created, .changed and .deleted')
    .option('--key <column>', 'the column with the ordering key')
    .option('--tenant <column>', 'the column with the tenant id')
    .option('--columns <names>', 'the columns in the payload (default: the primary key)', names)
    .option('--when <names>', 'updates that change none of these columns make no message', names)
    .option('--old', 'add the old values of changed columns to the payload')
    .option('--created <name>', 'the last part of the topic for an insert', 'created')
    .option('--no-created', 'no messages for inserts')
    .option('--changed <name>', 'the last part of the topic for an update', 'changed')
    .option('--no-changed', 'no messages for updates')
    .option('--deleted <name>', 'the last part of the topic for a delete', 'deleted')
    .option('--no-deleted', 'no messages for deletes')
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
    'list watched tables, and whether every change becomes a message',
  );
  sharedOptions(command.command('list', { isDefault: true }))
    .description('show watched tables, and whether every change becomes a message')
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
        'owners',
        'problem',
      ]);
    });
  return command;
}

/** Column names separated by commas; a name with a comma can be given in the configuration or in SQL. */
function names(text: string): string[] {
  return text.split(',');
}
