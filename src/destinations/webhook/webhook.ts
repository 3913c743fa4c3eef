// Webhook destination, as Standard Webhooks describes it: one signed request per message, to a checked address, over
// its own connections. The receiver's answer decides the outcome. Redirects are not followed: if a receiver moves, the
// configuration must be changed.

import type { Pool } from 'undici';

import type { ClaimedMessage } from '../../core/claimed-message.js';
import { checkOptions, choice, integer, list, optional, refuse, text } from '../../core/options.js';
import { scheduledMs } from '../../core/retry-policy.js';
import { version } from '../../core/version.js';
import { settingKinds } from '../destination.js';
import { definitionOf } from '../definition.js';
import type { DestinationSettings, SingleDestination } from '../destination.js';
import type { AnswerRules } from './answer.js';
import { contentOf, headerValue, traceHeaders } from './body.js';
import type { BodyShape, Content } from './body.js';
import { canConnect, guardedConnector } from './connector.js';
import type { Connector } from './connector.js';
import { dnsServers } from './dns-servers.js';
import { Exchange } from './exchange.js';
import { webhookHeaders } from './headers.js';
import { responseKeeper } from './kept-response.js';
import { signatures, webhookSecrets } from './signature.js';
import type { Secret } from './signature.js';
import { allowedNetworks } from './targets.js';
import { refuseTarget, webhookUrl } from './url.js';

export type WebhookOptions = DestinationSettings & {
  /** The address of the webhook. */
  url: string;
  /** Secrets that sign the requests: `whsec_…` (HMAC-SHA256) or `whsk_…` (ed25519). During a rotation, several sign. Default: no signature. */
  secrets?: string | readonly string[];
  /** The payload as it is, in an `envelope` with `event`, `data` and `timestamp`, or as a CloudEvent in binary or structured form. Default `payload`. */
  body?: BodyShape;
  /** The `source` of CloudEvents. Default: `/waybill/` and the namespace. */
  source?: string;
  /** Headers of every request. */
  headers?: Record<string, string>;
  /** The method of the requests. Default `POST`. */
  method?: 'POST' | 'PUT' | 'PATCH';
  /** Statuses that mean delivered. Default: 200 to 299. */
  successCodes?: readonly number[];
  /** Statuses after which a message goes straight to the dead letters. Default: none. */
  terminalCodes?: readonly number[];
  /** The longest `Retry-After` of a 429 or 503; longer ones are shortened to this. Default 3,600,000. */
  maxRetryAfterMs?: number;
  /** Which responses are stored: their first 4 KiB. The status is always stored. Default `all`. */
  keepResponses?: 'all' | 'failures' | 'none';
  /** Networks that the webhook may reach although they are not public. Default: none. */
  allowedNetworks?: readonly string[];
  /** Name servers that resolve the address. Default: those of the system. */
  dnsServers?: readonly string[];
};

/** The connect timeout, as a part of the call's timeout: while it connects, a call cannot be aborted. */
const connectShare = 0.9;
const longestConnectMs = 10_000;
const status = integer({ min: 200, max: 599 });

/** The option kinds of webhooks, for destinations that build webhooks from other descriptions, such as endpoints. */
export const webhookKinds = {
  ...settingKinds,
  url: webhookUrl,
  secrets: webhookSecrets,
  body: choice<BodyShape>('payload', 'envelope', 'cloudevents', 'cloudevents-structured'),
  source: optional(text({ pattern: /^[\u0021-\u007e]+$/, meaning: 'a URI reference' })),
  headers: webhookHeaders,
  method: choice('POST', 'PUT', 'PATCH'),
  successCodes: optional(list(status, { min: 1, max: 400 })),
  terminalCodes: optional(list(status, { min: 0, max: 400 })),
  maxRetryAfterMs: integer({ min: 1000, max: 2_592_000_000, default: 3_600_000 }),
  keepResponses: choice('all', 'failures', 'none'),
  allowedNetworks,
  dnsServers,
};

export type CheckedWebhook = ReturnType<typeof checkWebhook>;

export function checkWebhook(options: WebhookOptions) {
  const checked = checkOptions('webhook', options, webhookKinds);
  refuseLostSecret(options);
  refuseContradiction(checked.successCodes, checked.terminalCodes);
  return checked;
}

export function webhook(options: WebhookOptions): SingleDestination {
  const checked = checkWebhook(options);
  return { ...webhookOf(checked), definition: definitionOf(options, checked, ['secrets']) };
}

/** Connections to one origin. */
export type OpenPool = {
  readonly pool: Pool;
  readonly connector: Connector;
  close(): Promise<void>;
};

export type PoolOptions = Pick<CheckedWebhook, 'allowedNetworks' | 'dnsServers' | 'timeoutMs'> & {
  /** At most so many connections; null: as many as there are calls at once. */
  connections: number | null;
};

export type PoolOpener = (origin: string, options: PoolOptions) => Promise<OpenPool>;

export const openPool: PoolOpener = async (origin, options) => {
  const { allowedNetworks: allowed, dnsServers, timeoutMs, connections } = options;
  // Imported on demand: it is half of what the command line would load to start. By its file: under the plain name
  // Bun has a module of its own, without pools.
  const { buildConnector, Pool: UndiciPool } = await import('undici/index.js');
  const connector = guardedConnector(buildConnector, {
    allowed,
    dnsServers,
    timeoutMs: Math.min(Math.ceil(timeoutMs * connectShare), longestConnectMs),
  });
  // A plain list of clients would save a twentieth of a request. But it would have to repeat what the pool does:
  // let a connection rest before the receiver could have closed it, and drop a client that could not connect.
  const pool = new UndiciPool(origin, {
    connections,
    headersTimeout: timeoutMs,
    bodyTimeout: timeoutMs,
    connect: connector.connect,
  });
  const close = async (): Promise<void> => {
    connector.close();
    await pool.destroy();
  };
  return { pool, connector, close };
};

/** A webhook of checked options. Endpoints use it, because thousands of them share most options, and connections. */
export function webhookOf(
  checked: CheckedWebhook,
  { openPool: opener, connections }: { openPool: PoolOpener; connections: number | null } = {
    openPool,
    connections: checked.concurrency,
  },
): SingleDestination {
  const { url, secrets, headers: added, body, source, method, ...others } = checked;
  const { successCodes, terminalCodes, maxRetryAfterMs, keepResponses, ...rest } = others;
  const { allowedNetworks: allowed, dnsServers: servers, ...settings } = rest;
  refuseTarget(url, allowed);
  const rules: AnswerRules = {
    successCodes,
    terminalCodes: terminalCodes ?? [],
    maxRetryAfterMs,
    keepResponses,
    keeper: responseKeeper(
      secrets.map((secret) => secret.text),
      added,
      url,
    ),
  };
  const path = `${url.pathname}${url.search}`;
  const fixed = fixedHeaders(added);
  let opened: OpenPool | undefined;
  const open = (): OpenPool => {
    if (opened === undefined) throw new Error('the webhook destination is not open');
    return opened;
  };
  return {
    kind: 'webhook',
    settings,
    async open(relays = 1) {
      opened = await opener(url.origin, {
        allowedNetworks: allowed,
        dnsServers: servers,
        timeoutMs: settings.timeoutMs,
        connections: connections === null ? null : connections * relays,
      });
    },
    deliver(message, context) {
      const { pool } = open();
      const content = contentOf[body](message, source);
      const headers = standardHeaders(message, secrets, content).concat(
        content.headers,
        traceHeaders(message),
        fixed,
      );
      return new Promise((resolve) => {
        pool.dispatch(
          { method, path, headers, body: content.body },
          new Exchange(rules, () => scheduledMs(settings.retry, message.tries), context, resolve),
        );
      });
    },
    render: (message) => contentOf[body](message, source).body,
    async health({ signal }) {
      const problem = await canConnect(open().connector.connect, url, signal);
      return problem === null ? { ok: true } : { ok: false, problem };
    },
    async close() {
      await opened?.close();
    },
  };
}

/** The id is the same on every retry; the timestamp is that of this try. */
function standardHeaders(
  message: ClaimedMessage,
  secrets: readonly Secret[],
  { body, contentType }: Content,
): string[] {
  const timestamp = String(Math.floor(Date.now() / 1000));
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

function fixedHeaders(headers: Readonly<Record<string, string>>): readonly string[] {
  const names = new Set(Object.keys(headers).map((name) => name.toLowerCase()));
  const own = names.has('user-agent') ? [] : ['user-agent', `waybill/${version}`];
  return [...own, ...Object.entries(headers).flat()];
}

/** An environment variable that is not set must not switch signatures off. */
function refuseLostSecret(options: WebhookOptions): void {
  if ('secrets' in options && options.secrets === undefined)
    refuse('webhook.secrets', undefined, 'give a secret, or leave the option out to sign nothing');
}

function refuseContradiction(
  successCodes: readonly number[] | undefined,
  terminalCodes: readonly number[] | undefined,
): void {
  const both = terminalCodes?.find((code) =>
    successCodes === undefined ? code < 300 : successCodes.includes(code),
  );
  if (both !== undefined)
    refuse('webhook.terminalCodes', both, 'leave out what means delivered already');
}
