// waybill roles: creates and grants the database roles, from the owner that cannot log in to the reader of one tenant.

import { Command } from 'commander';

import type { DatabaseOptions } from '../database/connection.js';
import { installRoles, listRoles, planRoles } from '../database/roles.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { overEachShard } from '../features/shards/each-shard.js';
import { note, print, printJson, printTable } from './output.js';

type InstallFlags = SharedFlags & { prefix: string; dryRun?: boolean };

export function rolesCommand(): Command {
  const command = new Command('roles').description(
    'create the database roles, and show their rights',
  );

  sharedOptions(command.command('install'))
    .description('create the roles, give the schema to its owner, and grant each role its rights')
    .option('--prefix <text>', 'the prefix of the role names', 'waybill_')
    .option('--dry-run', 'print the SQL that would run, and run nothing')
    .addHelpText(
      'after',
      '\nRoles are shared by all databases of a cluster. Run it as an administrator, after migrate up; running it again changes nothing.\n\nExamples:\n  $ waybill roles install\n  $ waybill roles install --prefix shop_outbox_ --dry-run\n\nThen create logins:\n  CREATE ROLE shop LOGIN IN ROLE waybill_producer;\n  CREATE ROLE shop_relay LOGIN IN ROLE waybill_relay, waybill_maintenance;',
    )
    .action(async (flags: InstallFlags) => {
      const dryRun = flags.dryRun ?? false;
      const install = async (options: DatabaseOptions) => ({
        statements: await (dryRun ? planRoles : installRoles)(options, flags.prefix),
        dryRun,
      });
      await overEachShard(flags, install, ({ statements }) => {
        if (dryRun) {
          if (statements.length > 0) print(`BEGIN;\n${statements.join(';\n')};\nCOMMIT;`);
          return note(`${statements.length} statements would run`);
        }
        if (statements.length === 0) return note('everything is as it should be');
        note(`done, in ${statements.length} statements: waybill roles show`);
      });
    });

  sharedOptions(command.command('show'))
    .description('show the roles, what each may do, and who has it')
    .addHelpText('after', '\nExamples:\n  $ waybill roles show\n  $ waybill roles show --json')
    .action(async (flags: SharedFlags) => {
      const roles = await withDatabase(flags, listRoles);
      if (flags.json) return printJson(roles);
      printTable(
        roles.map(({ role, name, members, functions, tables, purpose }) => ({
          role,
          name: name ?? '(not installed)',
          members,
          functions: role === 'owner' ? 'all' : functions.length,
          reads: role === 'owner' ? 'all' : tables.length,
          purpose,
        })),
        ['role', 'name', 'members', 'functions', 'reads', 'purpose'],
      );
    });
  return command;
}
