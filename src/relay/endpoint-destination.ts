// The destination of one endpoint of the database: a webhook that can be replaced by another while deliveries are
// under way. Those that have begun end with the old address and secret, those that begin later have the new ones.

import { getServers } from 'node:dns';

import type { EndpointRow } from '../database/endpoints.js';
import type {
  DeliveryContext,
  ResolvedSettings,
  SingleDestination,
} from '../destinations/destination.js';
import type { BodyShape } from '../destinations/webhook/body.js';
import { webhook } from '../destinations/webhook/webhook.js';
import type { ClaimedMessage } from '../model/claimed-message.js';
import { openEndpoint } from '../model/endpoint-secrets.js';
import type { Outcome } from '../model/outcome.js';
import type { SecretKey } from '../model/sealed-secret.js';
import type { ResolvedEndpointOptions } from './endpoint-options.js';

type Instance = { readonly webhook: SingleDestination; underWay: number; retired: boolean };

export class EndpointDestination implements SingleDestination {
  readonly kind = 'endpoint';
  readonly settings: ResolvedSettings;
  #current: Instance | undefined;

  constructor({ settings }: ResolvedEndpointOptions) {
    this.settings = settings;
  }

  /** From now on deliveries go there. */
  async replace(next: SingleDestination): Promise<void> {
    await next.open?.();
    const previous = this.#current;
    this.#current = { webhook: next, underWay: 0, retired: false };
    if (previous) await retire(previous);
  }

  async deliver(message: ClaimedMessage, context: DeliveryContext): Promise<Outcome> {
    const instance = this.#current;
    if (instance === undefined) throw new Error('the endpoint is not open');
    instance.underWay += 1;
    try {
      return await instance.webhook.deliver(message, context);
    } finally {
      instance.underWay -= 1;
      if (instance.retired && instance.underWay === 0) await instance.webhook.close?.();
    }
  }

  async close(): Promise<void> {
    await this.#current?.webhook.close?.();
  }
}

/** Its connections are closed when the last of its deliveries has ended. */
async function retire(instance: Instance): Promise<void> {
  instance.retired = true;
  if (instance.underWay === 0) await instance.webhook.close?.();
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
    // not as the system resolves names: that has four threads for all, and one silent name server keeps them busy
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
