// SQS client of the AWS SDK without its own retries: the relay decides about retries. Every call ends at once when it
// is aborted or the destination is closed, even while the SDK looks for credentials, which ignores signals.

import type * as Sqs from '@aws-sdk/client-sqs';

import { loadOptionalDependency } from '../optional-dependency.js';

export type SqsClientOptions = {
  readonly region?: string;
  readonly endpoint: string;
  readonly credentials?: { accessKeyId: string; secretAccessKey: string; sessionToken?: string };
  readonly connections: number;
  readonly connectTimeoutMs: number;
};

export class SqsConnection {
  readonly #options: SqsClientOptions;
  #open: { library: typeof Sqs; client: Sqs.SQSClient } | undefined;
  readonly #inFlight = new Set<AbortController>();
  #closed = false;

  constructor(options: SqsClientOptions) {
    this.#options = options;
  }

  /** Can be called again after a close: a drain opens and closes its destinations each time. */
  async load(relays = 1): Promise<void> {
    this.#closed = false;
    const name = '@aws-sdk/client-sqs';
    const library = await loadOptionalDependency('sqs', name, () => import('@aws-sdk/client-sqs'));
    const { connections, connectTimeoutMs, ...options } = this.#options;
    const agent = { maxSockets: connections * relays, keepAlive: true };
    const client = new library.SQSClient({
      ...options,
      maxAttempts: 1,
      requestHandler: { connectionTimeout: connectTimeoutMs, httpAgent: agent, httpsAgent: agent },
    });
    this.#open = { library, client };
  }

  async sendBatch(
    request: Sqs.SendMessageBatchCommandInput,
    signal: AbortSignal,
  ): Promise<Sqs.SendMessageBatchCommandOutput> {
    return this.#call(signal, ({ library, client }, abortSignal) =>
      client.send(new library.SendMessageBatchCommand(request), { abortSignal }),
    );
  }

  /** Resolves if the queue exists and this login may read its attributes. */
  async look(queueUrl: string, signal: AbortSignal): Promise<void> {
    const request = { QueueUrl: queueUrl, AttributeNames: ['QueueArn' as const] };
    await this.#call(signal, ({ library, client }, abortSignal) =>
      client.send(new library.GetQueueAttributesCommand(request), { abortSignal }),
    );
  }

  close(): void {
    this.#closed = true;
    for (const controller of this.#inFlight)
      controller.abort(new Error('the destination was closed'));
    this.#open?.client.destroy();
  }

  async #call<T>(
    signal: AbortSignal,
    request: (
      open: { library: typeof Sqs; client: Sqs.SQSClient },
      abortSignal: AbortSignal,
    ) => Promise<T>,
  ): Promise<T> {
    if (this.#open === undefined) throw new Error('the sqs destination is not open');
    if (this.#closed) throw new Error('the destination was closed');
    signal.throwIfAborted();
    const controller = new AbortController();
    const abort = (): void => controller.abort(signal.reason);
    signal.addEventListener('abort', abort);
    this.#inFlight.add(controller);
    const aborted = new Promise<never>((_resolve, fail) => {
      controller.signal.addEventListener('abort', () => fail(controller.signal.reason as Error));
    });
    try {
      return await Promise.race([request(this.#open, controller.signal), aborted]);
    } finally {
      this.#inFlight.delete(controller);
      signal.removeEventListener('abort', abort);
    }
  }
}
