// Amazon SQS destination: up to ten messages per request, split at 1 MiB. A message is delivered when SQS gave it an
// id. SQS answers for each entry of a successful request, so a rejected entry does not affect the others. A request
// that is rejected as a whole is sent again message by message, to find the one at fault.

import type { SendMessageBatchRequestEntry } from '@aws-sdk/client-sqs';

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { checkOptions, optional, refuse, text } from '../../core/options.js';
import { reject } from '../../core/outcome.js';
import type { Outcome } from '../../core/outcome.js';
import { settingKinds } from '../destination.js';
import { definitionOf } from '../definition.js';
import type { BatchDestination, DestinationSettings } from '../destination.js';
import { SqsConnection } from './connection.js';
import { entryBytes, entryOf } from './entry.js';
import { entryFailed, requestFailed, taken } from './outcome.js';
import { template } from '../template.js';
import type { Template } from '../template.js';

export type SqsOptions = DestinationSettings & {
  /** The address of the queue. If its name ends in `.fifo`, messages have groups and duplicates are dropped. */
  queueUrl: string;
  /** The AWS region. Default: that of the address, or what the AWS SDK finds in the environment. */
  region?: string;
  /** Another address to send to, such as a VPC endpoint. Default: that of the queue. */
  endpoint?: string;
  /** The login. Default: what the AWS SDK finds: the environment, a profile, the role of the machine. */
  credentials?: SqsCredentials;
  /** FIFO queues only: the group, with fields of the message in braces. Default: the key, or else the message's id. */
  messageGroupId?: string;
};

export type SqsCredentials = {
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string;
};

/** The limit of one SQS request. */
const maxEntries = 10;
const maxRequestBytes = 1024 * 1024;

export function sqs(options: SqsOptions): BatchDestination {
  const checked = checkOptions('sqs', options, {
    ...settingKinds,
    queueUrl: httpAddress,
    region: optional(text({ pattern: /^[a-z0-9-]+$/, meaning: 'a region such as eu-west-1' })),
    endpoint: optional(httpAddress),
    credentials: optional(sqsCredentials),
    messageGroupId: optional(template()),
  });
  const { queueUrl, region, endpoint, credentials, messageGroupId, ...settings } = checked;
  const fifo = new URL(queueUrl).pathname.endsWith('.fifo');
  if (!fifo && messageGroupId !== undefined)
    refuse('sqs.messageGroupId', options.messageGroupId, 'only a .fifo queue has groups');
  const place = region ?? regionOf(queueUrl);
  const connection = new SqsConnection({
    connections: settings.concurrency,
    connectTimeoutMs: Math.min(settings.timeoutMs, 5000),
    endpoint: endpoint ?? new URL(queueUrl).origin,
    ...(place !== undefined && { region: place }),
    ...(credentials !== undefined && { credentials }),
  });

  const sendEntries = async (entries: readonly Entry[], signal: AbortSignal): Promise<void> => {
    try {
      const Entries = entries.map(({ entry }) => entry);
      const { Successful = [], Failed = [] } = await connection.sendBatch(
        { QueueUrl: queueUrl, Entries },
        signal,
      );
      const answers = new Map<string | undefined, Outcome>([
        ...Successful.map((success) => [success.Id, taken(success)] as const),
        ...Failed.map((failure) => [failure.Id, entryFailed(failure)] as const),
      ]);
      for (const { entry, end } of entries) end(answers.get(entry.Id) ?? requestFailed(undefined));
    } catch (error) {
      const outcome = requestFailed(error);
      if (outcome.kind !== 'reject' || entries.length === 1) {
        for (const { end } of entries) end(outcome);
        return;
      }
      for (const entry of entries) await sendEntries([entry], signal);
    }
  };

  return {
    kind: 'sqs',
    settings,
    definition: definitionOf(options, checked, ['credentials']),
    batchSize: maxEntries,
    open: (relays) => connection.load(relays),
    async deliverBatch(messages, { signal }) {
      const outcomes: Outcome[] = [];
      const entries: Entry[] = [];
      for (const [index, message] of messages.entries()) {
        const entry = checkedEntry(message, index, fifo, messageGroupId);
        if ('kind' in entry) outcomes[index] = entry;
        else entries.push({ entry, end: (outcome) => (outcomes[index] = outcome) });
      }
      for (const part of partsOf(entries)) await sendEntries(part, signal);
      return outcomes;
    },
    async health({ signal }) {
      try {
        await connection.look(queueUrl, signal);
        return { ok: true };
      } catch (error) {
        const failure = requestFailed(error);
        const code = 'remoteCode' in failure ? `${failure.remoteCode}: ` : '';
        return { ok: false, problem: `${code}${'message' in failure ? failure.message : ''}` };
      }
    },
    close: () => connection.close(),
  };
}

type Entry = {
  readonly entry: SendMessageBatchRequestEntry;
  readonly end: (outcome: Outcome) => void;
};

function checkedEntry(
  message: ClaimedMessage,
  index: number,
  fifo: boolean,
  group: Template | undefined,
): SendMessageBatchRequestEntry | Outcome {
  const entry = entryOf(message, index, fifo, group);
  if (entry === null)
    return reject({ code: 'name_incomplete', message: 'it lacks a field of the group’s name' });
  const bytes = entryBytes(entry);
  if (bytes <= maxRequestBytes) return entry;
  return reject({
    code: 'message_too_large',
    message: `it has ${bytes} bytes with its attributes, SQS takes ${maxRequestBytes}`,
  });
}

function partsOf(entries: readonly Entry[]): Entry[][] {
  const parts: Entry[][] = [];
  let room = 0;
  for (const entry of entries) {
    const bytes = entryBytes(entry.entry);
    const last = parts.at(-1);
    if (last !== undefined && bytes <= room) last.push(entry);
    else parts.push([entry]);
    room = (last !== undefined && bytes <= room ? room : maxRequestBytes) - bytes;
  }
  return parts;
}

function regionOf(queueUrl: string): string | undefined {
  return /^(?:sqs\.)?([a-z]{2}(?:-[a-z]+)+-\d)\.(?:queue\.)?amazonaws\.com(?:\.cn)?$/.exec(
    new URL(queueUrl).hostname,
  )?.[1];
}

function httpAddress(name: string, value: unknown): string {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url === null || !/^https?:$/.test(url.protocol))
    return refuse(name, typeof value === 'string' ? '…' : value, 'give an https:// address');
  if (url.username !== '' || url.password !== '')
    return refuse(name, `${url.protocol}//…@${url.host}`, 'put credentials into credentials');
  return value as string;
}

/** The values are secrets and are not shown. */
function sqsCredentials(name: string, value: unknown): SqsCredentials {
  const secret = (field: string, given: unknown): string =>
    typeof given === 'string' && given !== '' ? given : refuse(field, '…', 'give text');
  if (typeof value !== 'object' || value === null)
    refuse(name, '…', 'give { accessKeyId, secretAccessKey }');
  // the SDK records in the object itself where it came from
  const own = Object.entries(value).filter(([key]) => key !== '$source');
  const { sessionToken, ...keys } = checkOptions(name, Object.fromEntries(own), {
    accessKeyId: secret,
    secretAccessKey: secret,
    sessionToken: optional(secret),
  });
  return { ...keys, ...(sessionToken !== undefined && { sessionToken }) };
}
