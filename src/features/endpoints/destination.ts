// Destination of one endpoint: a webhook that can be replaced while deliveries are in flight. Deliveries in flight keep
// the old address and secret; later ones use the new ones.

import { getServers } from 'node:dns';

import type { EndpointRow } from './database.js';
import type {
  DeliveryContext,
  ResolvedSettings,
  SingleDestination,
} from '../../destinations/destination.js';
import { rateKind } from '../../core/destination-limits.js';
import type { TokenSource } from '../../destinations/webhook/access-token.js';
import type { OAuth2 } from '../../destinations/webhook/auth.js';
import { checkWebhook, webhookKinds } from '../../destinations/webhook/options.js';
import type { CheckedWebhook } from '../../destinations/webhook/options.js';
import { openPool as openAlone } from '../../destinations/webhook/pool.js';
import type { PoolOpener } from '../../destinations/webhook/pool.js';
import { webhookOf } from '../../destinations/webhook/sender.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { openEndpoint } from './secrets.js';
import type { Outcome } from '../../core/outcome.js';
import type { SecretKey } from '../../core/sealed-secret.js';
import type { ResolvedEndpointOptions } from './options.js';

export class EndpointDestination implements SingleDestination {
  readonly kind = 'endpoint';
  readonly settings: ResolvedSettings;
  /** The limits that the endpoint had when it was opened, as `limitsOf` writes them. */
  readonly limits: string;
  #current: SingleDestination | undefined;
  /** Replaced webhooks that may still have deliveries in flight, and when they are closed. */
  readonly #replaced = new Map<SingleDestination, NodeJS.Timeout>();

  constructor(options: ResolvedEndpointOptions, row: EndpointLimits) {
    this.settings = settingsOf(options, row);
    this.limits = limitsOf(row);
  }

  /** Later deliveries use the new webhook. */
  async replace(next: SingleDestination): Promise<void> {
    await next.open?.();
    if (this.#current) this.#closeLater(this.#current);
    this.#current = next;
  }

  deliver(message: ClaimedMessage, context: DeliveryContext): Promise<Outcome> | Outcome {
    if (this.#current === undefined) throw new Error('the endpoint is not open');
    return this.#current.deliver(message, context);
  }

  async close(): Promise<void> {
    for (const timer of this.#replaced.values()) clearTimeout(timer);
    const webhooks = [this.#current, ...this.#replaced.keys()];
    this.#replaced.clear();
    await Promise.all(webhooks.map(async (webhook) => webhook?.close?.()));
  }

  /** After twice the timeout, each of its deliveries has ended. */
  #closeLater(webhook: SingleDestination): void {
    const timer = setTimeout(() => {
      this.#replaced.delete(webhook);
      void webhook.close?.();
    }, 2 * this.settings.timeoutMs);
    timer.unref();
    this.#replaced.set(webhook, timer);
  }
}

/** What an endpoint has of its own instead of the settings that all endpoints share. */
export type EndpointLimits = Pick<
  EndpointRow,
  'rate' | 'concurrency' | 'timeoutMs' | 'expireAfterMs'
>;

/** A text of the limits, to compare them. */
export function limitsOf({ rate, concurrency, timeoutMs, expireAfterMs }: EndpointLimits): string {
  return JSON.stringify([rate?.perSecond, rate?.burst, concurrency, timeoutMs, expireAfterMs]);
}

/** Own limits are cut to the configured bounds, which may have been lowered since they were set. */
function settingsOf(
  { settings, maxConcurrency, maxTimeoutMs }: ResolvedEndpointOptions,
  { rate, concurrency, timeoutMs }: EndpointLimits,
): ResolvedSettings {
  return {
    ...settings,
    ...(rate !== null && { rate: rateKind('rate', rate) }),
    ...(concurrency !== null && { concurrency: Math.min(concurrency, maxConcurrency) }),
    ...(timeoutMs !== null && { timeoutMs: Math.min(timeoutMs, maxTimeoutMs) }),
  };
}

/** Throws a SealedSecretError if the keys are not those that the endpoint was sealed with. */
export function endpointWebhook(
  row: EndpointRow,
  keys: readonly SecretKey[],
  options: ResolvedEndpointOptions,
  { openPool, tokensOf }: EndpointParts = { openPool: openAlone },
): SingleDestination {
  const { secrets, headers, query, auth } = openEndpoint(keys, row);
  const shared = checkedOptions(options);
  const own = {
    ...shared,
    url: withQuery(webhookKinds.url('webhook.url', row.url), query),
    timeoutMs: settingsOf(options, row).timeoutMs,
    secrets: webhookKinds.secrets('webhook.secrets', secrets),
    headers: webhookKinds.headers('webhook.headers', headers),
    auth: webhookKinds.auth('webhook.auth', auth),
    ...(row.body !== null && { body: webhookKinds.body('webhook.body', row.body) }),
  };
  // the number of calls of each endpoint is limited, and so is that of its connections
  return webhookOf(own, {
    openPool,
    connections: null,
    ...(auth?.type === 'oauth2' && tokensOf && { tokens: tokensOf(auth) }),
  });
}

/** The address keeps its own query as it is. */
function withQuery(url: URL, query: Readonly<Record<string, string>>): URL {
  const added = new URLSearchParams(query).toString();
  if (added !== '') url.search = url.search === '' ? added : `${url.search}&${added}`;
  return url;
}

/** What the endpoints of a relay share. */
export type EndpointParts = {
  readonly openPool: PoolOpener;
  readonly tokensOf?: (client: OAuth2) => TokenSource;
};

type Checked = { readonly nameServers: string; readonly options: CheckedWebhook };
const checked = new WeakMap<ResolvedEndpointOptions, Checked>();

/** The options that all endpoints share, checked once: that costs more than everything else at an endpoint's start. */
function checkedOptions(options: ResolvedEndpointOptions): CheckedWebhook {
  const servers = getServers().slice(0, 10);
  const nameServers = servers.join();
  const known = checked.get(options);
  if (known?.nameServers === nameServers) return known.options;
  const { settings, shared } = options;
  const { concurrency, timeoutMs, retry } = settings;
  const made = checkWebhook({
    // not by the system's resolver: it has four threads for all names, and one silent name server would occupy them
    ...(servers.length > 0 && { dnsServers: servers }),
    ...shared,
    // each endpoint has its own
    url: 'https://example.com',
    concurrency,
    timeoutMs,
    ...(retry.retryDelaysMs && { retry: { delaysMs: retry.retryDelaysMs } }),
  });
  checked.set(options, { nameServers, options: made });
  return made;
}
