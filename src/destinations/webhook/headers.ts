// Headers that a user adds to every request. They are checked when the webhook is made: headers that would break a
// request or conflict with Waybill's own are refused. No error shows a value.

import { ConfigurationError } from '../../core/errors.js';
import { refuse } from '../../core/options.js';

/** Headers that Waybill or HTTP sets: a second one could contradict it. */
const reserved =
  /^(host|connection|keep-alive|upgrade|expect|te|trailer|transfer-encoding|proxy-.*|content-.*|webhook-.*|ce-.*|traceparent|tracestate)$/i;
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Characters that HTTP can carry: no control characters except the tab, nothing beyond Latin-1. */
const carried = /^[\t\u0020-\u007e\u0080-\u00ff]*$/;

const mostHeaders = 20;
/** All names and values together. Many receivers accept no more than 8 KiB of headers. */
const mostHeaderBytes = 8192;

/** Option kind: headers. */
export function webhookHeaders(name: string, value: unknown): Record<string, string> {
  if (value === undefined) return {};
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    refuse(name, '…', 'give an object of header names and texts');
  }
  const entries = Object.entries(value);
  if (entries.length > mostHeaders)
    throw new ConfigurationError(
      `${name} has ${entries.length} headers: give at most ${mostHeaders}`,
    );
  const seen = new Set<string>();
  let bytes = 0;
  for (const [header, text] of entries) {
    const field = `${name}.${header}`;
    if (!token.test(header) || reserved.test(header))
      refuse(field, '…', 'use another header name: this one is reserved or malformed');
    if (seen.has(header.toLowerCase()))
      refuse(field, '…', 'give each header once: upper and lower case make no difference');
    if (typeof text !== 'string' || !carried.test(text))
      refuse(field, '…', 'give text without line breaks, in characters of Latin-1');
    seen.add(header.toLowerCase());
    // Latin-1: one byte per character
    bytes += header.length + text.length;
  }
  if (bytes > mostHeaderBytes)
    throw new ConfigurationError(
      `${name} has ${bytes} bytes of names and values: give at most ${mostHeaderBytes}`,
    );
  return { ...value };
}
