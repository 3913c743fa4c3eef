// Destination of one endpoint: a webhook that can be replaced while deliveries are in flight. Deliveries in flight keep
// the old address and secret; later ones use the new ones.

import { getServers } from 'node:dns';

import type { EndpointRow } from './database.js';
import type {
  DeliveryContext,
  ResolvedSettings,
  SingleDestination,
} from '../../destinations/destination.js';
import type { BodyShape } from '../../destinations/webhook/body.js';
import { webhook } from '../../destinations/webhook/webhook.js';
import type { ClaimedMessage } from '../../core/claimed-message.js';
import { openEndpoint } from './secrets.js';
import type { Outcome } from '../../core/outcome.js';
import type { SecretKey } from './sealed-secret.js';
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
  { settings, shared }: ResolvedEndpointOptions,
): SingleDestination {
  const { secrets, headers } = openEndpoint(keys, row);
  const { concurrency, timeoutMs } = settings;
  const nameServers = getServers().slice(0, 10);
  return webhook({
    // not by the system's resolver: it has four threads for all names, and one silent name server would occupy them
    ...(nameServers.length > 0 && { dnsServers: nameServers }),
    ...shared,
    url: row.url,
    secrets,
    headers,
    concurrency,
    timeoutMs,
    ...(settings.retry.retryDelaysMs && { retry: { delaysMs: settings.retry.retryDelaysMs } }),
    ...(row.body !== null && { body: row.body as BodyShape }),
  });
}
