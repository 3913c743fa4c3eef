// A plain webhook: POST the payload, 2xx is delivered, everything else is retried. Connections are kept
// in a pool of their own, and redirects are not followed: a receiver that moved must be told about.

import { once } from 'node:events';
import { connect } from 'node:net';

import type { Dispatcher, Pool } from 'undici';

import type { ClaimedMessage } from '../model/claimed-message.js';
import { checkOptions, optional, refuse } from '../model/options.js';
import { errorText } from '../errors.js';
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
    async open() {
      // loaded when it is used: it is half of what the command line would load to start
      const undici = await import('undici');
      pool = new undici.Pool(url.origin, {
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
    async health({ signal }) {
      const problem = await reach(url, signal);
      return problem === null ? { ok: true } : { ok: false, problem };
    },
    async close() {
      await pool?.destroy();
    },
  };
}

function post(
  pool: Pool,
  path: string,
  headers: Record<string, string>,
  message: ClaimedMessage,
  context: DeliveryContext,
): Promise<Outcome> {
  return new Promise((resolve) => {
    pool.dispatch(
      {
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
      },
      new Exchange(context.signal, resolve),
    );
  });
}

/** Whether somebody listens there; nothing is sent, for receivers take every request for a message. */
async function reach(url: URL, signal: AbortSignal): Promise<string | null> {
  const port = Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
  const socket = connect({ host: url.hostname.replace(/^\[|\]$/g, ''), port, signal });
  try {
    await once(socket, 'connect');
    return null;
  } catch (error) {
    return `${url.origin} cannot be reached: ${errorText(error)}`;
  } finally {
    socket.destroy();
  }
}

/**
 * One request and its answer, as undici tells of it: half the cost of a stream and a promise for each. The
 * beginning of an answer that is no success is kept; the rest is read and dropped, up to a bound, so that the
 * connection lives on.
 */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #signal: AbortSignal;
  readonly #resolve: (outcome: Outcome) => void;
  #controller: Dispatcher.DispatchController | undefined;
  #status = 0;
  #bytes = 0;
  readonly #kept: Buffer[] = [];

  constructor(signal: AbortSignal, resolve: (outcome: Outcome) => void) {
    this.#signal = signal;
    this.#resolve = resolve;
    signal.addEventListener('abort', this.#abort);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#signal.aborted) this.#abort();
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    this.#status = status;
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (!this.#succeeded && this.#bytes < keptResponseBytes) {
      this.#kept.push(chunk.subarray(0, keptResponseBytes - this.#bytes));
    }
    this.#bytes += chunk.length;
    if (this.#bytes > drainedBytes) {
      this.#end(this.#outcome());
      this.#controller?.abort(new Error('the answer is longer than anybody reads'));
    }
  }

  onResponseEnd(): void {
    this.#end(this.#outcome());
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    const { code, name, message } = error as NodeJS.ErrnoException;
    this.#end(retry({ code: 'connection_failed', remoteCode: code ?? name, message }));
  }

  get #succeeded(): boolean {
    return this.#status >= 200 && this.#status < 300;
  }

  #outcome(): Outcome {
    if (this.#succeeded) return delivered();
    const message = Buffer.concat(this.#kept).toString('utf8');
    return retry({ code: 'http_status', remoteCode: String(this.#status), message });
  }

  /** The first ending counts; the promise ignores the others. */
  #end(outcome: Outcome): void {
    this.#signal.removeEventListener('abort', this.#abort);
    this.#resolve(outcome);
  }

  readonly #abort = (): void => this.#controller?.abort(this.#signal.reason as Error);
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
