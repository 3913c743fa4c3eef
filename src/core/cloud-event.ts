// CloudEvents 1.0: the attributes of a message as text, for bindings with headers (binary) and for the JSON form
// (structured). The payload keeps its text.

import type { ClaimedMessage } from './claimed-message.js';

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
  const time = new Date(given ?? message.createdAt);
  return (Number.isNaN(time.getTime()) ? message.createdAt : time).toISOString();
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
