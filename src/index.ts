// The public interface of the package: anything that is not exported here may change without notice.

export { createOutbox } from './producer/outbox.js';
export type { EnqueueOptions, Outbox, OutboxOptions } from './producer/outbox.js';
export type { Enqueued, Message } from './core/message.js';

export { defineShards } from './features/shards/shards.js';
export type { ShardOptions, Shards, ShardsOptions } from './features/shards/shards.js';

export { defineEvents } from './producer/events/define-events.js';
export type { Events } from './producer/events/define-events.js';
export type {
  EventDefinitions,
  EventMessage,
  EventPayload,
} from './producer/events/event-definitions.js';

export { createEndpoints } from './features/endpoints/endpoints.js';
export { createTenantTokens } from './features/tokens/tenant-tokens.js';
export type {
  NewTenantToken,
  TenantToken,
  TenantTokens,
  TenantTokensOptions,
} from './features/tokens/tenant-tokens.js';
export type {
  EndpointReference,
  Endpoints,
  EndpointsOptions,
  EndpointStatus,
  Recovery,
  ShownSecret,
} from './features/endpoints/endpoints.js';
export type { EndpointChanges, NewEndpoint } from './features/endpoints/description.js';
export type { FilterCondition, PayloadFilter } from './features/endpoints/filter.js';

export { createInbox } from './consumer/inbox.js';
export type {
  Gap,
  Inbox,
  InboxOptions,
  ManyProcessed,
  Processed,
  Reception,
} from './consumer/inbox.js';
export type { ConsumerOptions, Received, ReceivedMessage } from './core/received-message.js';
export { subscribe } from './consumer/subscribe.js';
export { drainSubscription } from './consumer/drain-subscription.js';
export type {
  SubscriptionDrainLimits,
  SubscriptionDrainReport,
} from './consumer/drain-subscription.js';
export type { StreamHandler, SubscribeOptions, Subscription } from './consumer/subscribe.js';

export { createRelay, createShardedRelay, defineConfig } from './config.js';
export type { Config, Route } from './config.js';
export type { DrainLimits, DrainReport } from './relay/drains.js';
export type { Relay } from './relay/relay.js';
export type { ShardedDrainReport, ShardedRelay } from './features/shards/relay.js';
export { createDrainHandler } from './server/drain-handler.js';
export type { DrainHandlerOptions } from './server/drain-handler.js';
export type { RelayOptions } from './relay/options.js';
export type { AlertOptions, AlertWebhookOptions } from './features/alerts/options.js';
export type { EndpointOptions } from './features/endpoints/options.js';
export type { RelayEvent } from './telemetry/events.js';
export type { Watch } from './features/watches/watch.js';
export type { RetryPolicy } from './core/retry-policy.js';
export type { Retention } from './relay/upkeep/retention.js';
export type { DatabaseOptions } from './database/connection.js';

export { batchHandler, handler, webhook } from './destinations/named.js';
export type { BatchHandler, Handler } from './destinations/handler.js';
export type { WebhookOptions } from './destinations/webhook/webhook.js';
export type { BasicAuth, OAuth2, WebhookAuth } from './destinations/webhook/auth.js';
export { paymentGuard } from './destinations/payment-guard/payment-guard.js';
export type {
  DestinationFormat,
  PaymentGuardOptions,
  Rail,
} from './destinations/payment-guard/payment-guard.js';
export type {
  BatchDestination,
  DeliveryContext,
  Destination,
  DestinationSettings,
  SingleDestination,
} from './destinations/destination.js';
export type { ClaimedMessage } from './core/claimed-message.js';
export { delivered, pause, reject, release, retry } from './core/outcome.js';
export type { Failure, Outcome, Receipt } from './core/outcome.js';
export type { Classify } from './core/classify.js';
export type { Guard, GuardFunction, Refusal } from './core/guard.js';
export type { StandardSchema } from './core/standard-schema.js';
export type { BreakerOptions, RateLimit } from './core/destination-limits.js';

export { migrateUp } from './database/migrate.js';
export {
  ConfigurationError,
  DeadlineError,
  MessageRefusedError,
  MigrationError,
  NoRightsError,
  NoTransactionError,
  DatabaseReadOnlyError,
  RelayBusyError,
  RelayNotStartedError,
  RelayTooOldError,
  SchemaMissingError,
  SchemaOutdatedError,
  SealedSecretError,
  SequenceGapError,
  UnroutedMessageError,
  WaybillError,
} from './core/errors.js';
