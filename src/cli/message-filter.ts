// Flags that select messages, shared by `messages` and `tail`, and the filter that they form.

import type { Command } from 'commander';

import type { MessageFilter } from '../listing/message-ranges.js';
import { aggregate } from './arguments.js';

export type MessageFlags = {
  destination?: string;
  topic?: string;
  namespace?: string;
  tenant?: string;
  key?: string;
  aggregate?: { type: string; id: string };
  errorCode?: string;
};

type Given<T> = { [Name in keyof T]?: Exclude<T[Name], undefined> };
type MessageFields = Omit<
  MessageFilter,
  'id' | 'status' | 'dedupeKey' | 'failedFrom' | 'failedTo' | 'from' | 'to' | 'payload'
>;

export function messageOptions(command: Command, words: { topic: string; errorCode: string }) {
  return command
    .option('--destination <name>', 'at this destination')
    .option('--topic <topic>', words.topic)
    .option('--namespace <name>', 'of this namespace')
    .option('--tenant <id>', 'of this tenant')
    .option('--key <key>', 'of this key')
    .option('--aggregate <type/id>', 'of this aggregate', aggregate)
    .option('--error-code <code>', words.errorCode);
}

/** Builds the filter from the flags and from `more`; flags that were not given are left out. */
export function messageFilterOf<More extends object>(
  flags: MessageFlags,
  more: More,
): MessageFields & Given<More> {
  const { destination, topic, namespace, tenant, key, errorCode } = flags;
  const filter = {
    destination,
    topic,
    namespace,
    tenantId: tenant,
    key,
    errorCode,
    aggregateType: flags.aggregate?.type,
    aggregateId: flags.aggregate?.id,
    ...more,
  };
  return Object.fromEntries(
    Object.entries(filter).filter(([, value]) => value !== undefined),
  ) as Given<More>;
}
