// waybill enqueue: enqueues one message by hand, in its own transaction.

import { Command } from 'commander';

import { checkJsonText } from '../core/json-text.js';
import { largestLimits } from '../core/message.js';
import type { Message } from '../core/message.js';
import { createOutbox } from '../producer/outbox.js';
import { inDatabase, sharedOptions, targets } from './connection-options.js';
import type { SharedFlags, Target } from './connection-options.js';
import { wholeNumber } from './arguments.js';
import { print, printJson } from './output.js';

type Flags = SharedFlags & Omit<Message, 'topic' | 'payload' | 'headers'> & { tenant?: string };

export function enqueueCommand(): Command {
  return sharedOptions(new Command('enqueue'))
    .description('enqueue one message')
    .argument('<topic>', 'what happened, for example user.registered')
    .argument('[payload]', 'JSON; - reads it from standard input', 'null')
    .option('--namespace <name>', 'the namespace (default: default)')
    .option('--tenant <id>', 'the tenant id')
    .option('--key <key>', 'the ordering key')
    .option('--dedupe-key <key>', 'enqueue nothing if a message has this key already')
    .option(
      '--aggregate-type <type>',
      'the kind of record that the message is about, such as order',
    )
    .option('--aggregate-id <id>', 'the id of that record')
    .option('--delay-ms <ms>', 'deliver not before this many milliseconds from now', wholeNumber)
    .option('--available-at <time>', 'deliver not before this time (ISO 8601)')
    .addHelpText(
      'after',
      `\nExamples:\n  $ waybill enqueue user.registered '{"userId": 42}'\n  $ waybill enqueue user.registered - --dedupe-key 42 < user.json\n\nWith shards, the message goes to the shard of its tenant.`,
    )
    .action(
      async (
        topic: string,
        payload: string,
        { tenant, config, schema, shard, json, ...fields }: Flags,
      ) => {
        const flags = {
          ...(config && { config }),
          ...(schema && { schema }),
          ...(shard && { shard }),
        };
        const message: Message = {
          topic,
          payloadText: checkJsonText('payload', payload === '-' ? await readInput() : payload).text,
          ...fields,
        };
        if (tenant !== undefined) message.tenantId = tenant;
        const { shard: name, shards, options } = findTarget(await targets(flags), tenant);
        const result = await inDatabase(options, async (database) => {
          const client = {
            query: async (sql: string, values: unknown[]) => ({
              rows: await database.query('enqueue', sql, values),
            }),
          };
          const outbox = createOutbox({
            schema: database.options.schema,
            // only the limits of the schema apply: an error of the database aborts no transaction of an application
            ...largestLimits,
            ...(shards && name !== undefined && { shard: { of: shards, name } }),
          });
          return outbox.enqueue(client, message, { autonomous: true });
        });
        if (json) printJson({ ...result, sequence: result.sequence?.toString() ?? null });
        else print(result.duplicate ? `${result.id} (enqueued before)` : result.id);
      },
    );
}

/** The shard that --shard names, or the shard of the tenant. */
function findTarget(found: readonly Target[], tenant: string | undefined): Target {
  const right = found.length > 1 ? found[0]?.shards?.shardOf(tenant) : found[0]?.shard;
  const target = found.find(({ shard }) => shard === right);
  if (target === undefined) throw new Error(`no database for the shard ${right}`);
  return target;
}

async function readInput(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString('utf8');
}
