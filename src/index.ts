// The public interface of the package: what is not exported here is not to be relied on.

export { createOutbox } from './outbox.js';
export type { EnqueueOptions, Outbox, OutboxOptions } from './outbox.js';
export type { Enqueued, Message } from './model/message.js';

export { defineShards } from './shards.js';
export type { ShardOptions, Shards, ShardsOptions } from './shards.js';

export { defineEvents } from './events/define-events.js';
export type { Events } from './events/define-events.js';
export type { EventDefinitions, EventMessage, EventPayload } from './model/event-definitions.js';

export { createEndpoints } from './endpoints.js';
export type {
  EndpointReference,
  Endpoints,
  EndpointsOptions,
  EndpointStatus,
  ShownSecret,
} from './endpoints.js';
export type { EndpointChanges, NewEndpoint } from './destinations/endpoint.js';

export { createInbox } from './inbox.js';
export type { Gap, Inbox, InboxOptions, ManyProcessed, Processed, Reception } from './inbox.js';
export type { ConsumerOptions, Received, ReceivedMessage } from './model/received-message.js';
export { subscribe } from './subscribe.js';
export type { StreamHandler, SubscribeOptions, Subscription } from './subscribe.js';

export { createRelay, createShardedRelay, defineConfig } from './config.js';
export type { Config } from './config.js';
export type { DrainLimits, DrainReport } from './relay/drains.js';
export type { Relay } from './relay/relay.js';
export type { ShardedDrainReport, ShardedRelay } from './relay/sharded-relay.js';
export { createDrainHandler } from './server/drain-handler.js';
export type { DrainHandlerOptions } from './server/drain-handler.js';
export type { RelayOptions } from './relay/options.js';
export type { AlertOptions, AlertWebhookOptions } from './relay/alert-options.js';
export type { EndpointOptions } from './relay/endpoint-options.js';
export type { RelayEvent } from './telemetry/events.js';
export type { Route } from './model/route.js';
export type { Watch } from './model/watch.js';
export type { RetryPolicy } from './model/retry-policy.js';
export type { Retention } from './database/maintenance.js';
export type { DatabaseOptions } from './database/connection.js';

export { batchHandler, handler } from './destinations/handler.js';
export type { BatchHandler, Handler } from './destinations/handler.js';
export { nats } from './destinations/nats/nats.js';
export type { NatsOptions } from './destinations/nats/nats.js';
export { rabbitmq } from './destinations/rabbitmq/rabbitmq.js';
export type { RabbitmqOptions } from './destinations/rabbitmq/rabbitmq.js';
export { redis } from './destinations/redis/redis.js';
export type { RedisMaxLength, RedisOptions } from './destinations/redis/redis.js';
export { sqs } from './destinations/sqs/sqs.js';
export type { SqsOptions } from './destinations/sqs/sqs.js';
export { kafka } from './destinations/kafka/kafka.js';
export type { KafkaOptions, KafkaSasl, KafkaTls } from './destinations/kafka/kafka.js';
export { webhook } from './destinations/webhook/webhook.js';
export type { WebhookOptions } from './destinations/webhook/webhook.js';
export { paymentGuard } from './destinations/payment-guard.js';
export type { DestinationFormat, PaymentGuardOptions, Rail } from './destinations/payment-guard.js';
export type {
  BatchDestination,
  DeliveryContext,
  Destination,
  DestinationSettings,
  SingleDestination,
} from './destinations/destination.js';
export type { ClaimedMessage } from './model/claimed-message.js';
export { delivered, pause, reject, release, retry } from './model/outcome.js';
export type { Failure, Outcome, Receipt } from './model/outcome.js';
export type { Classify } from './model/classify.js';
export type { Guard, GuardFunction, Refusal } from './model/guard.js';
export type { StandardSchema } from './model/standard-schema.js';
export type { BreakerOptions, RateLimit } from './model/rails.js';

export { migrateUp } from './database/migrate.js';
export {
  ConfigurationError,
  DeadlineError,
  MessageRefusedError,
  MigrationError,
  NoTransactionError,
  RelayTooOldError,
  SchemaOutdatedError,
  SealedSecretError,
  SequenceGapError,
  WaybillError,
} from './errors.js';
