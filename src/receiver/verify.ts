// Verification of a request by Standard Webhooks: the signature over the id, the timestamp and the bytes of the body, and
// the age of the request. Works with any sender of Standard Webhooks, not only Waybill.

import { Buffer } from 'node:buffer';

import { strictBase64 } from '../core/base64.js';
import { RequestRefusedError } from './errors.js';
import { signedBytes } from './keys.js';
import type { Key } from './keys.js';

/** The headers of Node, Express and Fastify, or of the Fetch API. */
export type RequestHeaders =
  | Readonly<Record<string, string | readonly string[] | undefined>>
  | { get(name: string): string | null };

/** A verified event. */
export type WebhookEvent<Payload = unknown> = {
  /** The same for every delivery of the event. */
  readonly id: string;
  /** When this request was sent, by the sender's clock. */
  readonly sentAt: Date;
  /** The header `webhook-topic` of Waybill. The signature does not cover it. */
  readonly topic: string | null;
  /** The body as text, as it was signed. */
  readonly body: string;
  /** The body, parsed as JSON. */
  readonly payload: Payload;
};

const mostSignatures = 20;
const longestId = 1024;

export function verifyRequest<Payload>(
  body: string | Uint8Array,
  headers: RequestHeaders,
  keys: readonly Key[],
  toleranceSeconds: number,
): WebhookEvent<Payload> {
  const id = required(headers, 'webhook-id');
  const timestamp = required(headers, 'webhook-timestamp');
  const signature = required(headers, 'webhook-signature');
  if (Buffer.byteLength(id) > longestId)
    throw new RequestRefusedError(400, `webhook-id has more than ${longestId} bytes`);
  // the parts of the signed text are joined by dots: with one in the id, two requests could have the same text
  if (id.includes('.')) throw new RequestRefusedError(400, 'webhook-id contains a dot');
  const sentAt = timeOf(timestamp, toleranceSeconds);
  const bytes = typeof body === 'string' ? Buffer.from(body) : body;
  const signatures = signaturesOf(signature);
  const signed = signedBytes(id, timestamp, bytes);
  if (!keys.some((key) => key.accepts(signed, signatures[key.version])))
    throw new RequestRefusedError(
      401,
      'no signature in webhook-signature fits: the sender has another secret, or the body was changed on the way',
    );
  const text = textOf(bytes);
  const topic = read(headers, 'webhook-topic');
  return {
    id,
    sentAt,
    topic: topic === null ? null : decoded(topic),
    body: text,
    payload: parsed(text) as Payload,
  };
}

function read(headers: RequestHeaders, name: string): string | null {
  if (typeof headers.get === 'function') return headers.get(name);
  const value = (headers as Readonly<Record<string, string | readonly string[] | undefined>>)[name];
  // Node and Fetch join a repeated header with a comma, so its signature does not fit; other servers may pass a list
  return typeof value === 'string' ? value : null;
}

function required(headers: RequestHeaders, name: string): string {
  const value = read(headers, name);
  if (value !== null && value !== '') return value;
  throw new RequestRefusedError(
    400,
    `the header ${name} is missing or empty, or was passed as a list`,
  );
}

function timeOf(timestamp: string, toleranceSeconds: number): Date {
  const seconds = /^\d{1,12}$/.test(timestamp) ? Number(timestamp) : Number.NaN;
  const ageSeconds = Date.now() / 1000 - seconds;
  if (Math.abs(ageSeconds) <= toleranceSeconds) return new Date(seconds * 1000);
  throw new RequestRefusedError(
    401,
    `webhook-timestamp is not within ${toleranceSeconds} seconds of this machine's clock`,
  );
}

/** By version; those of other versions, and those that are not base64, are ignored. */
function signaturesOf(header: string): Record<Key['version'], Buffer[]> {
  const entries = header.split(' ');
  if (entries.length > mostSignatures)
    throw new RequestRefusedError(
      400,
      `webhook-signature has more than ${mostSignatures} signatures`,
    );
  const found: Record<Key['version'], Buffer[]> = { v1: [], v1a: [] };
  for (const entry of entries) {
    const [version, text = ''] = entry.split(',', 2);
    const bytes = strictBase64(text);
    if (bytes !== null && (version === 'v1' || version === 'v1a')) found[version].push(bytes);
  }
  return found;
}

function textOf(bytes: Uint8Array): string {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new RequestRefusedError(400, 'the body is not UTF-8');
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new RequestRefusedError(400, 'the body is not JSON');
  }
}

/** Waybill percent-encodes the topic; a topic of another sender may contain a bare percent sign. */
function decoded(topic: string): string {
  try {
    return decodeURIComponent(topic);
  } catch {
    return topic;
  }
}
