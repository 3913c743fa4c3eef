// Receiver: verifies signed webhooks and passes each event to a handler. With an inbox, it processes each event once, in
// the transaction of the handler. It has a form for each kind of server; all of them read the raw body, because JSON that
// was parsed and written again has another signature.
//
// Answers: 204 when the handler has ended, also for a duplicate; 400, 401 or 413 for a request that is refused; 500 if the
// handler throws, and the sender tries again later.

import { createInbox } from '../consumer/inbox.js';
import { checkOptions, integer, optional, refuse, schemaName } from '../core/options.js';
import { isUuid } from '../core/uuid.js';
import type { TransactionHandle } from '../producer/adapters/adapt.js';
import { RequestRefusedError } from './errors.js';
import { receiverKeys } from './keys.js';
import { bodyOfNode, bodyOfRequest } from './raw-body.js';
import type { NodeRequest } from './raw-body.js';
import { verifyRequest } from './verify.js';
import type { RequestHeaders, WebhookEvent } from './verify.js';

export type ReceiverInbox<Transaction extends TransactionHandle> = {
  /** The name of the consumer: each consumer processes each event once. */
  consumer: string;
  /** Runs the work in a transaction of your driver or ORM, and rolls back if it throws. */
  inTransaction: <Value>(work: (tx: Transaction) => Promise<Value>) => Promise<Value>;
  /** Default: outbox. */
  schema?: string;
};

export type ReceiverOptions<Transaction extends TransactionHandle = never> = {
  /** `whsec_…` or `whpk_…`; during a rotation, a list of the old one and the new one. */
  secrets: string | readonly string[];
  /** How far the time of a request may be from this machine's clock. Default 300. */
  toleranceSeconds?: number;
  /** The longest body. Default 5 MiB. */
  maxBytes?: number;
  /** Process each event once, in a transaction. */
  inbox?: ReceiverInbox<Transaction>;
  /** Called with each refused request and each error of the handler. Default: console.error, for errors of the handler. */
  onError?: (error: unknown) => unknown;
};

/** Gets the transaction if the receiver has an inbox. */
export type EventHandler<Transaction = never> = (event: WebhookEvent, tx: Transaction) => unknown;

type NodeResponse = {
  readonly headersSent: boolean;
  writeHead(status: number, headers: Record<string, string>): { end(text?: string): unknown };
};

type FastifyReply = {
  code(status: number): { type(type: string): { send(text: string): unknown } };
};

/** The part of a Fastify instance that the plugin uses. */
type FastifyScope = {
  removeAllContentTypeParsers(): unknown;
  addContentTypeParser(
    type: string,
    options: { parseAs: 'buffer'; bodyLimit: number },
    parser: (
      request: unknown,
      body: Uint8Array,
      done: (error: Error | null, body?: Uint8Array) => void,
    ) => void,
  ): unknown;
  post(
    url: string,
    handler: (
      request: { headers: RequestHeaders; body: unknown },
      reply: FastifyReply,
    ) => Promise<unknown>,
  ): unknown;
};

export type Receiver<Transaction = never> = {
  /** Verifies a request. Throws a RequestRefusedError. */
  verify<Payload = unknown>(
    body: string | Uint8Array,
    headers: RequestHeaders,
  ): WebhookEvent<Payload>;
  /** For Next.js, Hono, Deno, Bun: all that have the Fetch API. */
  toFetch(handler: EventHandler<Transaction>): (request: Request) => Promise<Response>;
  /** For node:http and Express. In Express, use it before `express.json()`, or after `express.raw()`. */
  toNode(
    handler: EventHandler<Transaction>,
  ): (request: NodeRequest, response: NodeResponse) => void;
  /** A plugin for Fastify, with the option `url`. Other routes keep their parsers. */
  toFastify(
    handler: EventHandler<Transaction>,
  ): (scope: FastifyScope, options: { url: string }, ready: () => void) => void;
};

type Answer = { status: number; text: string };

export function createReceiver<Transaction extends TransactionHandle = never>(
  options: ReceiverOptions<Transaction>,
): Receiver<Transaction> {
  const { secrets, toleranceSeconds, maxBytes, inbox, onError } = checkOptions(
    'receiver',
    options,
    {
      secrets: receiverKeys,
      toleranceSeconds: integer({ min: 1, max: 86_400, default: 300 }),
      maxBytes: integer({ min: 1, max: 128 * 1024 * 1024, default: 5 * 1024 * 1024 }),
      inbox: optional(inboxOptions),
      onError: optional(callback),
    },
  );
  const once = inbox && {
    ...(inbox as Required<ReceiverInbox<Transaction>>),
    inbox: createInbox({ schema: inbox.schema }),
  };

  const verify = <Payload>(body: string | Uint8Array, headers: RequestHeaders) =>
    verifyRequest<Payload>(body, headers, secrets, toleranceSeconds);

  async function handle(event: WebhookEvent, handler: EventHandler<Transaction>): Promise<void> {
    if (once === undefined) {
      await handler(event, undefined as never);
      return;
    }
    // ids of other senders need not be UUIDs
    const identity = isUuid(event.id) ? { messageId: event.id } : { dedupeKey: event.id };
    const { consumer } = once;
    await once.inTransaction(async (tx) => {
      await once.inbox.process(tx, { consumer, ...identity }, () => handler(event, tx));
      // Fails if the transaction has failed and the handler has caught the error: COMMIT would roll back in silence, and
      // the sender would not send the event again.
      await once.inbox.processMany(tx, { consumer }, [], () => {});
    });
  }

  async function answerTo(
    read: () => Promise<Uint8Array> | Uint8Array | string,
    headers: RequestHeaders,
    handler: EventHandler<Transaction>,
  ): Promise<Answer> {
    try {
      await handle(verify(await read(), headers), handler);
      return { status: 204, text: '' };
    } catch (error) {
      void report(error);
      return error instanceof RequestRefusedError
        ? { status: error.status, text: error.message }
        : { status: 500, text: 'the event was not processed' };
    }
  }

  /** Never fails: the sender gets its answer. */
  async function report(error: unknown): Promise<void> {
    try {
      if (onError) await onError(error);
      else if (!(error instanceof RequestRefusedError)) console.error(error);
    } catch (failure) {
      console.error(failure);
    }
  }

  return {
    verify,

    toFetch: (handler) => async (request) => {
      const read = () => bodyOfRequest(request, maxBytes);
      const { status, text } = await answerTo(read, request.headers, handler);
      return new Response(text === '' ? null : text, { status });
    },

    toNode: (handler) => (request, response) => {
      const read = () => bodyOfNode(request, maxBytes);
      void answerTo(read, request.headers, handler).then(({ status, text }) => {
        // the rest of a body that is too long is not read
        const ending: Record<string, string> = status === 413 ? { connection: 'close' } : {};
        // a timeout of the server may have answered meanwhile
        if (response.headersSent) return;
        response.writeHead(status, { 'content-type': 'text/plain', ...ending }).end(text);
      });
    },

    toFastify:
      (handler) =>
      (scope, { url }, ready) => {
        scope.removeAllContentTypeParsers();
        scope.addContentTypeParser(
          '*',
          { parseAs: 'buffer', bodyLimit: maxBytes },
          (_request, body, done) => done(null, body),
        );
        scope.post(url, async (request, reply) => {
          const body = (request.body ?? '') as Uint8Array | string;
          const { status, text } = await answerTo(() => body, request.headers, handler);
          return reply.code(status).type('text/plain').send(text);
        });
        ready();
      },
  };
}

function inboxOptions(name: string, value: unknown) {
  return checkOptions(name, value as object, {
    consumer: (field, given) =>
      typeof given === 'string' && given !== ''
        ? given
        : refuse(field, given, 'name who processes, such as billing'),
    inTransaction: (field, given) =>
      typeof given === 'function'
        ? given
        : refuse(field, given, 'give a function that runs its argument in a transaction'),
    schema: schemaName,
  });
}

function callback(name: string, value: unknown): (error: unknown) => unknown {
  return typeof value === 'function'
    ? (value as (error: unknown) => unknown)
    : refuse(name, value, 'give a function');
}
