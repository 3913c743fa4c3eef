// waybill tokens: manages the tokens of the HTTP API and the page.

import os from 'node:os';

import { Command, InvalidArgumentError, Option } from 'commander';

import { timeOf } from '../../core/time.js';
import { addToken, listTokens, removeToken, scopes } from './database.js';
import type { Scope } from './database.js';
import { sharedOptions, withDatabase } from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { confirm } from '../../cli/confirm.js';
import { CommandError, exitCode, note, print, printJson, printTable } from '../../cli/output.js';

type AddFlags = SharedFlags & { scope: Scope; tenant?: string; expires?: Date };

export function tokensCommand(): Command {
  const command = new Command('tokens').description(
    'manage the tokens of the HTTP API and the page',
  );

  sharedOptions(command.command('add'))
    .description('create a token and print it once')
    .argument('<name>', 'the name of the token: who or what uses it')
    .addOption(
      new Option('--scope <scope>', 'read, operate (retry, discard, pause) or admin (everything)')
        .choices(scopes)
        .default('read'),
    )
    .option('--tenant <id>', 'limits the token to messages of this tenant')
    .option('--expires <time>', 'the token expires at this time (ISO 8601)', (text: string) => {
      const date = timeOf(text);
      if (date === null || date.getTime() < Date.now())
        throw new InvalidArgumentError('give a time in the future, such as 2030-12-31T00:00:00Z.');
      return date;
    })
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill tokens add grafana\n  $ waybill tokens add alice --scope operate --expires 2030-12-31T00:00:00Z\n  $ waybill tokens add acme-support --tenant acme',
    )
    .action(async (name: string, flags: AddFlags) => {
      const { scope, tenant, expires } = flags;
      const token = await withDatabase(flags, (database) =>
        addToken(
          database,
          {
            name,
            scope,
            ...(tenant !== undefined && { tenantId: tenant }),
            ...(expires && { expiresAt: expires }),
          },
          actor(),
        ),
      );
      if (flags.json) return printJson({ name, scope, tenantId: tenant ?? null, token });
      print(token);
      note(`This is the token of ${name}. It is not shown again: only its hash is kept.`);
    });

  sharedOptions(command.command('list'))
    .description('show tokens, and when each was last used')
    .action(async (flags: SharedFlags) => {
      const tokens = await withDatabase(flags, listTokens);
      if (flags.json) return printJson(tokens);
      printTable(tokens, ['name', 'scope', 'tenantId', 'createdAt', 'expiresAt', 'lastUsedAt']);
    });

  sharedOptions(command.command('remove'))
    .description('remove a token, and end the logins made with it')
    .argument('<name>', 'the name of the token: who or what uses it')
    .option('--yes', 'do not ask')
    .action(async (name: string, flags: SharedFlags & { yes?: boolean }) => {
      await confirm(`remove the token of ${name}?`, flags.yes ?? false);
      const removed = await withDatabase(flags, (database) => removeToken(database, name, actor()));
      if (!removed) throw new CommandError(exitCode.notFound, `there is no token of ${name}`);
      if (flags.json) printJson({ removed: name });
      else print(`removed the token of ${name}`);
    });
  return command;
}

function actor(): string {
  return `cli:${os.userInfo().username}`;
}
