// The request of a webhook for display. Attempts do not store it: it is made again by the code that sends it, from the
// message and from the webhook as it is now. Signatures, logins and the values of added headers are hidden.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import type { SentRequest } from '../sent-request.js';
import { hidden } from '../shown-address.js';
import { contentOf, traceHeaders } from './body.js';
import type { BodyShape } from './body.js';
import { fixedHeaders, standardHeaders } from './request-headers.js';

const shownBody = 100_000;

export type RequestParts = {
  readonly method: string;
  /** Without secrets. */
  readonly url: string;
  readonly shape: BodyShape;
  readonly source: string | undefined;
  /** How many secrets sign the request. */
  readonly secrets: number;
  /** The names of the headers that are added; null if they are not known. */
  readonly added: readonly string[] | null;
};

/** `sentAt`: when the try began, for the timestamp. `bodyBytes` is 0 for a message that is too large to read. */
export function requestOf(
  message: ClaimedMessage,
  sentAt: Date | null,
  { method, url, shape, source, secrets, added }: RequestParts,
): SentRequest {
  const content = contentOf[shape](message, source);
  const secret = { text: '', signatureOf: () => `v1,${hidden}` };
  const headers = standardHeaders(
    message,
    Array.from({ length: secrets }, () => secret),
    content,
    sentAt?.getTime(),
  ).concat(
    content.headers,
    traceHeaders(message),
    fixedHeaders(Object.fromEntries((added ?? []).map((name) => [name, hidden]))),
  );
  return {
    method,
    url,
    headers: inPairs(headers),
    body: message.readable ? content.body.slice(0, shownBody) : null,
    bodyBytes: message.readable ? Buffer.byteLength(content.body) : 0,
    hasHiddenHeaders: added === null,
  };
}

function inPairs(flat: readonly string[]): { name: string; value: string }[] {
  return flat.flatMap((name, index) =>
    index % 2 === 0 ? [{ name, value: flat[index + 1] ?? '' }] : [],
  );
}
