// CloudEvents 1.0: the attributes of a message as text, for bindings with headers (binary) and for the JSON form
// (structured). The payload keeps its text.

import type { ClaimedMessage } from './claimed-message.js';
import { timeOf as parsedTime } from './time.js';

/** The specification requires a source: the application, as a URI reference. */
export function defaultSource(namespace: string): string {
  return `/waybill/${encodeURIComponent(namespace)}`;
}

/** Attributes by name, without the data. `sequence` is compared as text, hence the zeros. */
export function cloudEventAttributes(
  message: ClaimedMessage,
  source: string = defaultSource(message.namespace),
): Record<string, string> {
  const { aggregateType, aggregateId, sequence, key, tenantId } = message;
  return {
    specversion: '1.0',
    id: message.id,
    source,
    type: message.topic,
    time: timeOf(message),
    datacontenttype: 'application/json',
    ...(aggregateType !== null && { subject: `${aggregateType}/${aggregateId ?? ''}` }),
    ...(key !== null && { partitionkey: key }),
    ...(sequence !== null && { sequence: sequence.padStart(19, '0') }),
    ...(tenantId !== null && { tenantid: tenantId }),
    ...traceOf(message),
  };
}

/** The structured form: one JSON object that contains the payload unchanged. */
export function cloudEventText(message: ClaimedMessage, source?: string): string {
  const attributes = JSON.stringify(cloudEventAttributes(message, source));
  return `${attributes.slice(0, -1)},"data":${message.payloadText}}`;
}

/**
 * When it happened: the header `time`, for a message that was moved from elsewhere or is reported late, or else the time
 * of the enqueue.
 */
export function timeOf(message: ClaimedMessage): string {
  const given = message.headersText === null ? undefined : message.headers['time'];
  return ((given === undefined ? null : givenTime(given)) ?? message.createdAt).toISOString();
}

/**
 * The time of a header; null if it is none, as the header may mean something else. Without an offset it is in UTC, so
 * every relay sends the same body. A timestamptz of PostgreSQL as text has an offset such as +00.
 */
function givenTime(text: string): Date | null {
  const whole = text
    .replace(/([T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?[+-]\d\d)$/i, '$1:00')
    .replace(/([T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)$/i, '$1Z');
  // with five digits or more, the year is no RFC 3339
  return /^\d{4}-/.test(whole) ? parsedTime(whole) : null;
}

/** The W3C trace context that was stored when the message was enqueued. */
export function traceOf(message: ClaimedMessage): Record<string, string> {
  if (message.headersText === null) return {};
  const { traceparent, tracestate } = message.headers;
  return {
    ...(traceparent !== undefined && { traceparent }),
    ...(tracestate !== undefined && traceparent !== undefined && { tracestate }),
  };
}
