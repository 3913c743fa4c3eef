// Received message: identifies a message for the inbox, with its place within its key. sql/functions/inbox/inbox.sql
// has the same rules for consumers that use SQL. They are checked here first, so a refusal leaves the caller's
// transaction usable.

import { MessageRefusedError, shown } from './errors.js';
import { checkText } from './message.js';
import { isUuid } from './uuid.js';

type Sequence = bigint | number | string;

/** The place of a message within its key (scoped to namespace and tenant). Without a sequence, no order is checked. */
export type StreamPlace = {
  key?: string | null | undefined;
  /** The number of the message within its key. */
  sequence?: Sequence | null | undefined;
  /** The sequence of the previous message at the same destination; 0 or null: none, or unknown. */
  previousSequence?: Sequence | null | undefined;
  namespace?: string | null | undefined;
  tenantId?: string | null | undefined;
};

/** A relay's message can be passed unchanged. It is identified by its id or, without one, by its dedupe key. */
export type ReceivedMessage = StreamPlace &
  ({ id: string } | { id?: undefined; dedupeKey: string });

export type ConsumerOptions = {
  /** The name of the consumer: each consumer processes each message once. */
  consumer: string;
  /** What to do with a message that is out of order: process and report it, or refuse it. Default: report. */
  onGap?: 'report' | 'throw';
};

/** One message and its consumer: the message as it was received, or its fields. */
export type Received = ConsumerOptions &
  (
    | { message: ReceivedMessage }
    | (StreamPlace & { messageId: string })
    | (StreamPlace & { dedupeKey: string })
  );

const consumerFields = ['consumer', 'onGap'];
const placeFields = ['key', 'sequence', 'previousSequence', 'namespace', 'tenantId'];
const maxSequence = 2n ** 63n - 1n;

/** Checks the consumer options and adds the defaults. */
export function checkConsumer(options: ConsumerOptions, otherFields: readonly string[] = []) {
  checkObject('consumer', options, "{ consumer: 'billing' }");
  refuseUnknown(options, [...consumerFields, ...otherFields]);
  const { consumer, onGap = 'report' } = options;
  if (consumer === undefined)
    throw new MessageRefusedError('consumer', 'is missing: name who processes, such as billing');
  checkText('consumer', consumer, 255);
  if (onGap !== 'report' && onGap !== 'throw')
    throw new MessageRefusedError('onGap', `${shown(onGap)} is unknown: give report or throw`);
  return { consumer, onGap };
}

/** Checks one message and its consumer. */
export function checkReceived(received: Received) {
  const given =
    'message' in Object(received) ? ['message'] : ['messageId', 'dedupeKey', ...placeFields];
  const checked = checkConsumer(received, given);
  if ('message' in received) return { ...checked, serialized: serializeReceived(received.message) };
  const { messageId, dedupeKey } = received as { messageId?: string; dedupeKey?: string };
  return { ...checked, serialized: serialize(messageId, dedupeKey, received) };
}

export function serializeList(messages: readonly ReceivedMessage[]): string[] {
  if (!Array.isArray(messages))
    throw new MessageRefusedError(
      'messages',
      `${shown(messages)} is not a list: give the messages as they were received`,
    );
  return (messages as readonly ReceivedMessage[]).map(serializeReceived);
}

/** Checks a received message and returns the JSON object that the database function takes. */
function serializeReceived(message: ReceivedMessage): string {
  checkObject('message', message, 'it as it was received, with its id');
  const { id, dedupeKey } = message as { id?: string; dedupeKey?: string };
  return serialize(id, id === undefined ? dedupeKey : undefined, message);
}

function serialize(
  messageId: string | undefined,
  dedupeKey: string | undefined,
  place: StreamPlace,
): string {
  if (messageId !== undefined && dedupeKey !== undefined)
    throw new MessageRefusedError('messageId', 'and dedupeKey exclude each other: give one');
  if (dedupeKey === undefined) checkId(messageId);
  checkText('dedupeKey', dedupeKey, 1024);
  const namespace = place.namespace ?? undefined;
  const tenantId = place.tenantId ?? undefined;
  const key = place.key ?? undefined;
  checkText('namespace', namespace, 255);
  checkText('tenantId', tenantId, 255);
  checkText('key', key, 512);
  return JSON.stringify({ messageId, dedupeKey, namespace, tenantId, key, ...checkOrder(place) });
}

function checkId(id: unknown): void {
  if (id === undefined)
    throw new MessageRefusedError(
      'messageId',
      'is missing: give it, or a dedupeKey that is the same for every delivery of the message',
    );
  if (!isUuid(id))
    throw new MessageRefusedError(
      'messageId',
      `${shown(id)} is not a UUID: give an id of another kind as dedupeKey`,
    );
}

/** Numbers as text, because JSON would round large ones. */
function checkOrder(place: StreamPlace): { sequence?: string; previousSequence?: string } {
  const sequence = wholeNumber('sequence', place.sequence, 1n);
  const previous = wholeNumber('previousSequence', place.previousSequence, 0n);
  if (sequence === undefined) {
    if (previous !== undefined)
      throw new MessageRefusedError('previousSequence', `${previous} needs a sequence`);
    return {};
  }
  if (place.key === undefined || place.key === null)
    throw new MessageRefusedError(
      'sequence',
      `${sequence} needs a key: it counts the messages of one key`,
    );
  if (previous === undefined) return { sequence: String(sequence) };
  if (previous >= sequence)
    throw new MessageRefusedError(
      'previousSequence',
      `${previous} must be from 0 to below the sequence, which is ${sequence}`,
    );
  return { sequence: String(sequence), previousSequence: String(previous) };
}

function wholeNumber(field: string, value: unknown, min: bigint): bigint | undefined {
  if (value === undefined || value === null) return undefined;
  const readable =
    typeof value === 'bigint' ||
    Number.isSafeInteger(value) ||
    (typeof value === 'string' && /^\d+$/.test(value));
  const number = readable ? BigInt(value as Sequence) : -1n;
  if (number < min || number > maxSequence)
    throw new MessageRefusedError(
      field,
      `${shown(value)} must be a whole number from ${min} to ${maxSequence}`,
    );
  return number;
}

function checkObject(field: string, value: unknown, wanted: string): void {
  if (typeof value !== 'object' || value === null)
    throw new MessageRefusedError(field, `${shown(value)} is not an object: give ${wanted}`);
}

function refuseUnknown(given: object, known: readonly string[]): void {
  const unknown = Object.keys(given).find((field) => !known.includes(field));
  if (unknown !== undefined)
    throw new MessageRefusedError(unknown, `is not known here: use ${known.join(', ')}`);
}
