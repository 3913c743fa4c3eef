// The headers that a user adds to every request, checked when the webhook is made: what would break a request,
// or stand in the way of a header that Waybill sends itself, is refused then. No error shows a value.

import { refuse } from '../../model/options.js';

/** What Waybill or HTTP itself says: a second one could contradict it. */
const reserved =
  /^(host|connection|keep-alive|upgrade|expect|te|trailer|transfer-encoding|proxy-.*|content-.*|webhook-.*|ce-.*|traceparent|tracestate)$/i;
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** What HTTP can carry: no control characters but the tab, nothing beyond Latin-1. */
const carried = /^[\t\u0020-\u007e\u0080-\u00ff]*$/;

/** A kind of option. */
export function webhookHeaders(name: string, value: unknown): Record<string, string> {
  if (value === undefined) return {};
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    refuse(name, '…', 'give an object of header names and texts');
  }
  const seen = new Set<string>();
  for (const [header, text] of Object.entries(value)) {
    const field = `${name}.${header}`;
    if (!token.test(header) || reserved.test(header))
      refuse(field, '…', 'use another header name: this one is reserved or malformed');
    if (seen.has(header.toLowerCase()))
      refuse(field, '…', 'give each header once: upper and lower case make no difference');
    if (typeof text !== 'string' || !carried.test(text))
      refuse(field, '…', 'give text without line breaks, in characters of Latin-1');
    seen.add(header.toLowerCase());
  }
  return { ...value };
}
