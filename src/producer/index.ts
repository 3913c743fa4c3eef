// waybill/producer: what an application needs to write messages and to process each of them once. It loads no relay,
// server or command line, and no driver: statements run on the transaction that the application passes.

export { createOutbox } from './outbox.js';
export type { EnqueueOptions, Outbox, OutboxOptions } from './outbox.js';
export type { Enqueued, Message } from '../core/message.js';

export { createInbox } from '../consumer/inbox.js';
export type {
  Gap,
  Inbox,
  InboxOptions,
  ManyProcessed,
  Processed,
  Reception,
} from '../consumer/inbox.js';
export type { ConsumerOptions, Received, ReceivedMessage } from '../core/received-message.js';

export { defineEvents } from './events/define-events.js';
export type { Events } from './events/define-events.js';
export type { EventDefinitions, EventMessage, EventPayload } from './events/event-definitions.js';

export {
  ConfigurationError,
  MessageRefusedError,
  NoRightsError,
  NoTransactionError,
  SchemaMissingError,
  SchemaOutdatedError,
  SequenceGapError,
  UnroutedMessageError,
  WaybillError,
} from '../core/errors.js';
