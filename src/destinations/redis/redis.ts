// Redis Streams destination: one XADD per message, a batch in one pipelined call over one connection. A message is
// delivered when the server gave the entry an id. A call connects on demand, so an unavailable server costs one refused
// connection per call. Error codes decide the outcome.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { messageHeaders } from '../../core/message-headers.js';
import { checkOptions, flag, integer, optional, refuse } from '../../core/options.js';
import { delivered, pause, reject, retry } from '../../core/outcome.js';
import type { Failure, Outcome } from '../../core/outcome.js';
import { settingKinds } from '../destination.js';
import { definitionOf } from '../definition.js';
import type { BatchDestination, DestinationSettings } from '../destination.js';
import { RedisConnection } from './connection.js';
import type { RedisAddress, RedisFailure } from './connection.js';
import { template, unlessOthersMay } from '../template.js';

export type RedisOptions = DestinationSettings & {
  /** `redis://[user:password@]host[:port][/database]`, or `rediss://` for TLS. */
  url: string;
  /** The key of the stream, with fields of the message in braces. Default `{topic}`. */
  stream?: string;
  /** The most entries of the stream; older ones are removed. Default: no limit. */
  maxLength?: RedisMaxLength;
  /** `false`: a stream that does not exist is not created, and its messages wait for it. Default true. */
  createStream?: boolean;
  /** Larger messages are rejected before they are sent. Default 512 MiB, as Redis itself; not above its `proto-max-bulk-len`. */
  maxMessageBytes?: number;
  /** The most messages in one pipelined call. Default 100. */
  batchSize?: number;
};

export type RedisMaxLength = {
  count: number;
  /** Redis may keep some more entries, which costs it less. Default true. */
  approximate?: boolean;
};

const kinds = { retry, reject, pause };

/** Maps Redis error codes to outcomes. A code that is not listed is retried as `redis_error`. */
const replies: Record<string, readonly [keyof typeof kinds, Failure['code']]> = {
  OOM: ['retry', 'destination_full'],
  MISCONF: ['retry', 'destination_read_only'],
  READONLY: ['retry', 'destination_read_only'],
  NOREPLICAS: ['retry', 'destination_unavailable'],
  LOADING: ['retry', 'destination_unavailable'],
  MASTERDOWN: ['retry', 'destination_unavailable'],
  CLUSTERDOWN: ['retry', 'destination_unavailable'],
  TRYAGAIN: ['retry', 'destination_unavailable'],
  BUSY: ['retry', 'destination_unavailable'],
  NOAUTH: ['pause', 'not_authenticated'],
  WRONGPASS: ['pause', 'not_authenticated'],
  NOPERM: ['pause', 'not_authorized'],
  DENIED: ['pause', 'not_authorized'],
  MOVED: ['pause', 'wrong_server'],
  ASK: ['pause', 'wrong_server'],
  WRONGTYPE: ['reject', 'not_a_stream'],
};

export function redis(options: RedisOptions): BatchDestination {
  const checked = checkOptions('redis', options, {
    ...settingKinds,
    url: redisUrl,
    stream: template('{topic}'),
    maxLength: optional(redisMaxLength),
    createStream: flag(true),
    maxMessageBytes: integer({ min: 1, max: 2 ** 32, default: 512 * 1024 * 1024 }),
    batchSize: integer({ min: 1, max: 10_000, default: 100 }),
  });
  const { url, stream, maxLength, createStream, maxMessageBytes, batchSize, ...settings } = checked;
  const connection = new RedisConnection(url, Math.min(settings.timeoutMs, 5000));
  const modifiers = [...(createStream ? [] : ['NOMKSTREAM']), ...trimming(maxLength)];

  const commandOf = (message: ClaimedMessage): string[] | Outcome => {
    const key = stream(message);
    if (key === null)
      return reject({ code: 'name_incomplete', message: 'it lacks a field of the stream’s name' });
    const { id, topic, payloadText } = message;
    const headers = JSON.stringify(messageHeaders(message));
    const bytes = Math.max(Buffer.byteLength(payloadText), Buffer.byteLength(headers));
    if (bytes > maxMessageBytes)
      return reject({
        code: 'message_too_large',
        message: `it has ${bytes} bytes, the limit is ${maxMessageBytes}`,
      });
    const fields = ['id', id, 'topic', topic, 'payload', payloadText, 'headers', headers];
    return ['XADD', key, ...modifiers, '*', ...fields];
  };

  return {
    kind: 'redis',
    settings,
    definition: definitionOf(options, checked, ['batchSize']),
    batchSize,
    open: () => connection.load(),
    async deliverBatch(messages, { signal }) {
      const commands = messages.map(commandOf);
      const sendable = commands.filter(Array.isArray);
      const answers = sendable.length === 0 ? [] : await connection.ask(sendable, signal);
      return commands.map((command) => {
        if (!Array.isArray(command)) return command;
        return unlessOthersMay(outcomeOf(answers.shift()), stream);
      });
    },
    async health({ signal }) {
      const [answer] = await connection.ask([['PING']], signal);
      // a user who may only XADD has reached the server all the same
      if (typeof answer === 'string' || answer?.code === 'NOPERM') return { ok: true };
      return { ok: false, problem: answer?.message ?? 'Redis gave no answer' };
    },
    close: () => connection.close(),
  };
}

function outcomeOf(answer: string | null | RedisFailure | undefined): Outcome {
  if (typeof answer === 'string') return delivered(answer);
  // XADD with NOMKSTREAM answers null if the stream does not exist
  if (answer === null)
    return retry({ code: 'stream_missing', message: 'the stream does not exist' });
  if (answer?.code === undefined) {
    const { cause, message = 'no answer' } = answer ?? {};
    return retry({ code: 'connection_failed', ...(cause && { remoteCode: cause }), message });
  }
  const [kind, code] = replies[answer.code] ?? (['retry', 'redis_error'] as const);
  return kinds[kind]({ code, remoteCode: answer.code, message: answer.message });
}

function trimming(maxLength: Required<RedisMaxLength> | undefined): string[] {
  if (maxLength === undefined) return [];
  return ['MAXLEN', maxLength.approximate ? '~' : '=', String(maxLength.count)];
}

function redisMaxLength(name: string, value: unknown): Required<RedisMaxLength> {
  if (typeof value !== 'object' || value === null) refuse(name, value, 'give { count: 100_000 }');
  return checkOptions(name, value, {
    count: integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    approximate: flag(true),
  });
}

/** An invalid value is not shown: it may contain a password. */
function redisUrl(name: string, value: unknown): RedisAddress {
  const remedy = 'give redis://[user:password@]host[:port][/database], or rediss:// for TLS';
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url === null || !/^rediss?:$/.test(url.protocol) || url.hostname === '')
    return refuse(name, value === undefined ? value : '…', remedy);
  const database = /^\/?(\d{0,5})$/.exec(url.pathname)?.[1];
  if (database === undefined || url.search !== '' || url.hash !== '')
    return refuse(name, `${url.protocol}//…@${url.host}…`, remedy);
  try {
    return {
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: Number(url.port) || 6379,
      tls: url.protocol === 'rediss:',
      username: decodeURIComponent(url.username),
      password: decodeURIComponent(url.password),
      database: Number(database),
    };
  } catch {
    return refuse(name, '…', 'write % in a name or password as %25');
  }
}
