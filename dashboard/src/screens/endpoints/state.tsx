// The state of an endpoint and of its deliveries as coloured words, as customers and operators read them.

import type { Delivery, Endpoint } from './answers.js';
import { statusOf } from '../../parts/status.js';

export type EndpointState = 'failing' | 'disabled' | 'healthy';

export function stateOf({ enabled, failing }: Endpoint): EndpointState {
  if (!enabled) return 'disabled';
  return failing ? 'failing' : 'healthy';
}

export const stateWords: Record<EndpointState, string> = {
  failing: 'Failing',
  disabled: 'Disabled',
  healthy: 'Healthy',
};

export function State({ endpoint }: { endpoint: Endpoint }) {
  const state = stateOf(endpoint);
  return <span class={`status with-dot ${state}`}>{stateWords[state]}</span>;
}

export const deliveryWords: Record<string, string> = {
  delivered: 'Delivered',
  pending: 'Waiting',
  retrying: 'Retrying',
  processing: 'Sending',
  dead: 'Failed',
  discarded: 'Discarded',
};

export function DeliveryStatus({ delivery }: { delivery: Pick<Delivery, 'status' | 'retrying'> }) {
  const status = statusOf(delivery);
  return <span class={`status with-dot ${status}`}>{deliveryWords[status] ?? status}</span>;
}
