// waybill messages: finds messages, and shows one with its whole journey.

import { Command, Option } from 'commander';

import { readMessage } from '../listing/message-detail.js';
import { listMessages } from '../listing/message-list.js';
import { listedStatuses } from '../listing/statuses.js';
import type { MessageFilter } from '../listing/message-ranges.js';
import { messageId, payloadValue, time, wholeNumber } from './arguments.js';
import { messageFilterOf, messageOptions } from './message-filter.js';
import type { MessageFlags } from './message-filter.js';
import { CommandError, exitCode, note, print, printJson, printTable } from './output.js';
import { readingOptions, withReadableDatabase } from '../features/replicas/flags.js';
import type { ReadingFlags } from '../features/replicas/flags.js';

type ListFlags = ReadingFlags &
  MessageFlags & {
    status?: MessageFilter['status'];
    payload?: MessageFilter['payload'];
    since?: Date;
    until?: Date;
    limit: number;
    next?: string;
  };

export function messagesCommand(): Command {
  const command = new Command('messages').description('find messages, and show their state');

  const list = readingOptions(command.command('list'))
    .description(
      'show messages that match, newest first; pending ones by due time, unless another filter is faster (then newest first)',
    )
    .addOption(
      new Option(
        '--status <status>',
        'with this status (retrying: pending after a failed try; failed: dead or retrying)',
      ).choices(listedStatuses),
    );
  messageOptions(list, {
    topic: 'of this topic; `order.*` for every topic that begins with `order.`',
    errorCode: 'that failed with this code or HTTP status',
  })
    .option(
      '--payload <field=value>',
      'with this value in the payload; several must all match',
      payloadValue,
    )
    .option('--since <time>', 'created at or after (ISO 8601)', time)
    .option('--until <time>', 'created before (ISO 8601)', time)
    .option('--limit <n>', 'about this many', wholeNumber, 50)
    .option('--next <place>', 'continue after the previous page: its `next`')
    .addHelpText(
      'after',
      '\nExamples:\n  $ waybill messages list --status retrying --destination crm\n  $ waybill messages list --topic user.registered --since 2026-01-31T08:00:00Z --json\n  $ waybill messages list --topic order.paid --payload orderId=4711\n  $ waybill messages show 019a8f2e-7a31-7c55-9a3b-6f1f2a9d0c11',
    )
    .action(async (flags: ListFlags) => {
      const { status, payload, since, until } = flags;
      const filter = messageFilterOf(flags, { status, payload, from: since, to: until });
      const page = await withReadableDatabase(flags, (database) =>
        listMessages(database, filter, {
          limit: flags.limit,
          ...(flags.next !== undefined && { next: flags.next }),
        }),
      );
      if (flags.json) return printJson(page);
      printTable(page.messages, [
        'messageId',
        'topic',
        'destination',
        'status',
        'tries',
        'tenantId',
        'key',
        'createdAt',
        'nextTryAt',
        'errorCode',
      ]);
      if (page.next !== null) note(`(more: --next ${page.next})`);
    });

  readingOptions(command.command('show'))
    .description('show one message: its fields, every attempt, and why it is not delivered yet')
    .argument('<id>', 'the message', messageId)
    .action(async (id: string, flags: ReadingFlags) => {
      const message = await withReadableDatabase(flags, (database) => readMessage(database, id), {
        isAnswer: (found) => found !== null,
      });
      if (message === null) {
        throw new CommandError(
          exitCode.notFound,
          `there is no message ${id}: it was never committed, or retention has removed it`,
        );
      }
      if (flags.json) return printJson(message);
      const { attempts, explanations, payloadText, payloadBytes, headers, ...fields } = message;
      for (const [name, value] of Object.entries({ ...fields, headers })) {
        if (value === null) continue;
        const text = value instanceof Date ? value.toISOString() : value;
        print(`${name.padEnd(15)}${typeof text === 'string' ? text : JSON.stringify(text)}`);
      }
      const isWhole = Buffer.byteLength(payloadText) === payloadBytes;
      const cut = isWhole ? '' : payloadText === '' ? ' (too large to read)' : ' (its beginning)';
      print(`payload        ${payloadBytes} bytes${cut}: ${payloadText}`);
      print('');
      printTable(attempts, [
        'destination',
        'claimNo',
        'state',
        'tries',
        'relay',
        'claimedAt',
        'endedAt',
        'latencyMs',
        'errorCode',
        'remoteCode',
        'reference',
        'errorMessage',
      ]);
      for (const { destination, claimNo, response } of attempts) {
        if (response !== null)
          print(`${destination} answered claim ${claimNo}: ${oneLine(response)}`);
      }
      print('');
      for (const { destination, status, sentence, remedy } of explanations) {
        print(`${destination ?? 'no destination'}: ${status}. ${sentence}`);
        if (remedy !== null) print(`  ${remedy}`);
      }
    });
  return command;
}

/** Shortens a text to one line; `--json` shows all of it. */
function oneLine(text: string): string {
  const line = text.replaceAll(/\s+/g, ' ');
  return line.length > 200 ? `${line.slice(0, 199)}…` : line;
}
