// Webhooks for tests: opened against a server of the test, closed when the test ends, and given hand-made messages.

import type { IncomingHttpHeaders } from 'node:http';
import { text } from 'node:stream/consumers';

import { onTestFinished } from 'vitest';

import type { SingleDestination } from '../../src/destinations/destination.js';
import { webhook } from '../../src/destinations/webhook/webhook.js';
import type { WebhookOptions } from '../../src/destinations/webhook/webhook.js';
import type { ClaimedMessage } from '../../src/core/claimed-message.js';
import type { Outcome } from '../../src/core/outcome.js';
import { claimedMessage } from './claimed-message.js';
import { loopback, serve } from './relay-partner.js';

export const id = '01a1de5f-b731-742f-8845-6c60ca5acb12';

export type Fields = Parameters<typeof claimedMessage>[0];

export function message(fields: Fields = {}): ClaimedMessage {
  return claimedMessage({
    id,
    topic: 'user.registered',
    payload: '{"n": 1}',
    createdAt: '2026-11-15 12:00:00.123456+00',
    ...fields,
  });
}

/** May reach this machine, unless the options say otherwise. */
export async function opened(options: WebhookOptions): Promise<SingleDestination> {
  const destination = webhook({ allowedNetworks: loopback, ...options });
  await destination.open?.();
  onTestFinished(() => destination.close?.());
  return destination;
}

export async function deliver(
  destination: SingleDestination,
  fields: Fields = {},
  signal: AbortSignal = new AbortController().signal,
): Promise<Outcome> {
  return destination.deliver(message(fields), { signal });
}

export type Received = {
  method: string | undefined;
  path: string | undefined;
  headers: IncomingHttpHeaders;
  body: string;
};

/** A receiver that accepts everything and keeps it. */
export async function receiver(): Promise<{ url: string; requests: Received[] }> {
  const requests: Received[] = [];
  const { url } = await serve((request, response) => {
    void text(request).then((body) => {
      const { method, url: path, headers } = request;
      requests.push({ method, path, headers, body });
      response.end();
    });
  });
  return { url, requests };
}

/** The request that a receiver gets for one message. */
export async function received(
  options: Omit<WebhookOptions, 'url'>,
  fields: Fields = {},
): Promise<Received> {
  const { url, requests } = await receiver();
  const outcome = await deliver(await opened({ ...options, url }), fields);
  const [request] = requests;
  if (outcome.kind !== 'delivered' || request === undefined || requests.length > 1)
    throw new Error(`${requests.length} requests, and ${JSON.stringify(outcome)}`);
  return request;
}
