// waybill endpoints: manages customers' webhook endpoints, which running relays pick up from the database. A secret is
// printed once, when it is made.

import os from 'node:os';

import { Command } from 'commander';

import { createEndpoints } from './endpoints.js';
import type { Endpoints, ShownSecret } from './endpoints.js';
import { errorText } from '../../core/errors.js';
import type { NewEndpoint } from './description.js';
import { description, fieldsOf, withoutNull } from './flags.js';
import type { DescriptionFlags } from './flags.js';
import { parseLabels } from './labels.js';
import { confirm } from '../../cli/confirm.js';
import {
  endpointOptions,
  secretFromEnvironment,
  sharedOptions,
  withDatabase,
} from '../../cli/connection-options.js';
import type { SharedFlags } from '../../cli/connection-options.js';
import { recoverAll } from './recovery.js';
import { endpointSecretCommands } from './secret-commands.js';
import { CommandError, exitCode, note, print, printJson, printTable } from '../../cli/output.js';

type Client = { query(sql: string, values: unknown[]): Promise<{ rows: unknown[] }> };
type AddFlags = SharedFlags &
  DescriptionFlags & { tenant?: string; allTenants?: boolean; name?: string };

const secretVariable = 'WAYBILL_ENDPOINT_SECRET';
const bringYourOwn = `A secret that the receiver brings is read from ${secretVariable}, or from the file that ${secretVariable}_FILE names.`;

export function endpointsCommand(): Command {
  const command = new Command('endpoints').description(
    "customers' webhook endpoints, kept in the database: add, list, change, rotate, enable, disable, recover, remove, test",
  );
  addCommand(command);
  listCommand(command);
  changeCommand(command);
  rotateCommand(command);
  onOffCommands(command);
  recoverCommand(command);
  removeCommand(command);
  endpointSecretCommands(command);
  return command;
}

function addCommand(parent: Command): void {
  description(sharedOptions(parent.command('add')))
    .description('add an endpoint; prints its name and its secret, which is not shown again')
    .argument('<url>', 'where to POST to')
    .option('--tenant <id>', "only this tenant's messages")
    .option('--all-tenants', 'the messages of all tenants')
    .option('--name <name>', 'its name (default: generated)')
    .addHelpText(
      'after',
      `\n${bringYourOwn}\n\nExamples:\n  $ waybill endpoints add https://example.com/hooks --topics 'user.*,order.paid' --tenant acme\n  $ ${secretVariable}_FILE=secret.txt waybill endpoints add https://example.com/hooks --topics '*' --tenant acme --json`,
    )
    .action(async (url: string, flags: AddFlags) => {
      if ((flags.tenant === undefined) === (flags.allTenants === undefined))
        throw new CommandError(
          exitCode.usage,
          'whose messages? Give --tenant ID, or --all-tenants',
        );
      if (flags.topics === undefined)
        throw new CommandError(exitCode.usage, "which topics? Give --topics 'user.*,order.paid'");
      const secret = secretFromEnvironment(secretVariable, 'the secret');
      const endpoint: NewEndpoint = {
        url,
        topics: flags.topics,
        tenantId: flags.tenant ?? null,
        ...(flags.name !== undefined && { name: flags.name }),
        ...withoutNull(fieldsOf(flags)),
        ...(secret !== undefined && { secret }),
      };
      showSecret(
        await withEndpoints(flags, (endpoints, client) => endpoints.add(client, endpoint)),
        flags,
      );
    });
}

function listCommand(parent: Command): void {
  sharedOptions(parent.command('list'))
    .description('show the endpoints, with the fingerprints of their secrets')
    .option('--tenant <id>', 'only endpoints of this tenant')
    .option(
      '--labels <labels>',
      "only endpoints with these labels: 'plan:gold,region:eu'",
      (text) => parseLabels('--labels', text),
    )
    .addHelpText(
      'after',
      "\nExamples:\n  $ waybill endpoints list --tenant acme --json\n  $ waybill endpoints list --labels 'plan:gold'",
    )
    .action(async (flags: SharedFlags & { tenant?: string; labels?: Record<string, string> }) => {
      const found = await withEndpoints(flags, (endpoints, client) =>
        endpoints.list(client, {
          ...(flags.tenant && { tenantId: flags.tenant }),
          ...(flags.labels && { labels: flags.labels }),
        }),
      );
      if (flags.json) return printJson(found);
      const columns = [
        'name',
        'url',
        'topics',
        'tenantId',
        'namespace',
        'enabled',
        'disabledBecause',
        'failingSince',
      ];
      printTable(found, [...columns, 'waiting', 'dead', 'fingerprints', 'description']);
    });
}

function changeCommand(parent: Command): void {
  description(sharedOptions(parent.command('change')))
    .description('change an endpoint; pending deliveries go to the new address')
    .argument('<name>')
    .option('--url <url>', 'the new address')
    .addHelpText(
      'after',
      "\nExamples:\n  $ waybill endpoints change acme-billing --url https://example.com/v2/hooks\n  $ waybill endpoints change acme-billing --topics 'invoice.*'",
    )
    .action(async (name: string, flags: SharedFlags & DescriptionFlags & { url?: string }) => {
      const changes = {
        ...(flags.url !== undefined && { url: flags.url }),
        ...(flags.topics !== undefined && { topics: flags.topics }),
        ...fieldsOf(flags),
      };
      await withEndpoints(flags, (endpoints, client) =>
        endpoints.change(client, { name }, changes),
      );
      report(flags, { name, changed: Object.keys(changes) }, `${name} is changed`);
    });
}

function rotateCommand(parent: Command): void {
  sharedOptions(parent.command('rotate'))
    .description(
      'give an endpoint a new secret; the old ones sign beside it until they are retired',
    )
    .argument('<name>')
    .option('--retire-old', 'make no new secret, but retire all except the newest')
    .addHelpText(
      'after',
      `\n${bringYourOwn}\n\nExamples:\n  $ waybill endpoints rotate acme-billing\n  $ waybill endpoints rotate acme-billing --retire-old`,
    )
    .action(async (name: string, flags: SharedFlags & { retireOld?: boolean }) => {
      if (flags.retireOld) {
        const retired = await withEndpoints(flags, (endpoints, client) =>
          endpoints.retireOldSecrets(client, { name }),
        );
        return report(flags, { name, retired }, `retired ${retired} secrets of ${name}`);
      }
      const secret = secretFromEnvironment(secretVariable, 'the secret');
      showSecret(
        await withEndpoints(flags, (endpoints, client) =>
          endpoints.rotate(client, { name }, { ...(secret !== undefined && { secret }) }),
        ),
        flags,
      );
    });
}

function onOffCommands(parent: Command): void {
  const words = {
    enable: 'continue deliveries, the oldest first',
    disable: 'stop deliveries; messages for it wait until it is enabled',
  };
  sharedOptions(parent.command('enable'))
    .description(words.enable)
    .argument('<name>')
    .addHelpText('after', '\nExamples:\n  $ waybill endpoints enable acme-billing')
    .action(async (name: string, flags: SharedFlags) => {
      await withEndpoints(flags, (endpoints, client) => endpoints.enable(client, { name }));
      report(flags, { name, enabled: true }, `${name} is enabled`);
    });
  sharedOptions(parent.command('disable'))
    .description(words.disable)
    .argument('<name>')
    .option('--reason <text>', 'the reason, for the record')
    .addHelpText(
      'after',
      "\nExamples:\n  $ waybill endpoints disable acme-billing --reason 'asked to by the customer'",
    )
    .action(async (name: string, flags: SharedFlags & { reason?: string }) => {
      const why = flags.reason === undefined ? {} : { reason: flags.reason };
      await withEndpoints(flags, (endpoints, client) => endpoints.disable(client, { name }, why));
      report(flags, { name, enabled: false }, `${name} is disabled`);
    });
}

function recoverCommand(parent: Command): void {
  sharedOptions(parent.command('recover'))
    .description('enable an endpoint, and send again what has failed since its first failure')
    .argument('<name>')
    .option(
      '--since <time>',
      'resend what has died since this time, in ISO 8601 (default: the first failure)',
    )
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill endpoints recover acme-billing\n  $ waybill endpoints recover acme-billing --since 2026-03-01T00:00:00Z',
    )
    .action(async (name: string, flags: SharedFlags & { since?: string }) => {
      const { since, resent } = await withEndpoints(flags, (endpoints, client) =>
        recoverAll(endpoints, client, { name }, flags.since),
      );
      report(flags, { name, since, resent }, `${name} is enabled; resent ${resent} since ${since}`);
    });
}

function removeCommand(parent: Command): void {
  sharedOptions(parent.command('remove'))
    .description('remove an endpoint and its secrets; deliveries that wait for it are kept')
    .argument('<name>')
    .option('--yes', 'do not ask')
    .addHelpText('after', '\nExamples:\n  $ waybill endpoints remove acme-billing --yes')
    .action(async (name: string, flags: SharedFlags & { yes?: boolean }) => {
      await confirm(
        `remove ${name}? Its name stays taken for at least 30 days.`,
        flags.yes ?? false,
      );
      const waiting = await withEndpoints(flags, (endpoints, client) =>
        endpoints.remove(client, { name }),
      );
      report(flags, { name, removed: true, waiting }, `${name} is removed`);
      if (waiting)
        note(`deliveries wait for ${name}: move_deliveries or discard_deliveries in SQL`);
    });
}

async function withEndpoints<T>(
  flags: SharedFlags,
  work: (endpoints: Endpoints, client: Client) => Promise<T>,
): Promise<T> {
  const { allowedNetworks } = await endpointOptions(flags);
  try {
    return await withDatabase(flags, (database) => {
      const client = {
        query: async (sql: string, values: unknown[]) => ({
          rows: await database.query('endpoints', sql, values),
        }),
      };
      const { schema } = database.options;
      const endpoints = createEndpoints({
        schema,
        actor: `cli:${os.userInfo().username}`,
        ...(allowedNetworks && { allowedNetworks }),
      });
      return work(endpoints, client);
    });
  } catch (error) {
    throw refusal(error);
  }
}

const exits: Record<string, number> = {
  P0002: exitCode.notFound,
  '23505': exitCode.refused,
  '54000': exitCode.refused,
  '22023': exitCode.usage,
};

/** Maps an error of the database to the exit code that scripts rely on. */
function refusal(error: unknown): unknown {
  const { code = '' } = (error ?? {}) as { code?: string };
  return code in exits ? new CommandError(exits[code] ?? exitCode.error, errorText(error)) : error;
}

function showSecret(made: ShownSecret, flags: SharedFlags): void {
  if (flags.json) return printJson(made);
  print(`name    ${made.name}`);
  print(`secret  ${made.secret}`);
  note('Give the secret to the receiver now: it is not shown again.');
}

function report(flags: SharedFlags, data: object, words: string): void {
  if (flags.json) printJson(data);
  else note(words);
}
