// The public interface of the package: what is not exported here is not to be relied on.

export { createOutbox } from './outbox.js';
export type { EnqueueOptions, Outbox, OutboxOptions } from './outbox.js';
export type { Enqueued, Message } from './model/message.js';
export {
  ConfigurationError,
  MessageRefusedError,
  MigrationError,
  NoTransactionError,
  WaybillError,
} from './errors.js';
export { migrateUp } from './database/migrate.js';
