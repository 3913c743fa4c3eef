// Answers of the API about endpoints, for the operators' screen and for the customer portal.

import type { EndpointPage, ListedEndpoint } from '../../../../src/features/endpoints/listing.js';
import type {
  EndpointMessage,
  EndpointMessageDetail,
} from '../../../../src/features/endpoints/endpoint-message.js';
import type { OfferedEvent } from '../../../../src/features/endpoints/offered-events.js';
import type { DestinationStatistics } from '../../../../src/listing/destination-statistics.js';
import type { Sent } from '../../answers.js';

export type Endpoint = Sent<ListedEndpoint>;
export type Endpoints = Sent<EndpointPage>;
export type Delivery = Sent<EndpointMessage>;
export type DeliveryDetail = Sent<EndpointMessageDetail>;
export type Deliveries = { messages: Delivery[]; next: string | null };
export type Statistics = Sent<DestinationStatistics>;
export type OfferedEvents = { events: OfferedEvent[] };
/** A new secret, which is returned once. */
export type ShownSecret = { name: string; secret: string; fingerprint: string };

/** The path of an endpoint in the API, and below it. */
export function pathOf(name: string, below = ''): string {
  return `endpoints/${encodeURIComponent(name)}${below}`;
}
