// Flags of `waybill endpoints add` and `change` that describe an endpoint, and the fields that they give.

import { readFileSync } from 'node:fs';

import type { Command } from 'commander';

import { shown } from '../../core/errors.js';
import type { WebhookAuth } from '../../destinations/webhook/auth.js';
import type { BodyShape } from '../../destinations/webhook/body.js';
import { CommandError, exitCode } from '../../cli/output.js';
import type { EndpointChanges } from './description.js';
import { parseLabels } from './labels.js';

export type DescriptionFlags = {
  topics?: string[];
  namespace?: string;
  description?: string;
  body?: BodyShape;
  headersFile?: string;
  queryFile?: string;
  authFile?: string;
  // These are parsed later: commander turns a null of an option's parser into an empty text.
  filter?: string;
  expireAfter?: string;
  rate?: string;
  concurrency?: string;
  timeout?: string;
  labels?: Record<string, string>;
};
export function description(command: Command): Command {
  return command
    .option('--topics <topics>', "topics, separated by commas: 'user.*,order.paid'", (text) =>
      text.split(',').map((topic) => topic.trim()),
    )
    .option('--namespace <name>', 'only this namespace')
    .option('--description <text>', 'a description for operators')
    .option('--body <shape>', 'payload, envelope, cloudevents or cloudevents-structured')
    .option('--headers-file <file>', 'headers of every request, as a JSON object; they are sealed')
    .option(
      '--query-file <file>',
      'parameters that are added to the address, as a JSON object; they are sealed',
    )
    .option(
      '--auth-file <file>',
      'login of every request (basic or oauth2), as a JSON object; it is sealed',
    )
    .option(
      '--filter <json>',
      `only messages with such a payload: '{"amount": {"gte": 100}}'; null: all`,
    )
    .option('--expire-after <ms>', 'send no older messages; null: send all')
    .option(
      '--rate <json>',
      `the most messages per second: '{"perSecond": 10}'; null: as in the configuration`,
    )
    .option('--concurrency <number>', 'deliveries in flight at once; null: as in the configuration')
    .option('--timeout <ms>', 'the longest delivery; null: as in the configuration')
    .option('--labels <labels>', `labels: 'plan:gold,region:eu'; '' for none`, (text) =>
      parseLabels('--labels', text),
    );
}

type Milliseconds = number | null | undefined;

/** The fields that the flags give; createEndpoints() checks them. */
export function fieldsOf(flags: DescriptionFlags): Omit<EndpointChanges, 'url' | 'topics'> {
  const { namespace, description: words, body, labels } = flags;
  return given({
    namespace,
    description: words,
    body,
    headers: texts('--headers-file', flags.headersFile),
    query: texts('--query-file', flags.queryFile),
    auth: objectFrom('--auth-file', flags.authFile) as WebhookAuth | undefined,
    filter: json('--filter', flags.filter) as EndpointChanges['filter'],
    expireAfterMs: json('--expire-after', flags.expireAfter) as Milliseconds,
    rate: json('--rate', flags.rate) as EndpointChanges['rate'],
    concurrency: json('--concurrency', flags.concurrency) as EndpointChanges['concurrency'],
    timeoutMs: json('--timeout', flags.timeout) as Milliseconds,
    labels,
  });
}

type Given<T> = { [Name in keyof T]?: Exclude<T[Name], undefined> };

function given<T extends object>(fields: T): Given<T> {
  return Object.fromEntries(
    Object.entries(fields).filter(([, value]) => value !== undefined),
  ) as Given<T>;
}

/** Leaves out fields that are null: for a new endpoint, null and a missing flag mean the same. */
export function withoutNull<T extends object>(
  fields: T,
): { [Name in keyof T]: Exclude<T[Name], null> } {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null)) as {
    [Name in keyof T]: Exclude<T[Name], null>;
  };
}

function json(flag: string, text: string | undefined): unknown {
  if (text === undefined) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    throw new CommandError(exitCode.usage, `${flag} is ${shown(text)}: give JSON`);
  }
}

function texts(flag: string, file: string | undefined): Record<string, string> | undefined {
  return objectFrom(flag, file) as Record<string, string> | undefined;
}

function objectFrom(flag: string, file: string | undefined): unknown {
  if (file === undefined) return undefined;
  try {
    return JSON.parse(readFileSync(file, 'utf8'));
  } catch (error) {
    throw new CommandError(
      exitCode.usage,
      `${flag} is ${shown(file)}, which is no file with a JSON object: ${(error as NodeJS.ErrnoException).code ?? 'malformed'}`,
    );
  }
}
