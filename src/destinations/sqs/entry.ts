// Renders a message as an entry of an SQS request: the payload is the body, metadata are attributes. SQS allows ten
// attributes and not every character, so other characters are written in an equivalent form.

import { createHash } from 'node:crypto';

import type { SendMessageBatchRequestEntry } from '@aws-sdk/client-sqs';

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { traceOf } from '../../core/cloud-event.js';
import { messageHeaders } from '../../core/message-headers.js';
import type { Template } from '../template.js';

/** Null if the message lacks a field of the group's name. */
export function entryOf(
  message: ClaimedMessage,
  index: number,
  fifo: boolean,
  group: Template | undefined,
): SendMessageBatchRequestEntry | null {
  const groupId = group === undefined ? groupOf(message) : group(message);
  if (fifo && groupId === null) return null;
  return {
    Id: String(index),
    MessageBody: allowedJson(message.payloadText),
    MessageAttributes: attributesOf(message),
    ...(fifo && groupId !== null && { MessageGroupId: groupId }),
    ...(fifo && groupId !== null && { MessageDeduplicationId: dedupeId(message, groupId) }),
  };
}

/** The size as SQS counts it: the body, and the name, type and value of each attribute. */
export function entryBytes({
  MessageBody,
  MessageAttributes,
}: SendMessageBatchRequestEntry): number {
  let bytes = Buffer.byteLength(MessageBody ?? '');
  for (const [name, { DataType, StringValue }] of Object.entries(MessageAttributes ?? {}))
    bytes += Buffer.byteLength(`${name}${DataType}${StringValue}`);
  return bytes;
}

/** The trace separately, for tools that look for it; everything else as one JSON object. */
function attributesOf(
  message: ClaimedMessage,
): NonNullable<SendMessageBatchRequestEntry['MessageAttributes']> {
  const trace = Object.entries(traceOf(message)).filter(([, value]) => /^[ -~]+$/.test(value));
  const texts: Record<string, string> = {
    ...Object.fromEntries(trace),
    'waybill-id': message.id,
    'waybill-topic': message.topic,
    'waybill-headers': allowedJson(JSON.stringify(messageHeaders(message))),
  };
  return Object.fromEntries(
    Object.entries(texts).map(([name, StringValue]) => [name, { DataType: 'String', StringValue }]),
  );
}

/** A queue remembers ids but not groups: another destination may send the same message to another group. */
function dedupeId({ id }: ClaimedMessage, groupId: string): string {
  return `${id}-${createHash('sha256').update(groupId).digest('hex').slice(0, 32)}`;
}

/** One group per key. A key with characters that SQS does not accept is replaced by its hash. */
function groupOf({ key, id }: ClaimedMessage): string {
  if (key === null) return id;
  return /^[!-~]{1,128}$/.test(key) ? key : createHash('sha256').update(key).digest('hex');
}

/** Escapes characters that SQS does not accept; the JSON stays equivalent. */
function allowedJson(text: string): string {
  return text.replace(/[\uFFFE\uFFFF]/g, (character) =>
    character === '\uFFFE' ? '\\ufffe' : '\\uffff',
  );
}
