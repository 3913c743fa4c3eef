// Message, as a producer writes it, and its rules. sql/functions/core/enqueue.sql has the same rules for producers
// that use SQL. They are checked here first, so a refusal leaves the caller's transaction usable.

import { MessageRefusedError, shown } from './errors.js';
import { serializeJson } from './json.js';
import { checkJsonText, measured } from './json-text.js';
import { timeOf } from './time.js';

export type Message = {
  /** What happened, for example `user.registered`. */
  topic: string;
  /** Anything that JSON can carry. */
  payload?: unknown;
  /** The payload as JSON text instead of `payload`. It is sent unchanged, so numbers beyond double precision survive. */
  payloadText?: string;
  /** A label that separates kinds of messages which share a schema. Default: `default`. */
  namespace?: string;
  tenantId?: string;
  /** The ordering key: each destination gets the messages of a key one at a time, in commit order. */
  key?: string;
  /** At most one message is written per namespace, tenant, topic and dedupe key. With a tenant, it must begin with `tenantId/`. */
  dedupeKey?: string;
  aggregateType?: string;
  aggregateId?: string;
  headers?: Record<string, string>;
  /** Earliest delivery: this many milliseconds from now. */
  delayMs?: number;
  /** Earliest delivery: at this time. A time in the past is kept: the oldest due message without a key is sent first. */
  availableAt?: Date | string;
};

export type Enqueued = {
  id: string;
  /** The number of the message within its key, as text because JSON would round it; null without a key. */
  sequence: string | null;
  /** True if a message with this dedupe key exists already; `id` is then the id of that message. */
  duplicate: boolean;
};

/** The limits of this producer; the schema has limits too, which its owner sets (`message_limits`). */
export type MessageLimits = { maxPayloadBytes: number; maxHeaderBytes: number };

export const defaultLimits: MessageLimits = { maxPayloadBytes: 1_048_576, maxHeaderBytes: 65_536 };
/** The upper bounds of `message_limits`: nothing larger is stored. */
export const largestLimits: MessageLimits = {
  maxPayloadBytes: 67_108_864,
  maxHeaderBytes: 1_048_576,
};
/** The size of payload and headers above which a message is not read. The same as `readable_bytes` in SQL. */
export const readableBytes = largestLimits.maxPayloadBytes + largestLimits.maxHeaderBytes;
const maxHeaders = 100;
const tenYearsMs = 315_360_000_000;

export const namePattern = /^[A-Za-z0-9_-]+([.:/][A-Za-z0-9_-]+)*$/;

const knownFields = new Set([
  'topic',
  'payload',
  'payloadText',
  'namespace',
  'tenantId',
  'key',
  'dedupeKey',
  'aggregateType',
  'aggregateId',
  'headers',
  'delayMs',
  'availableAt',
]);

/** Checks a message and returns the JSON object that the database function takes. */
export function serializeMessage(message: Message, limits: MessageLimits): string {
  if (typeof message !== 'object' || message === null) {
    throw new MessageRefusedError(
      'message',
      `${shown(message)} is not an object: give { topic, payload }`,
    );
  }
  // own fields only, as everywhere in JSON: what a class or a polluted prototype adds is not part of the message
  const own: Message = Object.assign(Object.create(null) as Message, message);
  for (const field of Object.keys(own)) {
    if (!knownFields.has(field)) {
      throw new MessageRefusedError(
        field,
        `is not a field of a message: use ${[...knownFields].join(', ')}`,
      );
    }
  }
  checkName('topic', own.topic, true);
  checkName('namespace', own.namespace, false);
  checkText('tenantId', own.tenantId, 255);
  checkText('key', own.key, 512);
  checkText('dedupeKey', own.dedupeKey, 1024);
  checkTenantPrefix(own);
  checkText('aggregateType', own.aggregateType, 255);
  checkText('aggregateId', own.aggregateId, 255);
  if ((own.aggregateType === undefined) !== (own.aggregateId === undefined)) {
    throw new MessageRefusedError(
      'aggregateType',
      'and aggregateId belong together: give both or neither',
    );
  }
  checkHeaders(own.headers, limits.maxHeaderBytes);
  const availableAt = checkTimes(own);
  const text = payloadText(own, limits.maxPayloadBytes);
  // the fields one by one: copying an object without some of its fields takes longer than writing it as JSON
  const rest = JSON.stringify({
    topic: own.topic,
    namespace: own.namespace,
    tenantId: own.tenantId,
    key: own.key,
    dedupeKey: own.dedupeKey,
    aggregateType: own.aggregateType,
    aggregateId: own.aggregateId,
    headers: own.headers,
    delayMs: own.delayMs,
    availableAt,
  });
  return `${rest.slice(0, -1)},"payload":${text}}`;
}

function payloadText({ payload, payloadText: given }: Message, maxPayloadBytes: number): string {
  if (given !== undefined && payload !== undefined) {
    throw new MessageRefusedError('payloadText', 'and payload exclude each other: give one');
  }
  const { text, bytes } =
    given === undefined
      ? measured('payload', serializeJson('payload', payload ?? null), maxPayloadBytes)
      : checkJsonText('payloadText', given);
  if (bytes > maxPayloadBytes) {
    throw new MessageRefusedError(
      'payload',
      `has ${bytes} bytes, the limit is ${maxPayloadBytes}: store it elsewhere and send its address, or raise maxPayloadBytes of the outbox`,
    );
  }
  return text;
}

function checkName(field: string, value: unknown, required: boolean): void {
  if (value === undefined && !required) return;
  if (typeof value !== 'string' || value === '') {
    throw new MessageRefusedError(
      field,
      value === '' || value === undefined
        ? required
          ? 'is empty: name what happened, for example user.registered'
          : 'is empty: leave it out for the default one'
        : `${shown(value)} is not text: give a string`,
    );
  }
  if (!namePattern.test(value) || Buffer.byteLength(value) > 255) {
    throw new MessageRefusedError(
      field,
      `${shown(value)} is malformed: use words of letters, digits, _ and -, joined by . : or /, at most 255 bytes`,
    );
  }
}

export function checkText(field: string, value: unknown, maxBytes: number): void {
  if (value === undefined) return;
  if (typeof value !== 'string')
    throw new MessageRefusedError(field, `${shown(value)} is not text: give a string`);
  const bytes = Buffer.byteLength(value);
  if (bytes === 0 || bytes > maxBytes) {
    throw new MessageRefusedError(
      field,
      `${shown(value)} must have 1 to ${maxBytes} bytes, it has ${bytes}`,
    );
  }
  serializeJson(field, value);
}

function checkTenantPrefix({ tenantId, dedupeKey }: Message): void {
  if (tenantId === undefined || dedupeKey === undefined) return;
  if (!dedupeKey.startsWith(`${tenantId}/`)) {
    throw new MessageRefusedError(
      'dedupeKey',
      `${shown(dedupeKey)} must begin with the tenantId and a slash: ${shown(`${tenantId}/…`)}`,
    );
  }
}

function checkHeaders(headers: unknown, maxHeaderBytes: number): void {
  if (headers === undefined) return;
  // the entries of a list, a Map or a Headers object are not properties, and would be lost
  if (typeof headers !== 'object' || headers === null || Symbol.iterator in headers) {
    throw new MessageRefusedError(
      'headers',
      `${shown(headers)} must be an object whose values are strings`,
    );
  }
  const entries = Object.entries(headers);
  if (entries.length > maxHeaders) {
    throw new MessageRefusedError(
      'headers',
      `has more than ${maxHeaders} entries: put them into the payload`,
    );
  }
  // PostgreSQL writes a space after each colon and comma
  let bytes = Math.max(2 * entries.length, 2);
  for (const [name, value] of entries) {
    if (typeof value !== 'string') {
      throw new MessageRefusedError(`headers.${name}`, `${shown(value)} must be a string`);
    }
    bytes += Buffer.byteLength(serializeJson(`headers.${name}`, name)) + 2;
    bytes += Buffer.byteLength(serializeJson(`headers.${name}`, value));
  }
  if (bytes > maxHeaderBytes) {
    throw new MessageRefusedError(
      'headers',
      `has ${bytes} bytes, the limit is ${maxHeaderBytes}: send less, or raise maxHeaderBytes of the outbox`,
    );
  }
}

function checkTimes({ delayMs, availableAt }: Message): string | undefined {
  if (delayMs !== undefined && availableAt !== undefined) {
    throw new MessageRefusedError('delayMs', 'and availableAt exclude each other: give one');
  }
  if (
    delayMs !== undefined &&
    !(Number.isFinite(delayMs) && delayMs >= 0 && delayMs <= tenYearsMs)
  ) {
    throw new MessageRefusedError(
      'delayMs',
      `${shown(delayMs)} must be a number between 0 and ten years`,
    );
  }
  if (availableAt === undefined) return undefined;
  const time = availableAt instanceof Date ? availableAt : timeOf(availableAt);
  if (time === null || Number.isNaN(time.getTime())) {
    throw new MessageRefusedError(
      'availableAt',
      `${availableAt instanceof Date ? 'Invalid Date' : shown(availableAt)} is not a date: give a Date or an ISO 8601 text`,
    );
  }
  const year = time.getUTCFullYear();
  if (year < 1 || year > 9999) {
    throw new MessageRefusedError('availableAt', `is in the year ${year}: give one from 1 to 9999`);
  }
  return time.toISOString();
}
