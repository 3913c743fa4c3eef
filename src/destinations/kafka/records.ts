// Renders a message as a Kafka record: the payload's text as the value, the key as the key, metadata as headers. Or as
// a CloudEvent in the binary mode of the Kafka binding (`ce_…` headers).

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { cloudEventAttributes } from '../../core/cloud-event.js';
import { messageHeaders } from '../../core/message-headers.js';

export type Format = 'plain' | 'cloudevents';

export type RecordParts = {
  readonly key?: Buffer;
  readonly value: Buffer;
  readonly headers: Map<Buffer, Buffer>;
  /** Its approximate size in a batch. */
  readonly bytes: number;
};

/** The most that the framing of a record, and of each header, takes in a batch. */
const recordOverheadBytes = 32;
const headerOverheadBytes = 10;

export function recordOf(message: ClaimedMessage, format: Format, source?: string): RecordParts {
  const value = Buffer.from(message.payloadText);
  const key = message.key === null ? undefined : Buffer.from(message.key);
  const named = format === 'plain' ? messageHeaders(message) : eventHeaders(message, source);
  const headers = new Map<Buffer, Buffer>();
  let bytes = recordOverheadBytes + value.length + (key?.length ?? 0);
  for (const [name, text] of Object.entries(named)) {
    const header = nameBytes(name);
    const content = Buffer.from(text);
    headers.set(header, content);
    bytes += headerOverheadBytes + header.length + content.length;
  }
  return { ...(key !== undefined && { key }), value, headers, bytes };
}

const knownNames = new Map<string, Buffer>();
const mostNames = 1000;

/** Cached, because every message has the same few names. */
function nameBytes(name: string): Buffer {
  const known = knownNames.get(name);
  if (known !== undefined) return known;
  const bytes = Buffer.from(name);
  if (knownNames.size < mostNames) knownNames.set(name, bytes);
  return bytes;
}

function eventHeaders(message: ClaimedMessage, source?: string): Record<string, string> {
  const { datacontenttype, ...attributes } = cloudEventAttributes(message, source);
  return {
    // a header with an attribute's prefix would become an attribute
    ...Object.fromEntries(Object.entries(message.headers).filter(([name]) => !/^ce_/i.test(name))),
    ...Object.fromEntries(Object.entries(attributes).map(([name, text]) => [`ce_${name}`, text])),
    'content-type': datacontenttype ?? 'application/json',
  };
}
