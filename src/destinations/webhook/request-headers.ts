// Headers of a webhook request: those of Standard Webhooks, and those that are the same for every message.

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { version } from '../../core/version.js';
import { headerValue } from './body.js';
import type { Content } from './body.js';
import { signatures } from './signature.js';
import type { Secret } from './signature.js';

/** The id is the same on every retry; the timestamp is that of this try. */
export function standardHeaders(
  message: ClaimedMessage,
  secrets: readonly Secret[],
  { body, contentType }: Content,
  nowMs = Date.now(),
): string[] {
  const timestamp = String(Math.floor(nowMs / 1000));
  const headers = [
    'content-type',
    contentType,
    'webhook-id',
    message.id,
    'webhook-timestamp',
    timestamp,
    'webhook-topic',
    headerValue(message.topic),
  ];
  if (secrets.length > 0)
    headers.push('webhook-signature', signatures(secrets, message.id, timestamp, body));
  return headers;
}

export function fixedHeaders(headers: Readonly<Record<string, string>>): readonly string[] {
  const names = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  const own = names.has('user-agent') ? [] : ['user-agent', `waybill/${version}`];
  return [...own, ...Object.entries(headers).flat()];
}
