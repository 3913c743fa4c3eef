// Headers of a message on NATS: those that every broker gets, or the attributes of a CloudEvent in binary mode. Names
// that begin with `Nats-` are left out: JetStream takes them as commands, such as to empty the stream.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { cloudEventAttributes } from '../../core/cloud-event.js';
import { messageHeaders } from '../../core/message-headers.js';

/** Returns the headers, or the problem with them. */
export function natsHeaders(
  message: ClaimedMessage,
  format: 'waybill' | 'cloudevents',
  source: string | undefined,
): [name: string, value: string][] | string {
  const all =
    format === 'cloudevents'
      ? { ...applicationHeaders(message), ...cloudEventHeaders(message, source) }
      : messageHeaders(message);
  const headers = Object.entries(all).filter(([name]) => !/^nats-/i.test(name));
  for (const [name, value] of headers) {
    if (!/^[\u0021-\u0039\u003b-\u007e]+$/.test(name) || /[\r\n]/.test(value))
      return `NATS cannot carry the header ${JSON.stringify(name)}`;
  }
  return headers;
}

/** Leaves out headers that look like attributes, in upper or lower case. */
function applicationHeaders({ headers }: ClaimedMessage): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([name]) => !/^ce-/i.test(name)));
}

function cloudEventHeaders(
  message: ClaimedMessage,
  source: string | undefined,
): Record<string, string> {
  const attributes = Object.entries(cloudEventAttributes(message, source));
  return Object.fromEntries(
    attributes.map(([name, value]) => [`ce-${name}`, percentEncoded(value)]),
  );
}

/** As the binding requires: encodes everything but printable ASCII, and `"` and `%`. */
function percentEncoded(value: string): string {
  return value.toWellFormed().replaceAll(/[^\u0021-\u007e]|["%]/gu, encodeURIComponent);
}
