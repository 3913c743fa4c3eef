// waybill/testing: the test kit for applications that use Waybill. It needs no test runner in particular.

export { createTestKit } from './test-kit.js';
export type { ExpectedDeadLetter, TestKit, TestKitOptions } from './test-kit.js';
export type { DeliverAllOptions, DeliveryReport } from './deliver-all.js';
export type { RecordedMessage } from './destinations.js';
export type { EnqueuedMessage, ExpectedMessage } from './messages.js';
export type { DeadLetter } from './tables.js';
export { TestKitError } from './errors.js';
export { migrationSql } from './schema.js';
