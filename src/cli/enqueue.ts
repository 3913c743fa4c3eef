// waybill enqueue: one message by hand, in a transaction of its own.

import { Command } from 'commander';

import { checkJsonText } from '../model/json-text.js';
import type { Message } from '../model/message.js';
import { createOutbox } from '../outbox.js';
import { sharedOptions, withDatabase } from './connection-options.js';
import type { SharedFlags } from './connection-options.js';
import { wholeNumber } from './arguments.js';
import { print, printJson } from './output.js';

type Flags = SharedFlags & Omit<Message, 'topic' | 'payload' | 'headers'> & { tenant?: string };

export function enqueueCommand(): Command {
  return sharedOptions(new Command('enqueue'))
    .description('enqueue one message')
    .argument('<topic>', 'what happened, for example user.registered')
    .argument('[payload]', 'JSON; - reads it from standard input', 'null')
    .option('--namespace <name>')
    .option('--tenant <id>', 'the tenant id')
    .option('--key <key>', 'the ordering key')
    .option('--dedupe-key <key>')
    .option('--aggregate-type <type>')
    .option('--aggregate-id <id>')
    .option('--delay-ms <ms>', 'deliver not before this many milliseconds from now', wholeNumber)
    .option('--available-at <time>', 'deliver not before this time (ISO 8601)')
    .addHelpText(
      'after',
      `\nExamples:\n  $ waybill enqueue user.registered '{"userId": 42}'\n  $ waybill enqueue user.registered - --dedupe-key 42 < user.json`,
    )
    .action(
      async (
        topic: string,
        payload: string,
        { tenant, config, schema, json, ...fields }: Flags,
      ) => {
        const flags = { ...(config && { config }), ...(schema && { schema }) };
        const message: Message = {
          topic,
          payloadText: checkJsonText('payload', payload === '-' ? await readInput() : payload).text,
          ...fields,
        };
        if (tenant !== undefined) message.tenantId = tenant;
        const result = await withDatabase(flags, async (database) => {
          const client = {
            query: async (sql: string, values: unknown[]) => ({
              rows: await database.query('enqueue', sql, values),
            }),
          };
          const outbox = createOutbox({ schema: database.options.schema });
          return outbox.enqueue(client, message, { autonomous: true });
        });
        if (json) printJson({ ...result, sequence: result.sequence?.toString() ?? null });
        else print(result.duplicate ? `${result.id} (enqueued before)` : result.id);
      },
    );
}

async function readInput(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}
