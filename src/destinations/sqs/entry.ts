// A message as an entry of a request to SQS: the payload is the body, attributes say what it is. SQS allows ten
// attributes, and not every character: what it would refuse is written in a way that means the same.

import { createHash } from 'node:crypto';

import type { SendMessageBatchRequestEntry } from '@aws-sdk/client-sqs';

import type { ClaimedMessage } from '../../model/claimed-message.js';
import { traceOf } from '../../model/cloud-event.js';
import { messageHeaders } from '../../model/message-headers.js';
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

/** As SQS counts it: the body, and the name, the type and the value of each attribute. */
export function entryBytes({
  MessageBody,
  MessageAttributes,
}: SendMessageBatchRequestEntry): number {
  let bytes = Buffer.byteLength(MessageBody ?? '');
  for (const [name, { DataType, StringValue }] of Object.entries(MessageAttributes ?? {}))
    bytes += Buffer.byteLength(`${name}${DataType}${StringValue}`);
  return bytes;
}

/** The trace by itself, for tools that look for it; everything together as one JSON object. */
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

/** A queue remembers ids and not groups: another destination may send the same message to another group. */
function dedupeId({ id }: ClaimedMessage, groupId: string): string {
  return `${id}-${createHash('sha256').update(groupId).digest('hex').slice(0, 32)}`;
}

/** One group for each key, whatever its characters: one that SQS does not take stands there as its hash. */
function groupOf({ key, id }: ClaimedMessage): string {
  if (key === null) return id;
  return /^[!-~]{1,128}$/.test(key) ? key : createHash('sha256').update(key).digest('hex');
}

/** JSON may hold characters that SQS refuses; escaped, they are the same JSON. */
function allowedJson(text: string): string {
  return text.replace(/[\uFFFE\uFFFF]/g, (character) =>
    character === '\uFFFE' ? '\\ufffe' : '\\uffff',
  );
}
