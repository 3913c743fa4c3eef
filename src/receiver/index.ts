// waybill/receiver: what a receiver of signed webhooks needs. It loads no relay, server or driver.

export { createReceiver } from './receiver.js';
export type { EventHandler, Receiver, ReceiverInbox, ReceiverOptions } from './receiver.js';
export type { RequestHeaders, WebhookEvent } from './verify.js';
export { RequestRefusedError } from './errors.js';
