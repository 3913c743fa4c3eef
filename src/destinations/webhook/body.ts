// Body of a webhook request: the payload as it is, in an envelope, or as a CloudEvent. The payload is never parsed: it
// goes from the database to the wire as text, so that no number loses a digit. Values in headers are encoded, so that a
// message cannot break a request or add a header to it.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { cloudEventAttributes, cloudEventText, timeOf, traceOf } from '../../core/cloud-event.js';

export type BodyShape = 'payload' | 'envelope' | 'cloudevents' | 'cloudevents-structured';

export type Content = {
  readonly body: string;
  readonly contentType: string;
  /** Names and values in turn, without the content type. */
  readonly headers: readonly string[];
};

type ContentOf = (message: ClaimedMessage, source: string | undefined) => Content;

const json = 'application/json';

export const contentOf: Record<BodyShape, ContentOf> = {
  payload: (message) => ({ body: message.payloadText, contentType: json, headers: [] }),

  envelope: (message) => ({
    body: `{"event":${JSON.stringify(message.topic)},"data":${message.payloadText},"timestamp":"${timeOf(message)}"}`,
    contentType: json,
    headers: [],
  }),

  cloudevents: (message, source) => {
    const { datacontenttype, ...attributes } = cloudEventAttributes(message, source);
    return {
      body: message.payloadText,
      contentType: datacontenttype ?? json,
      headers: Object.entries(attributes).flatMap(([name, value]) => [
        `ce-${name}`,
        headerValue(value),
      ]),
    };
  },

  'cloudevents-structured': (message, source) => ({
    body: cloudEventText(message, source),
    contentType: 'application/cloudevents+json; charset=utf-8',
    headers: [],
  }),
};

const unsafe = /[^\u0021\u0023\u0024\u0026-\u007e]+/g;

/**
 * As the HTTP binding of CloudEvents requires: space, quote, percent and everything outside printable ASCII is
 * percent-encoded as UTF-8.
 */
export function headerValue(text: string): string {
  return text.replace(unsafe, (part) => {
    let encoded = '';
    for (const byte of Buffer.from(part))
      encoded += `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
    return encoded;
  });
}

const traceparent = /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}[\u0021-\u007e]*$/;
const tracestate = /^[\u0020-\u007e]{1,512}$/;

/** Passes on the trace that was stored with the message, if its headers are valid. */
export function traceHeaders(message: ClaimedMessage): readonly string[] {
  if (message.headersText === null) return [];
  const trace = traceOf(message);
  if (trace['traceparent'] === undefined || !traceparent.test(trace['traceparent'])) return [];
  const state = trace['tracestate'];
  return state !== undefined && tracestate.test(state)
    ? ['traceparent', trace['traceparent'], 'tracestate', state]
    : ['traceparent', trace['traceparent']];
}
