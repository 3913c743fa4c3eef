// Destination of one endpoint: a webhook that can be replaced while deliveries are in flight. Deliveries in flight keep
// the old address and secret; later ones use the new ones.

import { getServers } from 'node:dns';

import type { EndpointRow } from './database.js';
import type {
  DeliveryContext,
  ResolvedSettings,
  SingleDestination,
} from '../../destinations/destination.js';
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

type Instance = { readonly webhook: SingleDestination; inFlight: number; retired: boolean };

export class EndpointDestination implements SingleDestination {
  readonly kind = 'endpoint';
  readonly settings: ResolvedSettings;
  #current: Instance | undefined;

  constructor({ settings }: ResolvedEndpointOptions) {
    this.settings = settings;
  }

  /** Later deliveries use the new webhook. */
  async replace(next: SingleDestination): Promise<void> {
    await next.open?.();
    const previous = this.#current;
    this.#current = { webhook: next, inFlight: 0, retired: false };
    if (previous) await retire(previous);
  }

  async deliver(message: ClaimedMessage, context: DeliveryContext): Promise<Outcome> {
    const instance = this.#current;
    if (instance === undefined) throw new Error('the endpoint is not open');
    instance.inFlight += 1;
    try {
      return await instance.webhook.deliver(message, context);
    } finally {
      instance.inFlight -= 1;
      if (instance.retired && instance.inFlight === 0) await instance.webhook.close?.();
    }
  }

  async close(): Promise<void> {
    await this.#current?.webhook.close?.();
  }
}

/** Closes the old webhook's connections after its last delivery has ended. */
async function retire(instance: Instance): Promise<void> {
  instance.retired = true;
  if (instance.inFlight === 0) await instance.webhook.close?.();
}

/** Throws a SealedSecretError if the keys are not those that the endpoint was sealed with. */
export function endpointWebhook(
  row: EndpointRow,
  keys: readonly SecretKey[],
  options: ResolvedEndpointOptions,
  openPool: PoolOpener = openAlone,
): SingleDestination {
  const { secrets, headers } = openEndpoint(keys, row);
  const shared = checkedOptions(options);
  const own = {
    ...shared,
    url: webhookKinds.url('webhook.url', row.url),
    secrets: webhookKinds.secrets('webhook.secrets', secrets),
    headers: webhookKinds.headers('webhook.headers', headers),
    auth: undefined,
    ...(row.body !== null && { body: webhookKinds.body('webhook.body', row.body) }),
  };
  // the calls of each endpoint are limited, so the connections are
  return webhookOf(own, { openPool, connections: null });
}

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
