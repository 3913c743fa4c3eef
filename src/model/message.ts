// The message as a producer writes it, and the rules it must keep. The same rules stand in
// sql/functions/enqueue.sql for producers that speak SQL; here they are checked first, so that a refusal
// leaves the caller's transaction usable.

import { MessageRefusedError, shown } from '../errors.js';
import { serializeJson } from './json.js';
import { checkJsonText } from './json-text.js';
import type { JsonText } from './json-text.js';
import { timeOf } from './time.js';

export type Message = {
  /** What happened, for example `user.registered`. */
  topic: string;
  /** Anything that JSON can carry. */
  payload?: unknown;
  /** The payload as JSON text, sent as it is (numbers beyond double precision survive), instead of `payload`. */
  payloadText?: string;
  /** Keeps applications apart that share one outbox. Default: `default`. */
  namespace?: string;
  tenantId?: string;
  /** Messages of one key belong together in order. */
  key?: string;
  /** At most one message per namespace, topic and dedupe key. With a tenant it begins with `tenantId/`. */
  dedupeKey?: string;
  aggregateType?: string;
  aggregateId?: string;
  headers?: Record<string, string>;
  /** Deliver not before this many milliseconds from now. */
  delayMs?: number;
  /** Deliver not before this time. */
  availableAt?: Date | string;
};

export type Enqueued = {
  id: string;
  sequence: bigint | null;
  /** True if a message with this dedupe key exists already: `id` is that message's. */
  duplicate: boolean;
};

export const defaultMaxPayloadBytes = 1024 * 1024;
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

/** Checks a message and gives it as the JSON object that the database function takes. */
export function serializeMessage(message: Message, maxPayloadBytes: number): string {
  if (typeof message !== 'object' || message === null) {
    throw new MessageRefusedError(
      'message',
      `${shown(message)} is not an object: give { topic, payload }`,
    );
  }
  for (const field of Object.keys(message)) {
    if (!knownFields.has(field)) {
      throw new MessageRefusedError(
        field,
        `is not a field of a message: use ${[...knownFields].join(', ')}`,
      );
    }
  }
  checkName('topic', message.topic, true);
  checkName('namespace', message.namespace, false);
  checkText('tenantId', message.tenantId, 255);
  checkText('key', message.key, 512);
  checkText('dedupeKey', message.dedupeKey, 1024);
  checkTenantPrefix(message);
  checkText('aggregateType', message.aggregateType, 255);
  checkText('aggregateId', message.aggregateId, 255);
  if ((message.aggregateType === undefined) !== (message.aggregateId === undefined)) {
    throw new MessageRefusedError(
      'aggregateType',
      'and aggregateId belong together: give both or neither',
    );
  }
  checkHeaders(message.headers);
  const availableAt = checkTimes(message);
  const { text, bytes } = payloadText(message);
  if (bytes > maxPayloadBytes) {
    throw new MessageRefusedError(
      'payload',
      `has ${bytes} bytes, the limit is ${maxPayloadBytes}: store it elsewhere and send its address, or raise maxPayloadBytes`,
    );
  }
  const {
    payload: _payload,
    payloadText: _payloadText,
    availableAt: _availableAt,
    ...fields
  } = message;
  const rest = JSON.stringify({ ...fields, availableAt });
  return `${rest.slice(0, -1)},"payload":${text}}`;
}

function payloadText({ payload, payloadText: given }: Message): JsonText {
  if (given === undefined) {
    const text = serializeJson('payload', payload ?? null);
    return { text, bytes: Buffer.byteLength(text) };
  }
  if (payload !== undefined) {
    throw new MessageRefusedError('payloadText', 'and payload exclude each other: give one');
  }
  return checkJsonText('payloadText', given);
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

function checkHeaders(headers: unknown): void {
  if (headers === undefined) return;
  // a list, a Map, a Headers object: their entries are not properties, and would be lost
  if (typeof headers !== 'object' || headers === null || Symbol.iterator in headers) {
    throw new MessageRefusedError(
      'headers',
      `${shown(headers)} must be an object whose values are strings`,
    );
  }
  for (const [name, value] of Object.entries(headers)) {
    if (typeof value !== 'string') {
      throw new MessageRefusedError(`headers.${name}`, `${shown(value)} must be a string`);
    }
    serializeJson(`headers.${name}`, name);
    serializeJson(`headers.${name}`, value);
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
