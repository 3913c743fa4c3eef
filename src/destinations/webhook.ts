// A plain webhook: POST the payload, 2xx is delivered, everything else is retried. Connections are kept
// in a pool of their own, and redirects are not followed: a receiver that moved must be told about.

import { Pool } from 'undici';

import type { ClaimedMessage } from '../model/claimed-message.js';
import { checkOptions, optional, refuse } from '../model/options.js';
import { delivered, retry } from '../model/outcome.js';
import type { Outcome } from '../model/outcome.js';
import { settingKinds } from './destination.js';
import type { DeliveryContext, DestinationSettings, SingleDestination } from './destination.js';

export type WebhookOptions = DestinationSettings & {
  url: string;
  /** Sent with every request, beside `content-type` and the `webhook-…` ones. */
  headers?: Record<string, string>;
};

const keptResponseBytes = 1024;
const drainedBytes = 128 * 1024;
const reserved = /^(host|content-length|content-type|connection|transfer-encoding|webhook-.*)$/i;

export function webhook(options: WebhookOptions): SingleDestination {
  const { url, headers, ...settings } = checkOptions('webhook', options, {
    ...settingKinds,
    url: webhookUrl,
    headers: optional(webhookHeaders),
  });
  let pool: Pool | undefined;
  const path = `${url.pathname}${url.search}`;
  return {
    kind: 'webhook',
    settings,
    open() {
      pool = new Pool(url.origin, {
        connections: settings.concurrency,
        headersTimeout: settings.timeoutMs,
        bodyTimeout: settings.timeoutMs,
        connect: { timeout: Math.min(settings.timeoutMs, 10_000) },
      });
    },
    deliver(message, context) {
      if (pool === undefined) throw new Error('the webhook destination is not open');
      return post(pool, path, headers ?? {}, message, context);
    },
    async close() {
      await pool?.destroy();
    },
  };
}

async function post(
  pool: Pool,
  path: string,
  headers: Record<string, string>,
  message: ClaimedMessage,
  context: DeliveryContext,
): Promise<Outcome> {
  let status: number;
  let text: string;
  try {
    const response = await pool.request({
      method: 'POST',
      path,
      headers: {
        ...headers,
        'content-type': 'application/json',
        'webhook-id': message.id,
        'webhook-timestamp': String(Math.floor(Date.now() / 1000)),
        'webhook-topic': message.topic,
      },
      body: message.payloadText,
      signal: context.signal,
    });
    status = response.statusCode;
    if (status >= 200 && status < 300) {
      // nobody reads it; it is drained, up to a bound, so that the connection lives on
      await response.body.dump({ limit: drainedBytes });
      // an answer that was broken off is no answer
      context.signal.throwIfAborted();
      return delivered();
    }
    text = await firstBytes(response.body);
  } catch (error) {
    const { code, name, message: reason } = error as NodeJS.ErrnoException;
    return retry({ code: 'connection_failed', remoteCode: code ?? name, message: reason });
  }
  return retry({ code: 'http_status', remoteCode: String(status), message: text });
}

/** The beginning of the answer; the rest is read and dropped up to a bound, so that the connection lives on. */
async function firstBytes(body: AsyncIterable<Buffer>): Promise<string> {
  const kept: Buffer[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    if (bytes < keptResponseBytes) kept.push(chunk.subarray(0, keptResponseBytes - bytes));
    bytes += chunk.length;
    if (bytes > drainedBytes) break;
  }
  return Buffer.concat(kept).toString('utf8');
}

function webhookUrl(name: string, value: unknown): URL {
  const url = typeof value === 'string' && URL.canParse(value) ? new URL(value) : null;
  if (url !== null && (url.username !== '' || url.password !== '')) {
    // the value is not shown: it holds a secret
    return refuse(
      name,
      `${url.protocol}//…@${url.host}`,
      'put credentials into headers, not into the address',
    );
  }
  if (url === null || !/^https?:$/.test(url.protocol)) {
    // what follows the scheme may hold a secret
    return refuse(
      name,
      url === null ? value : `${url.protocol}…`,
      'give an http:// or https:// address',
    );
  }
  return url;
}

function webhookHeaders(name: string, value: unknown): Record<string, string> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    refuse(name, '…', 'give an object of header names and texts');
  }
  for (const [header, text] of Object.entries(value)) {
    if (!/^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(header) || reserved.test(header)) {
      refuse(
        `${name}.${header}`,
        '…',
        'use another header name: this one is reserved or malformed',
      );
    }
    // oxlint-disable-next-line no-control-regex -- control characters are what is looked for
    if (typeof text !== 'string' || /[\u0000\r\n]/.test(text)) {
      refuse(`${name}.${header}`, '…', 'give text without line breaks');
    }
  }
  return value as Record<string, string>;
}
